"""Our clients do not ping servers more often than these allow: a gRPC library's defaults suffice.

The times of both sides are shortened by the same factor.
"""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
import pytest

from gymmesh_runtime.peers import PeerDirectory
from gymmesh_runtime.serve import ServeOptions, serving
from gymmesh_runtime.wire.options import KEEPALIVE_KEY, KEEPALIVE_S, channel_options
from tests.unit.runtime.probe import instance_at
from tests.unit.runtime.probe_service import ProbeService

# The pings that a library sends, however short their time, are a second apart.
_SHORTER = 200
_TIMES = ("grpc.keepalive_time_ms",)
#: What a server does that is told nothing (C-core and its bindings, Go, Java): five minutes.
_DEFAULTS = [
    ("grpc.http2.min_ping_interval_without_data_ms", 300_000 // _SHORTER),
    ("grpc.so_reuseport", 0),
]


async def _quiet_call(keepalive_s: int | None) -> grpc.StatusCode:
    """How a call of eight seconds, without a byte of data, ends."""

    async def wait(request: bytes, context: object) -> bytes:
        await asyncio.sleep(8)
        return b"done"

    handler = grpc.method_handlers_generic_handler(
        "slow.Service", {"Wait": grpc.unary_unary_rpc_method_handler(wait)}
    )
    server = grpc.aio.server(options=_DEFAULTS)
    server.add_generic_rpc_handlers((handler,))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    options = [
        (name, int(value) // _SHORTER if name in _TIMES else value)
        for name, value in channel_options(keepalive_s)
    ]
    try:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}", options=options) as channel:
            plain: Any = channel
            await plain.unary_unary("/slow.Service/Wait")(b"", timeout=30)
            return grpc.StatusCode.OK
    except grpc.aio.AioRpcError as error:
        return error.code()
    finally:
        await server.stop(None)


async def test_a_server_that_says_nothing_is_not_pinged_too_often() -> None:
    # The second shows that such a server closes the connection of a client that pings more often.
    ends = await asyncio.gather(_quiet_call(None), _quiet_call(KEEPALIVE_S))
    assert list(ends) == [grpc.StatusCode.OK, grpc.StatusCode.UNAVAILABLE]


@pytest.mark.parametrize(
    ("said", "between_s", "when_idle"),
    [
        ({}, 330, 0),
        ({KEEPALIVE_KEY: "60"}, 60, 1),
        ({KEEPALIVE_KEY: "5"}, KEEPALIVE_S, 1),
        ({KEEPALIVE_KEY: "often"}, 330, 0),
        ({KEEPALIVE_KEY: "-1"}, 330, 0),
    ],
)
async def test_the_registration_says_how_often(
    said: dict[str, str], between_s: int, when_idle: int
) -> None:
    directory = PeerDirectory()
    instance = instance_at("127.0.0.1:1")
    instance.meta.update(said)
    directory.upsert(instance)
    line = directory._channel("127.0.0.1:1")
    options = dict(channel_options(line.keepalive_s))
    assert options["grpc.keepalive_time_ms"] == between_s * 1000
    assert options["grpc.keepalive_permit_without_calls"] == when_idle
    directory.remove(instance.id)
    assert line.keepalive_s is None
    await directory.close()


async def test_our_servers_say_so() -> None:
    async with serving(ProbeService(), ServeOptions(metrics_port=None)) as served:
        assert served.instance.meta[KEEPALIVE_KEY] == str(KEEPALIVE_S)
