"""The laws of one message and of a stream of them.

Every answer that a suite gets goes through the laws that concern it, whatever the case expects
beside them.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from typing import Final

import grpc
from google.rpc import status_pb2

from gymmesh.agent.v1 import agent_pb2
from gymmesh.errors.v1 import errors_pb2
from gymmesh.model.v1 import model_pb2
from gymmesh.responses.v1 import responses_pb2
from gymmesh.rollout.v1 import rollout_pb2
from gymmesh_conformance.errors import DOMAIN, CallError, from_status

_C = grpc.StatusCode

_CODES: Final = {code.value[0]: code for code in _C}
#: The status code of each reason, as the options of errors.proto say.
CODE_OF_REASON: Final[dict[str, grpc.StatusCode]] = {
    value.name.removeprefix("ERROR_REASON_"): _CODES[
        value.GetOptions().Extensions[errors_pb2.rule].code
    ]
    for value in errors_pb2.ErrorReason.DESCRIPTOR.values[1:]
}

#: gRPC libraries make these errors too, without a status: the caller's own at its deadline, and a
#: server's for a method of a later contract, where no reason may be expected.
_MADE_BY_LIBRARIES: Final = (_C.DEADLINE_EXCEEDED, _C.CANCELLED, _C.UNIMPLEMENTED)


def error_problems(error: CallError) -> list[str]:
    """An error carries exactly one ErrorInfo of domain `gymmesh`, whose reason fits the code."""
    if error.status is None:
        if error.code in _MADE_BY_LIBRARIES:
            return []
        return [f"the error ({error}) came without a google.rpc.Status in its trailers"]
    problems = []
    if error.status.code != error.code.value[0]:
        problems.append(f"the status says code {error.status.code}, the call {error.code.name}")
    if len(error.infos) != 1:
        problems.append(f"the error ({error}) has {len(error.infos)} ErrorInfo, not one")
    for info in error.infos:
        code = CODE_OF_REASON.get(info.reason)
        if info.domain != DOMAIN:
            problems.append(f"the ErrorInfo's domain is {info.domain!r}, not {DOMAIN!r}")
        if code is None:
            problems.append(f"the contract has no reason {info.reason!r}")
        elif code is not error.code:
            problems.append(f"{info.reason} comes with {code.name}, not with {error.code.name}")
    return [*problems, *_usage_problems(error.status)]


def _usage_problems(status: status_pb2.Status) -> list[str]:
    """ModelUsage comes after the ErrorInfo, once, with what was consumed."""
    kinds = [detail.type_url.rpartition("/")[2] for detail in status.details]
    name = errors_pb2.ModelUsage.DESCRIPTOR.full_name
    problems = []
    if kinds.count(name) > 1 or name in kinds[:1]:
        problems.append(f"the details are {kinds}: ModelUsage comes once, after the ErrorInfo")
    for detail in status.details:
        usage = errors_pb2.ModelUsage()
        if detail.Unpack(usage):
            problems += [f"ModelUsage: {one}" for one in usage_problems(usage.usage)]
    return problems


def usage_problems(entries: Iterable[rollout_pb2.ModelCallUsage]) -> list[str]:
    """What models consumed: each is named, once, and was called."""
    found = list(entries)
    names = [one.model for one in found]
    problems = [f"{name!r} is there twice" for name in {*names} if names.count(name) > 1]
    return problems + [
        f"an entry without a model or a call: {one.model!r}, {one.calls} calls"
        for one in found
        if not one.model or not one.calls
    ]


def verification_problems(verdict: rollout_pb2.Verification) -> list[str]:
    """A reward exactly when VERIFIED, all numbers finite; PENDING and SKIPPED say why."""
    known = rollout_pb2.VerificationStatus.Name
    if verdict.status not in (1, 2, 3):
        return [f"the verification has status {verdict.status}"]
    problems = []
    name = known(verdict.status)
    verified = verdict.status == rollout_pb2.VERIFICATION_STATUS_VERIFIED
    if verified != verdict.HasField("reward"):
        problems.append(f"status {name}, but the reward is {'not ' if verified else ''}set")
    if not math.isfinite(verdict.reward):
        problems.append(f"the reward is {verdict.reward}")
    for part in verdict.components:
        if not part.name or not math.isfinite(part.value):
            problems.append(f"the component {part.name!r} is {part.value}")
    if bool(verdict.reason) == verified:
        problems.append(f"status {name}, but `reason` is {verdict.reason!r}")
    if not verdict.verifier and verified:
        problems.append("the verdict does not name its verifier")
    if verdict.evidence_json and not _is_object(verdict.evidence_json):
        problems.append("evidence_json is not a JSON object")
    return problems


def failure_problems(failure: rollout_pb2.Failure) -> list[str]:
    """A failure names one boundary and carries an error as a call would."""
    problems = []
    if failure.boundary == rollout_pb2.BOUNDARY_UNSPECIFIED:
        problems.append("the failure names no boundary")
    if failure.status.code == 0:
        problems.append("the failure's status has code OK")
    else:
        problems += error_problems(from_status(failure.status))
    return problems


def answer_stream_problems(frames: Sequence[model_pb2.StreamResponseResponse]) -> list[str]:
    """Any number of deltas, then exactly one `completed`."""
    kinds = [frame.WhichOneof("frame") for frame in frames]
    if kinds.count("completed") != 1 or kinds[-1] != "completed" or None in kinds:
        return [f"a streamed answer is deltas and then one `completed`, not {kinds}"]
    return []


def stream_problems(
    events: Sequence[rollout_pb2.RolloutEvent], request: agent_pb2.RunRolloutRequest
) -> list[str]:
    """The stream law over a whole attempt, and what each event must fit."""
    if not events:
        return ["the stream ended without an event"]
    problems = _order_problems(events)
    for place, event in enumerate(events, 1):
        kind = event.WhichOneof("event")
        if event.sequence != place:
            problems.append(f"event {place} ({kind}) has sequence {event.sequence}")
        if (event.rollout_id, event.attempt) != (request.rollout_id, request.attempt or 1):
            problems.append(f"event {place} is of {event.rollout_id!r} attempt {event.attempt}")
        if event.record_time_unix_nano == 0:
            problems.append(f"event {place} ({kind}) has no record time")
        if kind == "output_delta" and not (event.ignorable and request.options.deltas):
            problems.append(f"event {place}: a delta that is not ignorable or not asked for")
    return problems + _reference_problems(events) + _end_problems(events)


def _order_problems(events: Sequence[rollout_pb2.RolloutEvent]) -> list[str]:
    kinds = [event.WhichOneof("event") for event in events]
    problems = []
    if kinds[0] != "started" or kinds.count("started") != 1:
        problems.append(f"`started` is the first event and comes once; got {kinds}")
    terminal = [kind for kind in kinds if kind in ("completed", "failed")]
    if len(terminal) != 1 or kinds[-1] not in ("completed", "failed"):
        problems.append(f"one terminal event ends the stream; got {kinds}")
    if kinds.count("verified") > 1:
        problems.append("there is more than one `verified`")
    if kinds[-1] == "completed" and "verified" not in kinds:
        problems.append("`completed` without `verified`, which is sent also for no verdict")
    return problems


def _reference_problems(events: Sequence[rollout_pb2.RolloutEvent]) -> list[str]:
    """Events name only calls that earlier events made known, and answer each call once."""
    problems: list[str] = []
    calls: dict[str, set[str]] = {}
    answered: set[tuple[str, str]] = set()
    for event in events:
        where = f"event {event.sequence}"
        if event.HasField("model_call_completed"):
            call = event.model_call_completed
            if not call.call_id or call.call_id in calls:
                problems.append(f"{where}: the model call's id {call.call_id!r} is not unique")
            if call.parent_call_id and call.parent_call_id not in calls:
                problems.append(f"{where}: the parent call {call.parent_call_id!r} is not known")
            calls[call.call_id] = {one.call_id for one in function_calls(call.response)}
        elif event.HasField("tool_call_started"):
            begun = event.tool_call_started
            if begun.call_id not in calls.get(begun.model_call_id, ()):
                problems.append(f"{where}: no model call made the tool call {begun.call_id!r}")
            if (begun.model_call_id, begun.call_id) in answered:
                problems.append(f"{where}: {begun.call_id!r} starts after its answer")
        elif event.HasField("tool_call_completed"):
            done = event.tool_call_completed
            problems += _tool_answer_problems(where, done, calls, answered)
        elif event.HasField("turn_completed") and event.turn_completed.model_call_id not in calls:
            problems.append(f"{where}: the turn answers no known model call")
    return problems


def _tool_answer_problems(
    where: str,
    done: rollout_pb2.ToolCallCompleted,
    calls: dict[str, set[str]],
    answered: set[tuple[str, str]],
) -> list[str]:
    problems = []
    key = (done.model_call_id, done.call_id)
    if done.call_id not in calls.get(done.model_call_id, ()):
        problems.append(f"{where}: no model call made the tool call {done.call_id!r}")
    if key in answered:
        problems.append(f"{where}: the tool call {done.call_id!r} is answered twice")
    answered.add(key)
    if done.output.function_call_output.call_id != done.call_id:
        problems.append(f"{where}: the output item does not answer {done.call_id!r}")
    if done.outcome == rollout_pb2.TOOL_OUTCOME_UNSPECIFIED:
        problems.append(f"{where}: the tool call has no outcome")
    return problems


def _end_problems(events: Sequence[rollout_pb2.RolloutEvent]) -> list[str]:
    last = events[-1]
    problems: list[str] = []
    for event in events:
        if event.HasField("verified"):
            problems += verification_problems(event.verified.verification)
    if last.HasField("failed"):
        problems += failure_problems(last.failed.failure)
        end: rollout_pb2.Completed | rollout_pb2.Failed = last.failed
    elif last.HasField("completed"):
        end = last.completed
        if last.completed.stop_reason == rollout_pb2.STOP_REASON_UNSPECIFIED:
            problems.append("`completed` has no stop reason")
    else:
        return problems
    if end.events != last.sequence:
        problems.append(f"the last event counts {end.events} events, it is number {last.sequence}")
    return problems + _count_problems(events, end.counts)


def _count_problems(
    events: Sequence[rollout_pb2.RolloutEvent], counts: rollout_pb2.Counts
) -> list[str]:
    kinds = [event.WhichOneof("event") for event in events]
    usages = [event.model_call_completed.response.usage for event in events]
    seen = {
        "model_calls": kinds.count("model_call_completed"),
        "tool_calls": kinds.count("tool_call_completed"),
        "turns": kinds.count("turn_completed"),
        "input_tokens": sum(usage.input_tokens for usage in usages),
        "output_tokens": sum(usage.output_tokens for usage in usages),
    }
    return [
        f"counts.{name} is {getattr(counts, name)}, the events say {value}"
        for name, value in seen.items()
        if getattr(counts, name) != value
    ]


def conversation_problems(
    events: Sequence[rollout_pb2.RolloutEvent],
    seen: Sequence[Sequence[responses_pb2.Item]],
    transcript: Sequence[responses_pb2.Item] | None,
) -> list[str]:
    """The conversation rule: what the events say a call saw is what the model was sent.

    `seen` is the whole input of each answered model call in the order of the answers, as the
    model service received it; `transcript` what the verifier was given, None when it was not
    asked. The transcript is compared where the calls form one conversation.
    """
    calls = [one.model_call_completed for one in events if one.HasField("model_call_completed")]
    if len(calls) != len(seen):
        return [f"{len(calls)} model calls in the events, {len(seen)} answered by the model"]
    problems = []
    for call, items in zip(calls, seen, strict=True):
        base = conversation(events, call.parent_call_id, detached=call.detached)
        if [*base, *call.context_items] != list(items):
            problems.append(
                f"the call {call.call_id!r} saw {len(items)} items {_kinds(items)}, "
                f"the events say {_kinds([*base, *call.context_items])}"
            )
    if transcript is None or not _is_one_line(calls):
        return problems
    first = len(events[0].started.items)
    told = conversation(events, calls[-1].call_id if calls else "", detached=False)[first:]
    if told != list(transcript):
        problems.append(
            f"the verifier was given {_kinds(transcript)}, the events say {_kinds(told)}"
        )
    return problems


def conversation(
    events: Sequence[rollout_pb2.RolloutEvent], call_id: str, *, detached: bool
) -> list[responses_pb2.Item]:
    """The conversation after a call (empty: before the first), by the rule of rollout.proto."""
    if detached:
        return []
    if not call_id:
        return list(events[0].started.items)
    call = next(
        event.model_call_completed
        for event in events
        if event.model_call_completed.call_id == call_id and event.HasField("model_call_completed")
    )
    items = conversation(events, call.parent_call_id, detached=call.detached)
    outputs = {
        event.tool_call_completed.call_id: event.tool_call_completed.output
        for event in events
        if event.tool_call_completed.model_call_id == call_id
    }
    in_order = [
        outputs[one.call_id] for one in function_calls(call.response) if one.call_id in outputs
    ]
    turns = [
        item
        for event in events
        if event.turn_completed.model_call_id == call_id
        for item in event.turn_completed.items
    ]
    return [*items, *call.context_items, *call.response.output, *in_order, *turns]


def function_calls(response: responses_pb2.Response) -> list[responses_pb2.FunctionCall]:
    """The function calls of an answer in order."""
    return [item.function_call for item in response.output if item.HasField("function_call")]


def _is_one_line(calls: Sequence[rollout_pb2.ModelCallCompleted]) -> bool:
    before = ""
    for call in calls:
        if call.detached or call.parent_call_id != before:
            return False
        before = call.call_id
    return True


def _kinds(items: Sequence[responses_pb2.Item]) -> list[str]:
    return [item.WhichOneof("kind") or "nothing" for item in items]


def _is_object(data: bytes) -> bool:
    try:
        return isinstance(json.loads(data), dict)
    except ValueError:
        return False
