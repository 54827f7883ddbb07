"""The options of a gateway, and where it listens."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from gymmesh_agent.config import AgentConfig
from gymmesh_agent.gateway.config import GatewayConfig
from gymmesh_agent.gateway.server import GatewayServer
from gymmesh_runtime.config import ConfigError


@pytest.mark.parametrize(
    ("values", "key"),
    [
        ({"connections": 0}, "connections"),
        ({"calls_per_rollout": 0}, "calls_per_rollout"),
        ({"connections_per_rollout": -1}, "connections_per_rollout"),
        ({"keep_alive_s": 0}, "keep_alive_s"),
        ({"stop_s": float("inf")}, "stop_s"),
        ({"max_body_bytes": 10**9}, "max_body_bytes"),
        ({"listen": "127.0.0.1"}, "listen"),
        ({"listen": ":80"}, "listen"),
        ({"listen": "127.0.0.1:99999"}, "listen"),
        ({"listen": "127.0.0.1:x"}, "listen"),
    ],
)
def test_what_cannot_be_meant_is_refused_by_its_key(values: dict[str, Any], key: str) -> None:
    with pytest.raises(msgspec.ValidationError, match=f"{key}: "):
        msgspec.convert({"gateway": values}, AgentConfig)


def server(**values: Any) -> GatewayServer:
    return GatewayServer(GatewayConfig(**values), "coder", "policy", lambda: None)


async def test_others_reach_it_only_where_that_is_meant() -> None:
    with pytest.raises(ConfigError, match=r"gateway\.plain: true"):
        await server(listen="0.0.0.0:0").open()
    meant = server(listen="0.0.0.0:0", plain=True)
    await meant.open()
    port = meant.address.rpartition(":")[2]
    assert meant.reached_at("10.0.0.7") == f"10.0.0.7:{port}"
    await meant.close()


async def test_it_opens_once_however_many_ask() -> None:
    opened: list[int] = []
    one = GatewayServer(GatewayConfig(), "coder", "policy", lambda: opened.append(1))
    assert not one.address
    await asyncio.gather(*(one.open() for _ in range(8)))
    assert opened == [1]
    assert one.reached_at("10.0.0.7") == one.address  # it listens on this machine alone
    await one.close()
    await one.close()


async def test_a_port_that_is_taken_is_named() -> None:
    first = server()
    await first.open()
    with pytest.raises(OSError, match=f"cannot listen on {first.address}"):
        await server(listen=first.address).open()
    await first.close()
