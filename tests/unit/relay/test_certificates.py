"""A relay over mutual TLS: who an instance is, and a certificate that is replaced."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from gymmesh.errors.v1 import errors_pb2
from gymmesh_relay.config import RelayConfig
from gymmesh_runtime.errors import MeshError
from gymmesh_runtime.security import IdentityConfig
from tests.support.certificates import Authority
from tests.unit.relay.test_cuts import Slow
from tests.unit.relay.world import CALL_S, Probe, world
from tests.unit.runtime.probe import unary, until

Reason = errors_pb2.ErrorReason


async def test_an_instance_is_known_by_its_certificate_and_dials_anew_with_the_next(
    tmp_path: Path,
) -> None:
    authority = Authority(tmp_path)
    trainer = authority.issue("trainer")
    identities = {
        "services": IdentityConfig(certificates=("services",), may=("register", "serve")),
        "trainer": IdentityConfig(certificates=("trainer",), may=("register",)),
        "other": IdentityConfig(certificates=("other",), may=("register",)),
    }
    mesh = authority.tls(authority.issue("services"), identities=identities)
    config = RelayConfig(offers={"policy": ("trainer",)})
    slow = Slow()
    async with world(config, security=mesh, shown=authority.tls(authority.issue("agent"))) as here:
        other = authority.tls(authority.issue("other"))
        with pytest.raises(MeshError) as caught:
            await here.dial(Probe(), security=other)
        assert caught.value.reason == Reason.ERROR_REASON_NOT_PERMITTED
        dialer = await here.dial(slow, security=authority.tls(trainer))
        peer = await here.peer()
        with pytest.raises(MeshError) as caught:
            await peer.CreateResponse(unary(""), timeout=CALL_S)
        assert caught.value.reason == Reason.ERROR_REASON_CREDENTIAL_INVALID
    async with world(config, security=mesh, shown=mesh) as here:
        slow = Slow()
        dialer = await here.dial(slow, security=authority.tls(trainer))
        peer = await here.peer()
        call = asyncio.create_task(peer.CreateResponse(unary(""), timeout=CALL_S))
        await until(lambda: slow.began == 1)
        before = here.relay._instances["probe-0"]._exchange
        authority.issue("trainer")
        await until(lambda: dialer.offers > 1)
        assert here.relay._instances["probe-0"]._exchange is not before
        later = asyncio.create_task(peer.CreateResponse(unary(""), timeout=CALL_S))
        await until(lambda: slow.began == 2)
        slow.go.set()
        await later
        # What ran goes on at the instance, where a retry gets its answer.
        with pytest.raises(MeshError) as caught:
            await call
        assert caught.value.reason == Reason.ERROR_REASON_MUX_BROKEN
        await until(lambda: slow.answered == 2)
        assert slow.cancelled == 0
