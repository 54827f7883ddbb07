"""An endpoint outside this machine is reached through the proxy that the environment names."""

from __future__ import annotations

import pytest

from gymmesh_model import ModelConfig
from gymmesh_responses import text_of
from gymmesh_runtime.config import ConfigError, Secret
from gymmesh_runtime.errors import MeshError
from tests.integration.test_model_service import KEY, ask, serving
from tests.integration.test_model_service_faults import streamed
from tests.support import endpoint as fake
from tests.support.endpoint import FakeEndpoint
from tests.unit.model.transport import raw_server
from tests.unit.model.transport.raw_server import Link

OUTSIDE = "http://endpoint.invalid/v1"


@pytest.fixture(autouse=True)
def no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


def configured(url: str) -> ModelConfig:
    return ModelConfig(backend="chat", url=url, api_key=KEY, max_retries=0, timeout_s=10.0)


async def test_a_proxy_is_used_for_hosts_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    async with FakeEndpoint() as proxy:
        monkeypatch.setenv("http_proxy", proxy.root)
        async with serving(configured(OUTSIDE)) as service:
            assert text_of((await ask(service)).response.output[0]) == "ok"
            frames: list[object] = []
            await streamed(service, frames)
            assert frames
            proxy.default = fake.status(503)
            with pytest.raises(MeshError) as caught:
                await ask(service)
            assert caught.value.reason_name == "MODEL_SERVER_ERROR"
            proxy.default = fake.reset(after_headers=True)
            for asked in (ask(service), streamed(service, frames)):
                with pytest.raises(MeshError) as caught:
                    await asked
                assert caught.value.reason_name == "MODEL_UNREACHABLE"
        assert proxy.requests[0].headers["Host"] == "endpoint.invalid"
        assert proxy.requests[0].headers["Authorization"] == f"Bearer {KEY}"


async def test_a_proxy_that_is_down(monkeypatch: pytest.MonkeyPatch) -> None:
    async with FakeEndpoint() as proxy:
        monkeypatch.setenv("http_proxy", proxy.root)
    async with serving(configured(OUTSIDE)) as service:
        with pytest.raises(MeshError) as caught:
            await ask(service)
    assert caught.value.metadata["cause"] == "connection refused"


@pytest.mark.parametrize("scheme", ["http", "https"])
async def test_a_proxy_that_asks_who_is_there(monkeypatch: pytest.MonkeyPatch, scheme: str) -> None:
    """It gets its own user and password, and they are not shown when it refuses them."""
    heads: list[bytes] = []

    async def script(link: Link) -> None:
        heads.append(await link.reader.readuntil(b"\r\n\r\n"))
        await link.send(b"HTTP/1.1 407 Who?\r\nContent-Length: 0\r\n\r\n")
        await link.gone()

    async with raw_server.serving(script) as proxy:
        address = proxy.url.removesuffix("/v1").replace("//", "//someone:pass%40word@")
        monkeypatch.setenv(f"{scheme}_proxy", address)
        async with serving(configured(OUTSIDE.replace("http", scheme))) as service:
            with pytest.raises(MeshError) as caught:
                await ask(service)
    assert b"\r\nProxy-Authorization: Basic c29tZW9uZTpwYXNzQHdvcmQ=\r\n" in heads[0]
    assert heads[0].startswith(b"CONNECT " if scheme == "https" else b"POST ")
    if scheme == "https":  # no request was sent, and what refused is the proxy
        assert caught.value.reason_name == "MODEL_UNREACHABLE"
        assert caught.value.metadata["cause"] == "the proxy answered HTTP 407"
        assert KEY.encode() not in heads[0]
    shown = f"{caught.value} {caught.value.metadata}"
    assert "pass%40word" not in shown
    assert "pass@word" not in shown


async def test_a_proxy_may_be_a_host_and_port_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    async with FakeEndpoint() as proxy:
        monkeypatch.setenv("http_proxy", proxy.root.removeprefix("http://"))
        async with serving(configured(OUTSIDE)) as service:
            assert text_of((await ask(service)).response.output[0]) == "ok"


async def test_a_proxy_that_speaks_no_http_is_refused_at_the_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("http_proxy", "socks5://someone:secret@127.0.0.1:9")
    with pytest.raises(ConfigError, match="http_proxy is not an HTTP proxy") as caught:
        async with serving(configured(OUTSIDE)):
            pass
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("name", ["no_proxy", "nothing"])
async def test_without_one_the_host_is_called(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    async with FakeEndpoint() as proxy:
        if name == "no_proxy":
            monkeypatch.setenv("http_proxy", proxy.root)
            monkeypatch.setenv("no_proxy", "endpoint.invalid")
        async with serving(configured(OUTSIDE)) as service:
            with pytest.raises(MeshError) as caught:
                await ask(service)
        assert caught.value.metadata["cause"] == "the host name cannot be resolved"
        assert not proxy.requests


async def test_this_machine_is_never_behind_a_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    async with FakeEndpoint() as server:
        monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
        async with serving(configured(server.url)) as service:
            assert text_of((await ask(service)).response.output[0]) == "ok"


async def test_what_cannot_be_sent_is_refused_at_the_start() -> None:
    key = Secret("secret\r\nX: y")
    config = ModelConfig(backend="chat", url="http://127.0.0.1:1/v1", api_key=key)
    with pytest.raises(ConfigError, match="requests cannot be sent") as caught:
        async with serving(config):
            pass
    assert "secret" not in str(caught.value)
