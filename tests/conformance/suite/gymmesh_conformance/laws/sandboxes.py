"""The laws of a sandbox service's answers: processes, files, archives and leases. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from gymmesh.sandbox.v1 import process_pb2, sandbox_pb2
from gymmesh_conformance.errors import from_status
from gymmesh_conformance.laws.messages import error_problems

_PIECE_BYTES: Final = 1 << 20
_LEASE_BYTES: Final = 16


def process_problems(
    events: Sequence[process_pb2.ProcessEvent], stdout_offset: int = 0, stderr_offset: int = 0
) -> list[str]:
    """`started` first, `exit` last, pieces of at most 1 MiB, and counts that agree with them."""
    kinds = [event.WhichOneof("event") for event in events]
    if kinds[:1] != ["started"] or kinds[-1:] != ["exit"] or None in kinds:
        return [f"the events of a process are `started` … `exit`, not {kinds}"]
    if kinds.count("started") != 1 or kinds.count("exit") != 1:
        return [f"`started` and `exit` come once; got {kinds}"]
    problems = [] if events[0].started.process_id else ["`started` has no process_id"]
    if any(max(len(one.stdout), len(one.stderr)) > _PIECE_BYTES for one in events):
        problems.append("a piece of output is larger than 1 MiB")
    end = events[-1].exit
    for name, offset in (("stdout", stdout_offset), ("stderr", stderr_offset)):
        came = sum(len(getattr(event, name)) for event in events)
        kept = getattr(end, f"{name}_bytes") - getattr(end, f"{name}_dropped")
        if came != max(0, kept - offset):
            problems.append(f"{came} bytes of {name} came, `exit` says {kept} were kept")
    return problems + exit_problems(end)


def exit_problems(end: process_pb2.ProcessExit) -> list[str]:
    """A cause, an exit code exactly where it ended by itself, and a signal where it had one."""
    problems = []
    exited = end.cause == process_pb2.EXIT_CAUSE_EXITED
    if end.cause == process_pb2.EXIT_CAUSE_UNSPECIFIED:
        problems.append("the process has no cause of its end")
    if exited != end.HasField("exit_code"):
        cause = process_pb2.ExitCause.Name(end.cause)
        problems.append(f"{cause}, but exit_code is {'not ' if exited else ''}set")
    if end.cause == process_pb2.EXIT_CAUSE_SIGNALED and not end.signal:
        problems.append("EXIT_CAUSE_SIGNALED, but `signal` is not set")
    return problems


def files_problems(paths: int, responses: Sequence[Any]) -> list[str]:
    """The files come in their order, and each ends with `info` or `error`."""
    problems = []
    at = 0
    for piece in responses:
        kind = piece.WhichOneof("part")
        if piece.index != at:
            return [f"a piece of file {piece.index} came, file {at} has not ended"]
        if kind == "error":
            problems += error_problems(from_status(piece.error))
        if len(piece.content) > _PIECE_BYTES:
            problems.append("a piece of a file is larger than 1 MiB")
        if kind is None:
            problems.append("a piece of a file with nothing set")
        at += kind in ("info", "error")
    if at != paths:
        problems.append(f"{paths} files were asked for, {at} ended")
    return problems


def archive_problems(responses: Sequence[Any]) -> list[str]:
    """The last response says so, and no other; pieces of at most 1 MiB."""
    last = [one.last for one in responses]
    problems = []
    if not last or last != [False] * (len(last) - 1) + [True]:
        problems.append("the last piece of an archive says so, and only that one")
    if any(len(one.content) > _PIECE_BYTES for one in responses):
        problems.append("a piece of an archive is larger than 1 MiB")
    return problems


def created_problems(answer: sandbox_pb2.CreateSandboxResponse) -> list[str]:
    """Two leases that cannot be guessed, and a sandbox that is named."""
    problems = []
    for name, lease in (("own", answer.own_lease), ("operate", answer.grant.lease)):
        problems += lease_problems(name, lease)
    if answer.own_lease == answer.grant.lease:
        problems.append("the own lease is the operate lease")
    sandbox = answer.grant.sandbox
    if not sandbox.sandbox_id or not sandbox.instance_id:
        problems.append("the grant does not name its sandbox and instance")
    if not answer.grant.expires_unix_nano:
        problems.append("the grant does not say when it ends")
    return problems


def lease_problems(name: str, lease: bytes) -> list[str]:
    """At least 16 bytes."""
    if len(lease) >= _LEASE_BYTES:
        return []
    return [f"the {name} lease has {len(lease)} bytes, not {_LEASE_BYTES} or more"]


def order_problems(what: str, names: Sequence[Any]) -> list[str]:
    """What is listed is in order, and nothing twice."""
    names = list(names)
    return [] if names == sorted(set(names)) else [f"{what} are not in order, or twice there"]
