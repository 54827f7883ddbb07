"""What is sent: the same for the same seed, and of every kind that is promised."""

from __future__ import annotations

from random import Random

import pytest
from google.protobuf.message import DecodeError, Message

from gymmesh.agent.v1 import agent_pb2
from gymmesh.mux.v1 import mux_pb2
from gymmesh.rollout.v1 import rollout_pb2
from gymmesh.verify.v1 import verify_pb2
from gymmesh_responses import new_message
from tests.fuzz import http1, http2, messages, wire
from tests.fuzz.frames import Talk
from tests.fuzz.targets.base import values_of
from tests.fuzz.values import Values


def drawn(seed: int) -> Values:
    return Values(Random(seed), {"session_id": ["s1", "s2"]})


def good() -> verify_pb2.VerifyRequest:
    request = verify_pb2.VerifyRequest(
        session_id="s", stop_reason=rollout_pb2.STOP_REASON_MAX_STEPS, turn_rewards=[1.0, 2.0]
    )
    request.task.payload_json = b'{"expected_answer": "4", "more": [1, {"a": null}]}'
    request.task.params.input.append(new_message("user", "2 + 2?"))
    return request


def decodes(kind: type[Message], data: bytes) -> bool:
    try:
        kind.FromString(data)
    except DecodeError:
        return False
    return True


def a_call(values: Values) -> tuple[str, bytes]:
    return "gymmesh.agent.v1.AgentService/RunRollout", values.blob()


def everything(seed: int) -> list[bytes]:
    """Something of each generator."""
    values = values_of("any", seed, 7)
    kind = agent_pb2.RunRolloutRequest
    return [
        messages.made_up(values, kind).SerializeToString(deterministic=True),
        messages.changed(values, good()).SerializeToString(deterministic=True),
        wire.hurt(values, good().SerializeToString()),
        http1.spoilt(values, http1.Request(path=b"/metrics")),
        http2.conversation(values, b"/a/b", b"c"),
        *Talk(values, a_call, large=False).batches(),
    ]


def test_the_same_seed_sends_the_same() -> None:
    assert everything(3) == everything(3)
    assert everything(3) != everything(4)


def test_made_up_messages_are_of_every_kind() -> None:
    made = [messages.made_up(drawn(seed), agent_pb2.CollectRequest, 0.9) for seed in range(100)]
    kinds = {one.WhichOneof("message") for one in made}
    assert kinds >= {"hello", "starts", "cancels", "credit", "ack"}
    sizes = [one.ByteSize() for one in made]
    assert max(sizes) > 1000
    assert min(sizes) < 20


def test_what_callers_know_is_used() -> None:
    request = [messages.made_up(drawn(seed), verify_pb2.VerifyRequest, 1.0) for seed in range(50)]
    known = sum(one.session_id in ("s1", "s2") for one in request)  # type: ignore[attr-defined]  # a message of this type
    assert 20 < known < 50


def test_a_changed_message_is_another_and_the_good_one_stays() -> None:
    before = good()
    others = [messages.changed(drawn(seed), before) for seed in range(300)]
    assert before == good()
    assert sum(one != before for one in others) > 250
    payloads = {one.task.payload_json for one in others}  # type: ignore[attr-defined]  # a message of this type
    assert len(payloads) > 20


def test_hurt_bytes_are_of_both_kinds() -> None:
    """Some decode, and so reach the servers' code; some do not."""
    data = good().SerializeToString()
    spoilt = [wire.hurt(drawn(seed), data) for seed in range(500)]
    readable = sum(decodes(verify_pb2.VerifyRequest, one) for one in spoilt)
    assert 50 < readable < 450
    assert sum(one != data for one in spoilt) > 450


@pytest.mark.parametrize("number", [0, 1, 127, 128, 300, 2**32, 2**64 - 1])
def test_varints(number: int) -> None:
    data = wire.Field(5, wire.VARINT, wire.varint(number)).encoded()
    (field,) = wire.fields_of(data) or []
    assert field == wire.Field(5, wire.VARINT, wire.varint(number))


def test_fields_are_found_as_they_were_encoded() -> None:
    data = good().SerializeToString()
    assert b"".join(one.encoded() for one in wire.fields_of(data) or []) == data
    assert wire.fields_of(data[:-1]) is None
    assert wire.fields_of(b"\xff" * 20) is None


def test_nesting_goes_deeper_than_protobuf_reads() -> None:
    number = verify_pb2.VerifyRequest.DESCRIPTOR.fields_by_name["task"].number
    assert decodes(verify_pb2.VerifyRequest, wire.deep(number, 2))
    struct = mux_pb2.ExchangeRequest
    assert len(wire.deep(1, 3000)) > 3000
    assert not decodes(struct, wire.deep(1, 3000)) or wire.fields_of(wire.deep(1, 3000)) is not None


def test_talks_keep_the_protocol_often_enough() -> None:
    """Most frames decode, and calls begin with rising odd numbers."""
    begun = []
    for seed in range(50):
        for data in Talk(drawn(seed), a_call, large=False).batches():
            if decodes(mux_pb2.ExchangeRequest, data):
                frames = mux_pb2.ExchangeRequest.FromString(data).frames
                begun += [one.call for one in frames if one.begin.method.endswith("RunRollout")]
    assert len(begun) > 100
    assert sum(one % 2 for one in begun) > 0.9 * len(begun)


def test_requests_over_http_are_of_every_kind() -> None:
    sent = [http1.spoilt(drawn(seed), http1.Request(path=b"/metrics")) for seed in range(300)]
    assert sum(one.startswith(b"GET /metrics HTTP/1.1\r\n") for one in sent) > 100
    assert any(b"chunked" in one for one in sent)
    assert any(one.count(b"GET /metrics") > 1 for one in sent)
    assert any(not one.startswith(b"GET") for one in sent)
