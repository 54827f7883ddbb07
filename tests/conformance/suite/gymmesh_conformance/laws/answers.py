"""Which laws an RPC's answer goes through. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

from google.protobuf.message import Message

from gymmesh.rollout.v1 import rollout_pb2
from gymmesh_conformance.laws import sandboxes
from gymmesh_conformance.laws.messages import (
    answer_stream_problems,
    stream_problems,
    verification_problems,
)

_Check = Callable[[Any, Sequence[Any]], list[str]]


def answer_problems(rpc: str, request: Message, responses: Sequence[Message]) -> list[str]:
    """The problems of an RPC's answer; one response, or all of a stream that ended well."""
    check = _CHECKS.get(rpc)
    return check(request, responses) if check else []


def _created_session(request: Any, responses: Sequence[Any]) -> list[str]:
    (answer,) = responses
    problems = _unset(answer, "session_id", "instance_id", "environment_version")
    if request.HasField("seed") and answer.seed != request.seed:
        problems.append(f"the seed {request.seed} was asked for, {answer.seed} is in force")
    return problems


def _called_tool(request: Any, responses: Sequence[Any]) -> list[str]:
    (answer,) = responses
    problems = []
    if answer.WhichOneof("output") is None:
        problems.append("the tool's answer has no output for the model")
    if answer.outcome == rollout_pb2.TOOL_OUTCOME_UNSPECIFIED:
        problems.append("the tool's answer has no outcome")
    elif answer.outcome != rollout_pb2.TOOL_OUTCOME_OK and not (answer.text or answer.parts.parts):
        problems.append("the model is told nothing about what it did wrong")
    return problems


def _verified(request: Any, responses: Sequence[Any]) -> list[str]:
    return verification_problems(responses[0].verification)


def _verified_group(request: Any, responses: Sequence[Any]) -> list[str]:
    verdicts = responses[0].verdicts
    problems = [
        problem for verdict in verdicts for problem in verification_problems(verdict.verification)
    ]
    asked = [member.rollout_id for member in request.members]
    if [verdict.rollout_id for verdict in verdicts] != asked:
        problems.append("the verdicts are not those of the members, one each in their order")
    return problems


def _created_response(request: Any, responses: Sequence[Any]) -> list[str]:
    return _model_answer(request, responses[0])


def _streamed_response(request: Any, responses: Sequence[Any]) -> list[str]:
    problems = answer_stream_problems(responses)
    if not problems:
        problems = _model_answer(request.call, responses[-1].completed)
    return problems


def _model_answer(call: Any, answer: Any) -> list[str]:
    problems = _unset(answer, "call_id") + _unset(answer.response, "status")
    if call.call_id and answer.call_id != call.call_id:
        problems.append(f"the call_id {call.call_id!r} came back as {answer.call_id!r}")
    if answer.response.status not in ("completed", "incomplete"):
        problems.append(f"a success whose response has status {answer.response.status!r}")
    incomplete = answer.response.status == "incomplete"
    if incomplete and not answer.response.incomplete_details.reason:
        problems.append("an incomplete response does not say why")
    return problems


def _ran_rollout(request: Any, responses: Sequence[Any]) -> list[str]:
    return stream_problems([one.event for one in responses], request)


def _created_sandbox(request: Any, responses: Sequence[Any]) -> list[str]:
    return sandboxes.created_problems(responses[0])


def _forked(request: Any, responses: Sequence[Any]) -> list[str]:
    (answer,) = responses
    problems = [one for made in answer.sandboxes for one in sandboxes.created_problems(made)]
    if len(answer.sandboxes) != (request.count or 1):
        problems.append(f"{request.count or 1} forks were asked for, got {len(answer.sandboxes)}")
    return problems


def _lent(request: Any, responses: Sequence[Any]) -> list[str]:
    (answer,) = responses
    problems = sandboxes.lease_problems("lent", answer.grant.lease)
    if answer.grant.lease == request.lease:
        problems.append("the lent lease is the one that it was made of")
    return problems


def _ran_program(request: Any, responses: Sequence[Any]) -> list[str]:
    return sandboxes.process_problems([one.event for one in responses])


def _listened(request: Any, responses: Sequence[Any]) -> list[str]:
    events = [one.event for one in responses]
    return sandboxes.process_problems(events, request.stdout_offset, request.stderr_offset)


def _said_how_it_stands(request: Any, responses: Sequence[Any]) -> list[str]:
    (answer,) = responses
    return sandboxes.exit_problems(answer.exit) if answer.HasField("exit") else []


def _read_files(request: Any, responses: Sequence[Any]) -> list[str]:
    return sandboxes.files_problems(len(request.paths), responses)


def _read_archive(request: Any, responses: Sequence[Any]) -> list[str]:
    return sandboxes.archive_problems(responses)


def _listed_files(request: Any, responses: Sequence[Any]) -> list[str]:
    return sandboxes.order_problems("the files", [one.path for one in responses[0].files])


def _listed_sandboxes(request: Any, responses: Sequence[Any]) -> list[str]:
    ids = [one.sandbox.sandbox_id for one in responses[0].sandboxes]
    return sandboxes.order_problems("the sandboxes", ids)


def _unset(message: Any, *names: str) -> list[str]:
    return [f"{name} is not set" for name in names if not getattr(message, name)]


_CHECKS: Final[Mapping[str, _Check]] = MappingProxyType(
    {
        "resource.CreateSession": _created_session,
        "resource.CallTool": _called_tool,
        "verify.Verify": _verified,
        "verify.VerifyGroup": _verified_group,
        "model.CreateResponse": _created_response,
        "model.StreamResponse": _streamed_response,
        "agent.RunRollout": _ran_rollout,
        "sandbox.CreateSandbox": _created_sandbox,
        "sandbox.ForkSandbox": _forked,
        "sandbox.LendSandbox": _lent,
        "sandbox.Exec": _ran_program,
        "sandbox.WaitProcess": _listened,
        "sandbox.GetProcess": _said_how_it_stands,
        "sandbox.ReadFiles": _read_files,
        "sandbox.ReadArchive": _read_archive,
        "sandbox.ListFiles": _listed_files,
        "sandbox.ListSandboxes": _listed_sandboxes,
    }
)
