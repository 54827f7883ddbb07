"""Who may offer what, and who may take an instance's place."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest

from gymmesh.errors.v1 import errors_pb2
from gymmesh.relay.v1 import relay_pb2
from gymmesh_relay.config import RelayConfig, ports_to_try
from gymmesh_relay.service import KIND
from gymmesh_runtime.errors import MeshError
from gymmesh_runtime.security import IdentityConfig, SecurityConfig
from gymmesh_runtime.serving import RELAYED_IDENTITY
from tests.unit.relay.world import CALL_S, MODEL, Probe, world
from tests.unit.runtime.probe import instance_at, unary

Reason = errors_pb2.ErrorReason
TOKENS = {name: f"token-of-{name}" for name in ("trainer", "other", "agent", "models", "tools")}
MAY: dict[str, dict[str, Any]] = {
    "trainer": {"may": ("register",)},
    "other": {"may": ("register",)},
    "agent": {"may": ("serve",)},
    "models": {"may": ("register",), "registers": ("model",)},
    "tools": {"may": ("register",), "registers": ("resource",)},
}
SECURED = SecurityConfig(
    identities={
        name: IdentityConfig(token_sha256=hashlib.sha256(token.encode()).hexdigest(), **MAY[name])
        for name, token in TOKENS.items()
    }
)


def shown(name: str, folder: Path) -> SecurityConfig:
    path = folder / name
    path.write_text(TOKENS[name])
    return SecurityConfig(token_file=str(path))


async def refusal(call: Any) -> int:
    with pytest.raises(MeshError) as caught:
        await call
    return caught.value.reason


async def test_another_identity_does_not_get_an_instances_place(tmp_path: Path) -> None:
    config = RelayConfig()
    async with world(config, security=SECURED, shown=shown("agent", tmp_path)) as here:
        trainer = await here.dial(Probe(), security=shown("trainer", tmp_path))
        offered = here.relay._instances["probe-0"]
        impostor = relay_pb2.OfferRequest(
            name="policy", instance_id="probe-0", services=[MODEL], key=trainer._key
        )
        with pytest.raises(MeshError) as caught:
            offered.check_same(impostor, "other")
        assert caught.value.reason == Reason.ERROR_REASON_INSTANCE_EXISTS
        offered.check_same(impostor, "trainer")
        for field, value in (("key", "x" * 32), ("name", "judge")):
            changed = relay_pb2.OfferRequest()
            changed.CopyFrom(impostor)
            setattr(changed, field, value)
            with pytest.raises(MeshError) as caught:
                offered.check_same(changed, "trainer")
            assert caught.value.reason == Reason.ERROR_REASON_INSTANCE_EXISTS
        await (await here.peer()).CreateResponse(unary(""), timeout=CALL_S)


async def test_a_second_process_with_the_same_id_is_refused(monkeypatch: Any) -> None:
    monkeypatch.setattr("tests.unit.relay.world.START_S", 1.0)
    first, second = Probe(), Probe()
    async with world() as here:
        await here.dial(first)
        found = await refusal(here.dial(second))
        assert found == Reason.ERROR_REASON_INSTANCE_EXISTS
        await (await here.peer()).CreateResponse(unary(""), timeout=CALL_S)
    assert first.requests
    assert not second.requests


async def test_an_identity_offers_only_what_it_may(tmp_path: Path) -> None:
    config = RelayConfig(offers={"policy": ("trainer", "models"), "open-*": ()})
    async with world(config, security=SECURED, shown=shown("agent", tmp_path)) as here:
        for identity, name in (
            ("agent", "policy"),  # may not register
            ("tools", "open-1"),  # not this kind
            ("other", "policy"),  # not this name
            ("trainer", "judge"),  # nobody may
        ):
            found = await refusal(here.dial(Probe(), name=name, security=shown(identity, tmp_path)))
            assert found == Reason.ERROR_REASON_NOT_PERMITTED, (identity, name)
        unknown = tmp_path / "unknown"
        unknown.write_text("nobody's")
        security = SecurityConfig(token_file=str(unknown))
        found = await refusal(here.dial(Probe(), security=security))
        assert found == Reason.ERROR_REASON_CREDENTIAL_INVALID
        await here.dial(Probe(), security=shown("models", tmp_path))
        await here.dial(Probe(), "probe-1", name="open-1", security=shown("other", tmp_path))


async def test_callers_are_checked_and_named(tmp_path: Path) -> None:
    probe = Probe()
    async with world(security=SECURED, shown=shown("agent", tmp_path)) as here:
        await here.dial(probe, security=shown("trainer", tmp_path))
        peer = await here.peer()
        pretended = {RELAYED_IDENTITY: "trainer"}
        await peer.CreateResponse(unary(""), timeout=CALL_S, metadata=pretended)
        context = probe.contexts[0]
        assert context.identity == "agent"
        assert RELAYED_IDENTITY not in context.metadata
        assert "authorization" not in context.metadata
    async with world(security=SECURED, shown=shown("other", tmp_path)) as here:
        await here.dial(probe, security=shown("trainer", tmp_path))
        found = await refusal((await here.peer()).CreateResponse(unary(""), timeout=CALL_S))
        assert found == Reason.ERROR_REASON_NOT_PERMITTED


async def test_without_identities_nobody_can_pretend_one() -> None:
    probe = Probe()
    async with world() as here:
        await here.dial(probe)
        pretended = {RELAYED_IDENTITY: "trainer"}
        await (await here.peer()).CreateResponse(unary(""), timeout=CALL_S, metadata=pretended)
    assert probe.contexts[0].identity == ""


async def test_a_plain_offer_is_refused() -> None:
    async with world() as here:
        peer = here.callers.plain_peer(here.link.address, KIND)
        request = relay_pb2.OfferRequest(
            name="policy", instance_id="probe-0", services=[MODEL], key="k" * 16
        )
        found = await refusal(peer.Offer(request, timeout=CALL_S))  # type: ignore[attr-defined]
        assert found == Reason.ERROR_REASON_NOT_OFFERED


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("key", "short"),
        ("services", ["gymmesh.model.v2.ModelService"]),
        ("services", [MODEL] * 17),
        ("name", "two\nlines"),
        ("instance_id", "x" * 600),
        ("meta", {str(number): "" for number in range(61)}),
        ("meta", {"long": "x" * 40_000}),
    ],
)
async def test_offers_that_cannot_be_meant_are_refused(field: str, value: Any) -> None:
    good = {"name": "policy", "instance_id": "probe-0", "services": [MODEL], "key": "k" * 16}
    async with world() as here:
        peer = here.callers.peer(instance_at(here.link.address, service=KIND))
        request = relay_pb2.OfferRequest(**{**good, field: value})
        found = await refusal(peer.Offer(request, timeout=CALL_S))
        assert found == Reason.ERROR_REASON_FIELD_INVALID


async def test_a_relay_takes_so_many_instances(monkeypatch: Any) -> None:
    monkeypatch.setattr("tests.unit.relay.world.START_S", 1.0)
    async with world(RelayConfig(max_instances=2)) as here:
        await here.dial(Probe(), "probe-0")
        await here.dial(Probe(), "probe-1")
        found = await refusal(here.dial(Probe(), "probe-2"))
        assert found == Reason.ERROR_REASON_QUEUE_FULL


@pytest.mark.parametrize(
    ("ports", "last", "tried"),
    [
        ("", "", [0]),
        ("", "10.0.0.7:9500", [9500, 0]),
        ("", "10.0.0.8:9500", [0]),  # another host's
        ("", "10.0.0.7:443", [0]),
        ("", "10.0.0.7:99999", [0]),
        ("", "10.0.0.7:x", [0]),
        ("9500-9502", "10.0.0.7:9501", [9501, 9500, 9501, 9502]),
        ("9500-9502", "10.0.0.7:9600", [9500, 9501, 9502]),
    ],
)
def test_an_instance_gets_its_last_port_again(ports: str, last: str, tried: list[int]) -> None:
    assert ports_to_try(ports, "10.0.0.7", last) == tried


def test_ports_and_names_are_checked() -> None:
    RelayConfig(ports="9500-9501")
    for wrong in ("9500", "9501-9500", "0-5", "1-70000"):
        with pytest.raises(ValueError, match="ports"):
            RelayConfig(ports=wrong)
    with pytest.raises(ValueError, match="end"):
        RelayConfig(offers={"po*y": ()})
