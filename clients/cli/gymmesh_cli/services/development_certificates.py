"""A throwaway authority and its certificates, with the `cryptography` package."""

from __future__ import annotations

import datetime
import ipaddress
import os
import re
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID as Oid
from cryptography.x509.oid import NameOID

from gymmesh_client.problems import UserError
from gymmesh_runtime.text import os_reason

_NAME: Final = re.compile(r"[a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?")
_AUTHORITY: Final = "gymmesh development authority"
_LOOPBACK: Final = ("localhost", "127.0.0.1", "::1")
# Clocks differ.
_BEFORE: Final = datetime.timedelta(minutes=5)


@dataclass(frozen=True, slots=True)
class Issued:
    """The files written, the authority's files first, and when the certificates expire."""

    files: Sequence[Path]
    expires_at: str


def issue(folder: Path, names: Sequence[str], hosts: Sequence[str], days: int) -> Issued:
    """Writes `ca.pem` and `ca.key` if they don't exist, and a certificate and a key for each name.

    Each certificate is for its name, `hosts` and this machine's loopback, as a server's and as a
    client's. Files are replaced whole, readable by this user alone. Raises UserError.
    """
    for name in names:
        if not _NAME.fullmatch(name) or name == "ca":
            raise UserError(
                f"{name!r} is not a valid name of a certificate. Use lower-case letters, "
                "digits, dashes and dots. The name 'ca' is reserved"
            )
    now = datetime.datetime.now(datetime.UTC)
    until = now + datetime.timedelta(days=days)
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        key, authority = _authority(folder, now)
        files = [folder / "ca.pem"]
        for name in names:
            own_key, own = _leaf(key, authority, name, hosts, (now - _BEFORE, until))
            # The key first: what reads them both finds a pair once the certificate is there.
            _write_key(folder / f"{name}.key", own_key)
            _write_certificate(folder / f"{name}.pem", own)
            files += [folder / f"{name}.pem", folder / f"{name}.key"]
    except OSError as error:
        raise UserError(f"{error.filename}: {os_reason(error)}") from None
    return Issued(files, until.isoformat(timespec="seconds"))


def _authority(
    folder: Path, now: datetime.datetime
) -> tuple[ec.EllipticCurvePrivateKey, x509.Certificate]:
    """The authority in the folder, made if there is none. Raises UserError for one that is ours
    no more.
    """
    certificate, key = folder / "ca.pem", folder / "ca.key"
    if certificate.exists() or key.exists():
        try:
            kept = serialization.load_pem_private_key(key.read_bytes(), password=None)
            found = x509.load_pem_x509_certificate(certificate.read_bytes())
        except (OSError, ValueError, TypeError):
            found, kept = None, None
        if not isinstance(kept, ec.EllipticCurvePrivateKey) or found is None:
            raise UserError(
                f"{folder} has a ca.pem or ca.key that this command did not create. "
                "Choose another folder"
            )
        if found.public_key() != kept.public_key() or found.not_valid_after_utc < now:
            raise UserError(
                f"the authority in {folder} has expired, or its key does not match. "
                "Choose a new folder"
            )
        return kept, found
    made = ec.generate_private_key(ec.SECP256R1())
    name, year = _subject(_AUTHORITY), datetime.timedelta(days=365)
    extensions = [(x509.BasicConstraints(ca=True, path_length=0), True), (_usage(signs=True), True)]
    own = _certificate(name, made, (name, made), (now - _BEFORE, now + year), extensions)
    _write_key(key, made)
    _write_certificate(certificate, own)
    return made, own


def _leaf(
    key: ec.EllipticCurvePrivateKey,
    authority: x509.Certificate,
    name: str,
    hosts: Iterable[str],
    dates: tuple[datetime.datetime, datetime.datetime],
) -> tuple[ec.EllipticCurvePrivateKey, x509.Certificate]:
    made = ec.generate_private_key(ec.SECP256R1())
    names = [_general(one) for one in dict.fromkeys((name, *_LOOPBACK, *hosts))]
    extensions = [
        (x509.BasicConstraints(ca=False, path_length=None), True),
        (_usage(signs=False), True),
        (x509.ExtendedKeyUsage([Oid.SERVER_AUTH, Oid.CLIENT_AUTH]), False),
        (x509.SubjectAlternativeName(names), False),
        (x509.AuthorityKeyIdentifier.from_issuer_public_key(key.public_key()), False),
    ]
    return made, _certificate(_subject(name), made, (authority.subject, key), dates, extensions)


def _certificate(
    subject: x509.Name,
    own: ec.EllipticCurvePrivateKey,
    issuer: tuple[x509.Name, ec.EllipticCurvePrivateKey],
    dates: tuple[datetime.datetime, datetime.datetime],
    extensions: Iterable[tuple[x509.ExtensionType, bool]],
) -> x509.Certificate:
    """A certificate, signed by the issuer. extensions: each with whether it is critical."""
    name, key = issuer
    builder = x509.CertificateBuilder(
        subject_name=subject,
        issuer_name=name,
        public_key=own.public_key(),
        serial_number=x509.random_serial_number(),
        not_valid_before=dates[0],
        not_valid_after=dates[1],
    )
    identifier = x509.SubjectKeyIdentifier.from_public_key(own.public_key())
    for extension, critical in (*extensions, (identifier, False)):
        builder = builder.add_extension(extension, critical)
    return builder.sign(key, hashes.SHA256())


def _usage(*, signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs,
        crl_sign=signs,
        encipher_only=False,
        decipher_only=False,
    )


def _subject(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _general(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        pass
    try:
        return x509.DNSName(host)
    except ValueError:
        raise UserError(f"{host!r} is not a host name or an IP address") from None


def _write_key(path: Path, key: ec.EllipticCurvePrivateKey) -> None:
    pem, pkcs8 = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    _write(path, key.private_bytes(pem, pkcs8, serialization.NoEncryption()))


def _write_certificate(path: Path, certificate: x509.Certificate) -> None:
    _write(path, certificate.public_bytes(serialization.Encoding.PEM))


def _write(path: Path, data: bytes) -> None:
    """Replaces a file whole, readable by this user alone."""
    # mkstemp makes it so from the start.
    number, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    with os.fdopen(number, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    os.replace(name, path)
