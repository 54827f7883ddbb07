"""Authorities and certificates for tests, of any date and name."""

from __future__ import annotations

import datetime
import ipaddress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from gymmesh_runtime.security import SecurityConfig, TlsConfig

LOOPBACK = ("127.0.0.1", "localhost")
SERVER = ExtendedKeyUsageOID.SERVER_AUTH
CLIENT = ExtendedKeyUsageOID.CLIENT_AUTH


class Authority:
    """Issues certificates into a folder."""

    def __init__(self, folder: Path, name: str = "authority", *, days: float = 9) -> None:
        self.folder = folder
        self.path = folder / f"{name}.pem"
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _named(name)
        basic = x509.BasicConstraints(ca=True, path_length=0)
        self.path.write_bytes(_pem(self._sign(self._name, self._key, days, basic)))

    def issue(
        self,
        name: str,
        *,
        hosts: tuple[str, ...] = LOOPBACK,
        uri: str = "",
        days: float = 5,
        usages: tuple[x509.ObjectIdentifier, ...] = (),
    ) -> Pair:
        """A certificate for a name, hosts and a URI; negative days: it has expired.

        ``usages``: what alone it is for, as SERVER and CLIENT; empty: anything.
        """
        names: list[Any] = [_general(one) for one in (name, *hosts)]
        if uri:
            names.append(x509.UniformResourceIdentifier(uri))
        key = ec.generate_private_key(ec.SECP256R1())
        extensions: list[Any] = [x509.SubjectAlternativeName(names)]
        if usages:
            extensions.append(x509.ExtendedKeyUsage(usages))
        made = self._sign(_named(name), key, days, *extensions)
        pair = Pair(self.folder / f"{name}.pem", self.folder / f"{name}.key")
        pair.key.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
        )
        pair.certificate.write_bytes(_pem(made))
        return pair

    def tls(self, pair: Pair | None, **settings: Any) -> SecurityConfig:
        """The configuration of a process with this certificate, which trusts this authority."""
        files: dict[str, Any] = {"authority": str(self.path)}
        if pair is not None:
            files |= {"certificate": str(pair.certificate), "key": str(pair.key)}
        files |= {key: settings.pop(key) for key in list(settings) if key in _OF_TLS}
        tls = msgspec.convert(files, TlsConfig)
        return SecurityConfig(tls=tls, **settings)

    def _sign(
        self, name: x509.Name, key: ec.EllipticCurvePrivateKey, days: float, *extensions: Any
    ) -> x509.Certificate:
        now = datetime.datetime.now(datetime.UTC)
        builder = x509.CertificateBuilder(
            subject_name=name,
            issuer_name=self._name,
            public_key=key.public_key(),
            serial_number=x509.random_serial_number(),
            not_valid_before=now - datetime.timedelta(days=8),
            not_valid_after=now + datetime.timedelta(days=days),
        )
        for extension in extensions:
            builder = builder.add_extension(extension, False)
        return builder.sign(self._key, hashes.SHA256())


@dataclass(frozen=True)
class Pair:
    """A certificate's file and its key's."""

    certificate: Path
    key: Path


_OF_TLS = ("client_certificates", "server_name")


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _general(name: str) -> Any:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)
