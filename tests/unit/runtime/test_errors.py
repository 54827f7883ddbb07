"""Errors: the table of codes, and the way to the wire and back."""

from __future__ import annotations

import asyncio
import logging
import math
import re
from pathlib import Path

import grpc
import pytest
from google.protobuf import any_pb2, duration_pb2
from google.rpc import error_details_pb2, status_pb2
from hypothesis import given
from hypothesis import strategies as st

from gymmesh.errors.v1 import errors_pb2
from gymmesh.rollout.v1 import rollout_pb2
from gymmesh_runtime.errors import (
    CODE_OF_REASON,
    DOMAIN,
    MeshError,
    from_rpc_error,
    from_status,
    reason_name,
    reason_of,
    repeats,
    to_status,
    unforeseen,
)
from gymmesh_runtime.wire.library_log import quiet

PROTO = Path(__file__).parents[3] / "proto/gymmesh/errors/v1/errors.proto"
Reason = errors_pb2.ErrorReason
REASONS = [value for value in Reason.values() if value]

# What UTF-8 can say; cut-offs are tested apart.
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=100)


def codes_in_contract() -> dict[str, str]:
    """The status code with which the comment of each reason begins."""
    found = {}
    comment: list[str] = []
    for line in PROTO.read_text().splitlines():
        text = line.strip()
        if text.startswith("//"):
            comment.append(text.removeprefix("//").strip())
            continue
        value = re.fullmatch(r"(ERROR_REASON_\w+) = (\d+) \[\(rule\) = {", text)
        if value:
            found[value[1]] = comment[0].partition(".")[0]
        comment = []
    return found


def test_every_reason_has_the_code_that_its_comment_names() -> None:
    table = {Reason.Name(reason): code.name for reason, code in CODE_OF_REASON.items()}  # type: ignore[arg-type]  # keys are reasons
    assert table == codes_in_contract()
    assert sorted(CODE_OF_REASON) == sorted(REASONS)


@pytest.mark.parametrize("reason", REASONS)
def test_every_reason_goes_by_its_name(reason: Reason.ValueType) -> None:
    error = MeshError(reason, "words")
    info = error_details_pb2.ErrorInfo()
    (detail,) = to_status(error).details
    assert detail.Unpack(info)
    assert info.domain == DOMAIN
    assert f"ERROR_REASON_{info.reason}" == Reason.Name(reason)
    assert error.code is CODE_OF_REASON[reason]
    assert str(error) == f"{info.reason}: words"


@given(
    reason=st.sampled_from(REASONS),
    message=texts,
    metadata=st.dictionaries(texts, texts, max_size=5),
    retry_after_s=st.none() | st.floats(0, 86_400),
)
def test_round_trip(
    reason: Reason.ValueType, message: str, metadata: dict[str, str], retry_after_s: float | None
) -> None:
    error = MeshError(reason, message, metadata=metadata, retry_after_s=retry_after_s)
    sent = status_pb2.Status.FromString(to_status(error).SerializeToString())
    back = from_status(sent)
    assert (back.reason, back.code) == (reason, CODE_OF_REASON[reason])
    assert (back.message, back.metadata) == (message, metadata)
    if retry_after_s is None:
        assert back.retry_after_s is None
    else:
        assert back.retry_after_s == pytest.approx(retry_after_s, abs=1e-9)
    assert to_status(back) == sent


@given(message=st.text(), key=st.text(), value=st.text())
def test_whatever_the_words_an_error_can_be_sent(message: str, key: str, value: str) -> None:
    error = MeshError(Reason.ERROR_REASON_TASK_INVALID, message * 50, metadata={key: value * 50})
    sent = to_status(error).SerializeToString()
    assert len(sent) < 8 * 1024
    assert from_status(status_pb2.Status.FromString(sent)).reason == error.reason


@pytest.mark.parametrize(
    ("given_s", "sent_s"), [(math.inf, 86_400.0), (-3.0, 0.0), (1e18, 86_400.0), (math.nan, None)]
)
def test_odd_retry_times_are_brought_into_bounds(given_s: float, sent_s: float | None) -> None:
    error = MeshError(Reason.ERROR_REASON_MODEL_RATE_LIMITED, "slow down", retry_after_s=given_s)
    assert from_status(to_status(error)).retry_after_s == sent_s


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (grpc.StatusCode.UNAVAILABLE, Reason.ERROR_REASON_PEER_UNAVAILABLE),
        (grpc.StatusCode.CANCELLED, Reason.ERROR_REASON_PEER_UNAVAILABLE),
        (grpc.StatusCode.DEADLINE_EXCEEDED, Reason.ERROR_REASON_DEADLINE_PASSED),
        (grpc.StatusCode.UNIMPLEMENTED, Reason.ERROR_REASON_NOT_OFFERED),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, Reason.ERROR_REASON_QUEUE_FULL),
        (grpc.StatusCode.DATA_LOSS, Reason.ERROR_REASON_INTERNAL_FAULT),
    ],
)
def test_a_foreign_status_goes_by_its_code(code: grpc.StatusCode, reason: Reason.ValueType) -> None:
    foreign = status_pb2.Status(code=code.value[0], message="upstream connect error")
    foreign.details.add().Pack(duration_pb2.Duration(seconds=1))
    other = error_details_pb2.ErrorInfo(reason="API_DISABLED", domain="googleapis.com")
    foreign.details.add().Pack(other)
    foreign.details.append(any_pb2.Any(type_url="type.googleapis.com/x.Y", value=b"\xff"))
    error = from_status(foreign)
    assert (error.reason, error.code, error.metadata) == (reason, code, {})
    assert error.message == "upstream connect error"


def test_a_reason_of_a_later_contract_goes_by_its_code() -> None:
    status = status_pb2.Status(code=grpc.StatusCode.UNAVAILABLE.value[0])
    info = error_details_pb2.ErrorInfo(
        reason="TEA_BREAK", domain=DOMAIN, metadata={"until": "16:00"}
    )
    status.details.add().Pack(info)
    error = from_status(status)
    assert error.reason == Reason.ERROR_REASON_PEER_UNAVAILABLE
    assert error.metadata == {"until": "16:00"}


def test_a_detail_that_cannot_be_read_says_nothing() -> None:
    status = to_status(MeshError(Reason.ERROR_REASON_DRAINING, "later"))
    status.details[0].value = b"\xff\xff"
    error = from_status(status)
    assert error.reason == Reason.ERROR_REASON_PEER_UNAVAILABLE  # goes by its code
    assert error.message == "later"


def test_a_code_that_is_none_does_not_fail() -> None:
    assert from_status(status_pb2.Status(code=4711)).code is grpc.StatusCode.UNKNOWN


def _rpc_error(code: grpc.StatusCode, trailer: bytes) -> grpc.aio.AioRpcError:
    trailers = grpc.aio.Metadata(("grpc-status-details-bin", trailer))
    return grpc.aio.AioRpcError(code, grpc.aio.Metadata(), trailers, details="plain words")


@pytest.mark.parametrize(
    "trailer",
    [
        b"\xff\xff not a status",
        status_pb2.Status(code=0, message="fine").SerializeToString(),
        status_pb2.Status(code=5, message="another code").SerializeToString(),
    ],
)
def test_a_broken_status_in_the_trailers_is_ignored(trailer: bytes) -> None:
    exc = _rpc_error(grpc.StatusCode.UNAVAILABLE, trailer)
    error = from_rpc_error(exc, "10.0.0.1:1", "a.B/C")
    assert error.reason == Reason.ERROR_REASON_PEER_UNAVAILABLE
    assert error.code is grpc.StatusCode.UNAVAILABLE
    assert error.message == "10.0.0.1:1: plain words"
    assert error.metadata == {"address": "10.0.0.1:1", "method": "a.B/C"}


@pytest.mark.parametrize(
    ("details", "message"),
    [
        (
            "failed to connect to all addresses; last error: UNKNOWN: ipv4:127.0.0.1:1: "
            "Failed to connect to remote host: Connection refused",
            "127.0.0.1:1: failed to connect: Connection refused",
        ),
        (
            "failed to connect to all addresses; last error: UNAVAILABLE: ipv6:%5B::1%5D:1: "
            "Socket closed",
            "127.0.0.1:1: failed to connect to [::1]:1: Socket closed",
        ),
        (
            "failed to connect to all addresses; last error: INTERNAL: a fault",
            "127.0.0.1:1: failed to connect: a fault",
        ),
        (
            "errors resolving a.b:1: [field:hostname lookup error:address lookup failed for "
            "a.b:1: Domain name not found]",
            "127.0.0.1:1: the host name has no address: Domain name not found",
        ),
    ],
)
def test_a_failure_to_connect_is_one_plain_sentence(details: str, message: str) -> None:
    nothing = grpc.aio.Metadata()
    exc = grpc.aio.AioRpcError(grpc.StatusCode.UNAVAILABLE, nothing, nothing, details=details)
    assert from_rpc_error(exc, "127.0.0.1:1", "a.B/C").message == message


def test_a_status_that_grpc_lost_is_a_connection_that_broke() -> None:
    nothing = grpc.aio.Metadata()
    code, words = grpc.StatusCode.INTERNAL, "Internal error from Core"
    exc = grpc.aio.AioRpcError(code, nothing, nothing, details=words)
    assert from_rpc_error(exc, "10.0.0.1:1", "a.B/C").reason_name == "PEER_UNAVAILABLE"
    exc = grpc.aio.AioRpcError(code, nothing, nothing, details="a fault of its own")
    assert from_rpc_error(exc, "10.0.0.1:1", "a.B/C").reason_name == "INTERNAL_FAULT"


def test_faults_of_code_repeat_and_what_the_network_does_may_not() -> None:
    names = {name for name in map(reason_name, REASONS) if repeats(reason_of(name))}
    assert names == {"INTERNAL_FAULT", "ENVIRONMENT_FAULT", "VERIFIER_FAULT", "AGENT_FAULT"}


@pytest.mark.parametrize("name", ["", "UNSPECIFIED", "OF_A_LATER_CONTRACT", "\ud800", "a\0b"])
def test_a_name_that_is_no_reason_has_none(name: str) -> None:
    assert reason_of(name) is None
    assert not repeats(reason_of(name))


def test_an_unforeseen_exception_keeps_its_words_to_itself() -> None:
    words = "token sk-123 refused"
    error = unforeseen(RuntimeError(words), "x.Y/Z")
    sent = to_status(error)
    assert words.encode() not in sent.SerializeToString()
    assert "sk-123" not in str(error) + repr(error.metadata)
    assert to_status(RuntimeError(words)).code == grpc.StatusCode.INTERNAL.value[0]
    assert words.encode() not in to_status(RuntimeError(words)).SerializeToString()


def test_the_log_of_grpc_keeps_all_but_what_its_callers_do(
    caplog: pytest.LogCaptureFixture,
) -> None:
    quiet()
    log = logging.getLogger("grpc._cython.cygrpc")
    for error in (asyncio.CancelledError(), ValueError("a fault")):
        try:
            raise error
        except BaseException:
            log.exception("not handled")
    for words in ("Invalid encoding on %s", "not handled"):
        try:
            b"Bearer \xff".decode()
        except UnicodeDecodeError:
            log.exception(words)
    for words in ('Failed "execute_batch": (<grpc…>,)', "Failed grpc_call_start_batch: 3"):
        try:
            raise grpc.aio.InternalError(words)
        except grpc.aio.InternalError:
            log.exception("ExecuteBatchError raised in core by servicer method [/a]")
    log.error("without a traceback")
    kept = [record.exc_info[1] if record.exc_info else None for record in caplog.records]
    assert [type(one) for one in kept] == [
        ValueError,
        UnicodeDecodeError,
        grpc.aio.InternalError,
        type(None),
    ]
    assert "start_batch" in str(kept[2])


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        # How C-core, Go, Java, Node, .NET and Rust say it.
        ("CLIENT: Received message larger than max (5242880 vs. 4194304)", "MESSAGE_TOO_LARGE"),
        ("grpc: trying to send message larger than max (9 vs. 4)", "MESSAGE_TOO_LARGE"),
        ("gRPC message exceeds maximum size 4194304: 5242880", "MESSAGE_TOO_LARGE"),
        ("Attempted to send message with a size larger than 4194304", "MESSAGE_TOO_LARGE"),
        ("Received message exceeds the maximum configured message size.", "MESSAGE_TOO_LARGE"),
        ("Error, decoded message length too large: found 9 bytes", "MESSAGE_TOO_LARGE"),
        # What they say besides with this code.
        ("received initial metadata size exceeds hard limit", "QUEUE_FULL"),
        ("too many concurrent streams", "QUEUE_FULL"),
        ("", "QUEUE_FULL"),
    ],
)
def test_a_bare_resource_exhausted_goes_by_its_text(text: str, reason: str) -> None:
    code = grpc.StatusCode.RESOURCE_EXHAUSTED
    assert from_status(status_pb2.Status(code=code.value[0], message=text)).reason_name == reason


def test_what_models_consumed_goes_along() -> None:
    usage = rollout_pb2.ModelCallUsage(model="judge", calls=2, input_tokens=30, output_tokens=4)
    error = MeshError(Reason.ERROR_REASON_VERIFIER_FAULT, "no verdict", usage=[usage])
    status = to_status(error)
    assert len(status.details) == 2
    found = errors_pb2.ModelUsage()
    assert status.details[1].Unpack(found)
    assert list(found.usage) == list(from_status(status).usage) == [usage]
    assert from_status(status).metadata == {}
