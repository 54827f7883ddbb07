"""What a process that dials a relay says while it cannot, and once it can again."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import pytest

from gymmesh_runtime.errors import MeshError
from gymmesh_runtime.serving import RelayDialer, RelayedInstance
from tests.support.certificates import Authority
from tests.support.ports import free_port
from tests.support.proxy import Proxy
from tests.unit.relay.test_cuts import Slow
from tests.unit.relay.world import MODEL, START_S, world
from tests.unit.runtime.probe import until


async def test_a_relay_that_cannot_be_reached_and_is_back(caplog: pytest.LogCaptureFixture) -> None:
    port = free_port()
    dialer = RelayDialer(f"127.0.0.1:{port}", RelayedInstance("policy", "probe-0", {MODEL: Slow()}))
    with caplog.at_level(logging.INFO, "gymmesh.relay"):
        starting = asyncio.create_task(dialer.start(START_S))
        await until(lambda: bool(caplog.messages))
        assert caplog.messages[0].startswith(
            f"this process cannot reach the relay 127.0.0.1:{port}: "
        )
        assert "; next attempt in 0." in caplog.messages[0]
        async with world() as here, Proxy(here.link._to[1], port=port):
            await starting
            assert f"the relay 127.0.0.1:{port} accepted the offer (failed " in caplog.messages[-1]
            await dialer.stop(0.0)


async def test_a_relay_over_tls_says_so_to_one_without(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    async with world(security=authority.tls(authority.issue("services"))) as here:
        with pytest.raises(MeshError, match="serves TLS") as error:
            await here.dial(Slow())
        assert error.value.reason_name == "CREDENTIAL_INVALID"
