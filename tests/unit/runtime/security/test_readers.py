"""Metrics and Prometheus' service discovery over TLS, read as Prometheus reads them."""

from __future__ import annotations

import asyncio
import json
import logging
import shutil
import socket
import ssl
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from gymmesh_discovery.backends.memory import MemoryRegistry
from gymmesh_discovery.http_sd import PATH, HttpSdEdge
from gymmesh_runtime.config import ConfigError
from gymmesh_runtime.security import IdentityConfig, SecurityConfig, TlsConfig
from gymmesh_runtime.security.credentials import Credentials
from gymmesh_runtime.security.readers import Readers
from gymmesh_runtime.serving.exposition import MetricsEndpoint
from tests.support.certificates import Authority, Pair

BOUND_S = 120.0
PAGES = ("metrics", "http_sd")
SPIFFE = "spiffe://example/prometheus"
TOKEN = "a-token-of-the-scraper"


@asynccontextmanager
async def page(kind: str, security: SecurityConfig | None, host: str = "127.0.0.1") -> Any:
    """Serves one of the pages with a security; gives its address and path."""
    if kind == "metrics":
        endpoint = MetricsEndpoint.start(host, 0, Readers(Credentials(security)))
        try:
            yield f"{endpoint.address}/metrics"
        finally:
            await asyncio.to_thread(endpoint.stop)
        return
    edge, registry = HttpSdEdge(f"{host}:0"), MemoryRegistry()
    await registry.open()
    try:
        await edge.open(registry, Credentials(security))
        yield f"{edge.address}{PATH}"
    finally:
        await edge.close()
        await registry.close()


def trusting(authority: Authority, pair: Pair | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(authority.path))
    if pair is not None:
        context.load_cert_chain(pair.certificate, pair.key)
    return context


class Refused(Exception):
    """The connection came to nothing."""


async def read(url: str, context: ssl.SSLContext | None = None, token: str = "") -> tuple[int, str]:
    """Status and text. Raises Refused."""
    request = urllib.request.Request(url)
    if token:
        request.add_header("Authorization", f"Bearer {token}")

    def get() -> tuple[int, str]:
        try:
            with urllib.request.urlopen(request, timeout=BOUND_S, context=context) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()
        except OSError as error:  # ssl's errors are of this kind
            raise Refused(str(error)) from None

    return await asyncio.to_thread(get)


@pytest.mark.parametrize("kind", PAGES)
async def test_readers_show_a_certificate_where_callers_do(kind: str, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    stranger = Authority(tmp_path, "another")
    pair = authority.issue("services")
    prometheus = authority.issue("prometheus")
    async with page(kind, authority.tls(pair)) as at:
        status, text = await read(f"https://{at}", trusting(authority, prometheus))
        assert status == 200
        assert "gymmesh_" in text if kind == "metrics" else json.loads(text) == []
        for context in (
            trusting(authority),  # no certificate
            trusting(authority, stranger.issue("prometheus-elsewhere")),
        ):
            with pytest.raises(Refused):
                await read(f"https://{at}", context)
        with pytest.raises(Refused):
            await read(f"http://{at}")
    async with page(kind, authority.tls(pair, client_certificates="none")) as at:
        assert (await read(f"https://{at}", trusting(authority)))[0] == 200


@pytest.mark.parametrize("kind", PAGES)
async def test_where_there_are_identities_they_alone_read(
    kind: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    authority = Authority(tmp_path)
    (tmp_path / "token").write_text(TOKEN)
    identities = {
        "services": IdentityConfig(certificates=("services",), may=("register", "serve")),
        "prometheus": IdentityConfig(
            certificates=("spiffe://example/prometheus",), may=("observe",)
        ),
        "scraper": IdentityConfig(token_file=str(tmp_path / "token"), may=("observe",)),
    }
    security = authority.tls(authority.issue("services"), identities=identities)
    known = trusting(authority, authority.issue("p", uri=SPIFFE))
    other = trusting(authority, authority.issue("other"))
    with caplog.at_level(logging.INFO, logger="gymmesh.audit"):
        async with page(kind, security) as at:
            url = f"https://{at}"
            assert (await read(url, known))[0] == 200
            assert (await read(url, other, TOKEN))[0] == 200
            for context, token in ((other, ""), (other, "guessed"), (known, "guessed")):
                status, text = await read(url, context, token)
                assert status == 401
                assert "does not recognise the caller" in text
                assert "gymmesh_" not in text
    refused = [json.loads(record.getMessage()) for record in caplog.records]
    assert {(one["method"].split()[0], one["outcome"]) for one in refused} == {
        ("GET", "CREDENTIAL_INVALID")
    }
    assert "guessed" not in caplog.text


@pytest.mark.parametrize("kind", PAGES)
async def test_a_token_alone_where_connections_are_plain(kind: str, tmp_path: Path) -> None:
    (tmp_path / "token").write_text(TOKEN)
    scraper = IdentityConfig(token_file=str(tmp_path / "token"), may=("observe",))
    async with page(kind, SecurityConfig(identities={"scraper": scraper})) as at:
        assert (await read(f"http://{at}", token=TOKEN))[0] == 200
        assert (await read(f"http://{at}"))[0] == 401


@pytest.mark.parametrize("kind", PAGES)
async def test_plain_metrics_are_plain_and_open(
    kind: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    authority = Authority(tmp_path)
    one = IdentityConfig(certificates=("services",), may=("serve",))
    security = authority.tls(
        authority.issue("services"), identities={"services": one}, plain_metrics=True
    )
    async with page(kind, security, "0.0.0.0") as at:
        port = at.replace("0.0.0.0", "127.0.0.1")
        assert (await read(f"http://{port}"))[0] == 200
    assert "NO AUTHENTICATION, NO ENCRYPTION" in caplog.text
    caplog.clear()
    security = authority.tls(authority.issue("services"))
    async with page(kind, security, "0.0.0.0"):
        pass
    assert "NO ENCRYPTION" not in caplog.text


@pytest.mark.parametrize("kind", PAGES)
async def test_changed_certificates_are_taken_up(kind: str, tmp_path: Path) -> None:
    """First a new certificate, then a new authority in place of the old one."""
    old, new = Authority(tmp_path, "old"), Authority(tmp_path, "new")
    trusted = tmp_path / "trusted.pem"
    shutil.copy(old.path, trusted)
    served = old.issue("services")
    with_old, with_new = (
        trusting(old, old.issue("reader")),
        trusting(new, new.issue("newer-reader")),
    )
    with_old.load_verify_locations(str(new.path))
    with_new.load_verify_locations(str(old.path))
    tls = TlsConfig(
        authority=str(trusted), certificate=str(served.certificate), key=str(served.key)
    )
    async with page(kind, SecurityConfig(tls=tls)) as at:
        url = f"https://{at}"
        assert (await read(url, with_old))[0] == 200
        with pytest.raises(Refused):
            await read(url, with_new)
        issued = new.issue("renewed")
        issued.key.replace(served.key)
        issued.certificate.replace(served.certificate)
        shutil.copy(new.path, trusted)
        await _until(lambda: read(url, with_new))
        with pytest.raises(Refused):
            await read(url, with_old)


async def _until(wanted: Callable[[], Any]) -> None:
    """Until a read succeeds."""
    async with asyncio.timeout(BOUND_S):
        while True:
            try:
                await wanted()
            except Refused:
                await asyncio.sleep(0.05)
            else:
                return


@asynccontextmanager
async def silent(at: str) -> AsyncIterator[None]:
    """A connection on which nothing is said."""
    host, _, port = at.partition("/")[0].rpartition(":")
    with socket.create_connection((host, int(port)), timeout=BOUND_S):
        yield


@pytest.mark.parametrize("kind", PAGES)
async def test_a_handshake_that_does_not_come_keeps_nobody_waiting(
    kind: str, tmp_path: Path
) -> None:
    authority = Authority(tmp_path)
    known = trusting(authority, authority.issue("reader"))
    security = authority.tls(authority.issue("services"))
    async with page(kind, security) as at, silent(at), silent(at):
        assert (await read(f"https://{at}", known))[0] == 200


async def test_a_process_without_a_certificate_cannot_serve_them(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="needs a certificate and a key"):
        Readers(Credentials(Authority(tmp_path).tls(None)))


async def test_http_sd_asks_before_it_listens_for_others() -> None:
    with pytest.raises(ConfigError, match=r"HTTP service discovery on 0\.0\.0\.0"):
        await HttpSdEdge("0.0.0.0:0").open(MemoryRegistry(), Credentials())
