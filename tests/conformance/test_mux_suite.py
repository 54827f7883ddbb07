"""The suite for the mux: our own server passes it, and servers with a defect do not."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
from google.protobuf.unknown_fields import UnknownFieldSet

from gymmesh.model.v1 import model_pb2
from gymmesh.mux.v1 import mux_pb2
from gymmesh_conformance.cases import Case
from gymmesh_conformance.mux import runner
from gymmesh_conformance.mux.exchange import Exchange
from gymmesh_conformance.mux.laws import Calls
from gymmesh_conformance.mux.runner import (
    load_mux_cases,
    run_mux_case,
    run_mux_suite,
    select_mux_cases,
)
from gymmesh_conformance.mux.target import MuxTarget
from gymmesh_conformance.paths import AddressPath
from gymmesh_conformance.runner import CaseResult, Stop
from gymmesh_conformance.suites import TargetError, load_profile
from gymmesh_discovery.service import DiscoveryService
from gymmesh_runtime.errors import MeshError
from gymmesh_runtime.serve import ServeOptions, serving
from gymmesh_runtime.wire import server
from gymmesh_runtime.wire.aborting import EndStatus
from gymmesh_runtime.wire.mux import exchange, servicer, stream, table
from gymmesh_runtime.wire.mux import serving as mux_serving
from gymmesh_runtime.wire.mux.calls import PeerLeaves, TableEvent
from gymmesh_runtime.wire.mux.frames import unpack
from gymmesh_runtime.wire.mux.table import CallTable, TableLimits, Violation, queue_full
from tests.conformance.implementations import PROFILES
from tests.conformance.stopping import stoppable

pytestmark = pytest.mark.long(seconds=85)

Change = Callable[[pytest.MonkeyPatch], None]


@asynccontextmanager
async def _server() -> AsyncIterator[tuple[MuxTarget, dict[str, Any], Stop]]:
    options = ServeOptions(metrics_port=None, drain_s=10.0)
    service = DiscoveryService("ours-0")
    async with (
        stoppable(serving(service, options)) as (served, stop),
        AddressPath(served.instance.address) as path,
        MuxTarget(path) as target,
    ):
        yield target, await target.variables(), stop


async def _run(case: Case, **variables: Any) -> CaseResult:
    async with _server() as (target, found, stop):
        return await run_mux_case(case, target, {**found, **variables}, stop)


@pytest.mark.parametrize(
    "case",
    [case for case in load_mux_cases() if "long_wait" not in case.needs],
    ids=lambda case: case.name,
)
async def test_our_servers_conform(case: Case) -> None:
    result = await _run(case)
    assert result.outcome == "passed", "\n".join((result.rule, *result.problems))


@pytest.mark.parametrize(("assembly_s", "passes"), [(0.2, True), (600.0, False)])
async def test_a_request_that_does_not_come(
    assembly_s: float, passes: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "_HEAR_S", 20.0 if passes else 1.0)
    _limits(assembly_s=assembly_s)(monkeypatch)
    (case,) = select_mux_cases(["a_request_that_does_not_come"])
    result = await _run(case, long_wait=True)
    assert (result.outcome == "passed") is passes, result.problems


def _limits(**limits: Any) -> Change:
    """Another bound than the contract's."""

    def made(**given: Any) -> TableLimits:
        return TableLimits(**(given | limits))

    return lambda patch: patch.setattr(server, "TableLimits", made)


def _replaced(owner: Any, name: str, value: Any) -> Change:
    return lambda patch: patch.setattr(owner, name, value)


def _heard(change: Callable[[list[mux_pb2.Frame]], Sequence[mux_pb2.Frame]]) -> Change:
    """Changes the frames of each batch that the server sends."""
    take = Exchange._take

    async def tampered(self: Exchange, batch: mux_pb2.ExchangeResponse) -> None:
        await take(self, mux_pb2.ExchangeResponse(frames=change(list(batch.frames))))

    return _replaced(Exchange, "_take", tampered)


def _sent(change: Callable[[mux_pb2.Frame], None]) -> Change:
    """Changes the frames that the server gets, as if it took them for others."""
    send_bytes = Exchange.send_bytes

    async def tampered(self: Exchange, data: bytes, frames: Any = ()) -> None:
        batch = mux_pb2.ExchangeRequest.FromString(data)
        for frame in batch.frames:
            change(frame)
        await send_bytes(self, batch.SerializeToString(), frames)

    return _replaced(Exchange, "send_bytes", tampered)


def _without(kind: str, call: int = 1) -> Change:
    return _heard(
        lambda frames: [one for one in frames if one.call != call or one.WhichOneof("kind") != kind]
    )


def _twice(kind: str) -> Change:
    return _heard(
        lambda frames: [
            one for frame in frames for one in (frame,) * (1 + (frame.WhichOneof("kind") == kind))
        ]
    )


def _changed(change: Callable[[mux_pb2.Frame], None]) -> Change:
    def each(frames: list[mux_pb2.Frame]) -> list[mux_pb2.Frame]:
        for frame in frames:
            change(frame)
        return frames

    return _heard(each)


def _other_answer(frame: mux_pb2.Frame) -> None:
    if frame.HasField("message"):
        frame.message.payload += b"\x18\x01"


def _unfinished(frame: mux_pb2.Frame) -> None:
    if frame.HasField("message"):
        frame.message.more = True


def _bare(frame: mux_pb2.Frame) -> None:
    if frame.HasField("end"):
        del frame.end.status.details[:]


def _more_credit(frame: mux_pb2.Frame) -> None:
    if frame.HasField("begin"):
        frame.begin.credit += 5


def _forgiving() -> Change:
    """Breaks nothing off."""
    receive = exchange.Exchange._receive

    def tolerant(self: exchange.Exchange, data: bytes) -> None:
        with suppress(Violation):
            receive(self, data)

    return _replaced(exchange.Exchange, "_receive", tolerant)


def _unreadable_for_nothing() -> Change:
    """Takes bytes that are no batch for a batch that says nothing."""

    def tolerant(data: bytes) -> Any:
        try:
            return unpack(data)
        except ValueError:
            return unpack(mux_pb2.ExchangeRequest(frames=[_CREDIT]).SerializeToString())

    return _replaced(exchange, "unpack", tolerant)


_CREDIT = mux_pb2.Frame(call=99, credit=mux_pb2.Credit(messages=1))


def _known_fields_only() -> Change:
    def strict(data: bytes) -> Any:
        batch = unpack(data)
        if any(len(UnknownFieldSet(one)) for one in (batch, *batch.frames)):
            raise ValueError("a field that nobody knows")
        return batch

    return _replaced(exchange, "unpack", strict)


def _strict_about_late_frames() -> Change:
    receive = CallTable.receive

    def strict(self: CallTable, frame: mux_pb2.Frame) -> TableEvent | None:
        late = frame.HasField("cancel") or frame.HasField("credit")
        if late and frame.call not in self._incoming:
            raise Violation("not open")
        return receive(self, frame)

    return _replaced(CallTable, "receive", strict)


def _no_empty_pieces() -> Change:
    take = CallTable._request_chunk

    def strict(self: CallTable, number: int, chunk: mux_pb2.Chunk) -> TableEvent | None:
        if not chunk.payload:
            raise Violation("an empty chunk")
        return take(self, number, chunk)

    return _replaced(CallTable, "_request_chunk", strict)


def _gone_with_the_last_word() -> Change:
    """Ends the stream, and what runs, once its client has said all."""
    read = stream.GrpcStream.read

    async def cut(self: stream.GrpcStream) -> bytes | None:
        data = await read(self)
        if data is None:
            raise self._gone("that was all")
        return data

    return _replaced(stream.GrpcStream, "read", cut)


class _Bare(EndStatus):
    """Without the typed status."""

    async def send(self, rpc: Any) -> None:
        await rpc.abort(self.code, "broken")


def _full(limit: int) -> MeshError:
    return MeshError(_QUEUE_FULL, "full")


_QUEUE_FULL = queue_full(1).reason


def _deaf_to_cancels() -> Change:
    return _replaced(mux_serving.CallServer, "_cancelled", _nothing)


def _cut_by_go_away() -> Change:
    handle = exchange.Exchange._handle

    def cut(self: exchange.Exchange, event: TableEvent) -> None:
        if isinstance(event, PeerLeaves):
            self.cut()
        else:
            handle(self, event)

    return _replaced(exchange.Exchange, "_handle", cut)


def _nothing(*_: Any) -> None:
    """Does nothing."""


@pytest.mark.parametrize(
    ("case", "defect"),
    [
        ("offers_itself", _replaced(servicer, "VERSION", "2")),
        ("a_unary_call", _without("message")),
        ("a_unary_call", _without("end")),
        ("a_unary_call", _twice("message")),
        ("a_unary_call", _twice("end")),
        ("a_unary_call", _changed(_other_answer)),
        ("a_unary_call", _changed(_unfinished)),
        ("many_calls", _without("message", call=5)),
        ("a_large_request", _limits(message_bytes=2 << 20)),
        ("pieces_take_turns", _limits(message_bytes=2 << 20)),
        ("pieces_of_any_size", _no_empty_pieces()),
        ("unknown_fields", _known_fields_only()),
        ("metadata_of_a_call", _limits(metadata_bytes=10)),
        ("the_same_checks", _changed(_bare)),
        ("cannot_be_decoded", _changed(_bare)),
        ("a_method_that_is_not_there", _replaced(mux_serving, "not_offered", _full)),
        ("too_large_a_message", _limits(message_bytes=128 << 20)),
        ("too_much_metadata", _limits(metadata_bytes=1 << 20)),
        ("a_request_that_is_late", _replaced(mux_serving.CallServer, "_overdue", _nothing)),
        ("too_many_calls", _limits(calls=40_000)),
        ("too_many_calls", _replaced(table, "queue_full", _full)),
        ("keeps_deadlines", _replaced(mux_serving, "_timeout_s", lambda call: 3600.0)),
        ("cancels", _replaced(mux_serving.CallServer, "_cancelled", _nothing)),
        (
            "cancels_in_the_middle_of_a_request",
            _replaced(mux_serving.CallServer, "_cancelled", _nothing),
        ),
        ("what_crosses_an_end", _strict_about_late_frames()),
        ("keeps_credit", _sent(_more_credit)),
        ("finishes", _replaced(exchange.Exchange, "_close_when_idle", _nothing)),
        ("answers_who_has_said_all", _gone_with_the_last_word()),
        ("the_callers_go_away", _cut_by_go_away()),
        ("the_servers_go_away", _replaced(exchange.Exchange, "leave", _nothing)),
        ("breaks_on_bytes_that_are_no_batch", _unreadable_for_nothing()),
        ("breaks_on_an_empty_frame", _replaced(servicer, "EndStatus", _Bare)),
        *(
            (case.name, _forgiving())
            for case in load_mux_cases()
            if case.name.startswith("breaks_on") and "bytes" not in case.name
        ),
    ],
)
async def test_a_server_with_a_defect_fails(
    case: str, defect: Change, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Defects are mostly something that does not come.
    monkeypatch.setattr(runner, "_HEAR_S", 3.0)
    defect(monkeypatch)
    result = await _run(select_mux_cases([case])[0])
    assert result.outcome == "failed"


def test_every_case_can_fail() -> None:
    marks: Any = test_a_server_with_a_defect_fails.pytestmark  # type: ignore[attr-defined]  # pytest's
    failing = {case for mark in marks for case, _ in mark.args[1]}
    others = {"a_request_that_does_not_come"}  # has a test of its own
    assert failing | others == {case.name for case in load_mux_cases()}


def test_frames_of_a_stream_of_responses() -> None:
    calls = Calls()
    begin = mux_pb2.Frame(call=1, begin=mux_pb2.Begin(credit=1))
    calls.sent(begin, streams=True)

    def came(**kind: Any) -> list[str]:
        batch = mux_pb2.ExchangeResponse(frames=[mux_pb2.Frame(call=1, **kind)])
        return calls.batch(batch)

    large = mux_pb2.Message(payload=b"x" * (1 << 20), more=True)
    assert came(message=large) == []
    assert came(message=mux_pb2.Message()) == [
        "call 1, message: it came before the last chunk of the one before"
    ]
    assert came(chunk=mux_pb2.Chunk(payload=b"x" * ((1 << 20) + 1))) == [
        "call 1, chunk: a payload of more than 1 MiB"
    ]
    assert came(chunk=mux_pb2.Chunk(last=True)) == []
    assert came(chunk=mux_pb2.Chunk(last=True)) == ["call 1, chunk: none was due"]
    assert came(message=mux_pb2.Message()) == ["call 1, message: there was no credit for it"]
    assert came(credit=mux_pb2.Credit()) == ["call 1, credit: only the caller sends this"]
    assert came(end=mux_pb2.End()) == []
    assert came(end=mux_pb2.End()) == ["call 1, end: the call is not open"]
    assert calls.batch(mux_pb2.ExchangeResponse()) == ["an empty batch came"]
    own = mux_pb2.Frame(call=3, begin=mux_pb2.Begin())
    assert calls.batch(mux_pb2.ExchangeResponse(frames=[own])) == [
        "the server began a call with the number 3"
    ]


async def test_a_server_that_serves_none_of_the_contract() -> None:
    async with AddressPath("127.0.0.1:9") as path, MuxTarget(path) as target:
        with pytest.raises(TargetError, match="serves none of"):
            await run_mux_suite(target)


async def test_a_profile_names_calls() -> None:
    async with _server() as (target, _, _):
        target._profile = load_profile(PROFILES / "mux_of_a_model.yaml")
        found = await target.variables()
    assert found["stream"]["method"] == "gymmesh.model.v1.ModelService/StreamResponse"
    request = model_pb2.CreateResponseRequest.FromString(b64decode(found["pending"]["payload"]))
    assert request.params.input[0].message.text == "Be slow."


async def test_a_profile_with_a_call_that_there_is_not() -> None:
    async with _server() as (target, _, _):
        target._profile = {"stream": {"call": "model.Sing"}}
        with pytest.raises(TargetError, match="`stream` is a `call`"):
            await target.variables()
