"""https: the certificate must be valid, and for the host that was asked for."""

from __future__ import annotations

import datetime
import ssl
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from gymmesh_model.transport import ConnectFailed
from tests.support.optional import require
from tests.unit.model.transport.raw_server import Link, hello, serving, transport

require(find_spec("cryptography"), "the package cryptography", "pip install cryptography")

from cryptography import x509  # noqa: E402  # there may be none
from cryptography.hazmat.primitives import hashes, serialization  # noqa: E402  # as above
from cryptography.hazmat.primitives.asymmetric import ec  # noqa: E402  # as above
from cryptography.x509.oid import NameOID  # noqa: E402  # as above


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A self-made certificate for `localhost` and its key, in one file."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(7)
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .sign(key, hashes.SHA256())
    )
    path = tmp_path_factory.mktemp("tls") / "made.pem"
    pem = serialization.Encoding.PEM
    plain = serialization.PrivateFormat.PKCS8
    secret = key.private_bytes(pem, plain, serialization.NoEncryption())
    path.write_bytes(secret + made.public_bytes(pem))
    return path


def test_certificates_are_checked(run: Any, certificate: Path) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    trusting = ssl.create_default_context(cafile=str(certificate))

    async def main() -> None:
        async with (
            serving(hello, context) as server,
            transport(tls=trusting) as knows,
            transport() as doubts,
        ):
            named = server.url.replace("127.0.0.1", "localhost")
            for body in (b"hello", b"hello 1"):
                assert (await knows.post(named, b"x" * 100_000)).body == body
            for client, url, cause in (
                (knows, server.url, "mismatch"),
                (doubts, named, "self-signed certificate"),
            ):
                with pytest.raises(ConnectFailed, match="TLS") as caught:
                    await client.post(url, b"{}")
                assert cause in str(caught.value)

    run(main())


def test_tls_where_there_is_none(run: Any) -> None:
    async def plain(link: Link) -> None:
        await link.send(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        await link.gone()

    async def main() -> None:
        async with serving(plain) as server, transport() as made:
            with pytest.raises(ConnectFailed, match=r"TLS: .*(?i:wrong.version|record.layer)"):
                await made.post(server.url.replace("http:", "https:"), b"{}")

    run(main())
