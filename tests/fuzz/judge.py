"""What is wrong with an answer, a log, or a process's memory. Pure: it is shown what came."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

from google.protobuf.message import DecodeError
from google.rpc import error_details_pb2, status_pb2

from gymmesh.errors.v1 import errors_pb2
from gymmesh_runtime.errors import CODE_OF_REASON, DOMAIN

Reason = errors_pb2.ErrorReason

#: No request may bring these about: each says that the server did something wrong.
FAULTS: Final = frozenset(
    ("INTERNAL_FAULT", "ENVIRONMENT_FAULT", "VERIFIER_FAULT", "AGENT_FAULT", "CONTRACT_VIOLATED")
)
_LEAKS: Final = re.compile(rb'Traceback \(most recent|File "[^"\n]*\.py", line \d')
#: What gRPC's library says by itself, without an ErrorInfo: (code, words).
_LIBRARY: Final = (
    ("RESOURCE_EXHAUSTED", "larger than max"),
    ("RESOURCE_EXHAUSTED", "metadata size exceeds"),
    ("UNIMPLEMENTED", "Method not found"),
    ("UNKNOWN", "metadata size exceeds"),
)
#: "Not implemented" and "HTTP version not supported", of methods and versions that there are not.
_HONEST: Final = (501, 505)
_LOG: Final = re.compile(
    r"Traceback \(most recent call last\)|was never (retrieved|awaited)|Exception in callback"
    r"|Exception ignored in|unexpected failure|Fatal Python error|Segmentation fault"
    r"|Check fail(ed:|ure stack trace)"  # how gRPC and its like abort
)
#: A caller's words may be logged, but not as many as it likes.
_LONGEST_LINE: Final = 20_000
MIB: Final = 1024 * 1024
#: More than the garbage of calls that failed, which is collected at every 100,000 objects.
_MORE_BYTES: Final = 32 * MIB
_PARTS: Final = 12  # of the time; the last three quarters have eight steps


@dataclass(frozen=True, slots=True)
class Answer:
    """How a call ended. `code` is a status's name; `own`: of our contract's services.

    `patient`: the caller gave it much time, so that it must not run out; `messages` are responses.
    """

    method: str
    code: str
    details: str = ""
    trailers: bytes = b""  # grpc-status-details-bin
    messages: Sequence[bytes] = field(default=())
    own: bool = True
    patient: bool = True


def problems_of(answer: Answer) -> list[str]:
    """What is wrong with the answer to a call."""
    problems = [
        f"{answer.method}: an answer contains a traceback: {_around(data)}"
        for data in (answer.details.encode(), answer.trailers, *answer.messages)
        if _LEAKS.search(data)
    ]
    if answer.code in ("OK", "CANCELLED"):
        return problems
    if answer.code == "DEADLINE_EXCEEDED" and not answer.patient:
        # The caller's own clock may be first, with whatever details the server sent just then.
        return problems
    said = f"{answer.method}: {answer.code}: {answer.details[:300]}"
    if not answer.trailers:
        return problems + _without_details(answer, said)
    try:
        status = status_pb2.Status.FromString(answer.trailers)
    except DecodeError:
        return [*problems, f"{said} (the status in the trailers can't be decoded)"]
    return problems + [f"{said} ({one})" for one in _of_status(status, answer.code)]


def problems_of_status(status: status_pb2.Status, where: str) -> list[str]:
    """What is wrong with a status that came inside a message."""
    said = f"{where}: {status.code}: {status.message[:300]}"
    return [f"{said} ({one})" for one in _of_status(status, "")]


def _without_details(answer: Answer, said: str) -> list[str]:
    if answer.code == "DEADLINE_EXCEEDED":
        return [f"{said} (no answer before the deadline)"]
    library = any(answer.code == code and words in answer.details for code, words in _LIBRARY)
    if library:
        return []
    if not answer.own:
        return [said] if answer.code in ("UNKNOWN", "INTERNAL", "UNAVAILABLE") else []
    return [f"{said} (the error has no ErrorInfo)"]


def _of_status(status: status_pb2.Status, code: str) -> list[str]:
    infos = []
    for detail in status.details:
        info = error_details_pb2.ErrorInfo()
        if detail.Unpack(info):
            infos.append(info)
    if len(infos) != 1 or infos[0].domain != DOMAIN:
        return [f"{len(infos)} ErrorInfos, expected 1 with the domain {DOMAIN}"]
    name = infos[0].reason
    # A judge model that says nonsense is a fault of the verifier, too, but none that was raised.
    if name in FAULTS and (name != "VERIFIER_FAULT" or "error_id" in infos[0].metadata):
        return [f"the answer reports a fault of the server: {name} {dict(infos[0].metadata)}"]
    try:
        reason = Reason.Value(f"ERROR_REASON_{name}")
    except ValueError:
        return [f"the reason {name!r} is not in the contract"]
    promised = CODE_OF_REASON[reason]
    if status.code != promised.value[0] or code not in ("", promised.name):
        return [f"the reason {name} must have the status {promised.name}"]
    return []


def problems_of_http(where: str, status: int, body: bytes) -> list[str]:
    """What is wrong with an HTTP answer; `status` 0: the connection was closed without one."""
    problems = []
    if _LEAKS.search(body):
        problems.append(f"{where}: an answer contains a traceback: {_around(body)}")
    if status >= 500 and status not in _HONEST:
        problems.append(f"{where}: status {status}: {body[:200]!r}")
    return problems


def problems_of_log(text: str) -> list[str]:
    """Lines of a log that no request may bring about, each with what follows; alike ones once."""
    lines = text.splitlines()
    found: dict[str, str] = {}
    for number, line in enumerate(lines):
        if _LOG.search(line):
            rest = [one for one in lines[number : number + 60] if one.strip()]
            last = next((one for one in rest[1:] if not one.startswith((" ", "\t"))), line)
            key = re.sub(r"[0-9a-f]{6,}|\d+", "N", f"{line}{last}")
            found.setdefault(key, "\n".join(lines[max(0, number - 1) : number + 25]))
    problems = [f"the log contains an error:\n{words}" for words in found.values()]
    longest = max(lines, key=len, default="")
    if len(longest) > _LONGEST_LINE:
        problems.append(f"a line of the log has {len(longest)} characters: {longest[:300]}")
    return problems


def floors_of(samples: Sequence[int], parts: int) -> list[int]:
    """The least of each part of the samples, which are at equal distances; none of too few."""
    size = len(samples) // parts
    return [min(samples[number * size :][:size]) for number in range(parts if size else 0)]


def problems_of_memory(name: str, samples: Sequence[int]) -> list[str]:
    """Whether a process takes ever more: `samples` are its bytes at equal distances.

    What is in flight, and garbage until it is collected, come and go, so that only floors count.
    The first quarter fills caches and pools. A leak goes on rising, at a rate that does not fall to
    less than half; a cache that fills slows down, and what one large request leaves is one step. A
    machine that is busy has fewer cases, and no other floors.
    """
    steps = [late - early for early, late in pairwise(floors_of(samples, _PARTS)[_PARTS // 4 :])]
    if not steps:
        return []
    earlier, later = sum(steps[: len(steps) // 2]), sum(steps[len(steps) // 2 :])
    if later >= earlier / 2 and earlier + later - max(steps) > _MORE_BYTES:
        said = ", ".join(str(floor // MIB) for floor in floors_of(samples, _PARTS))
        return [
            f"the memory of {name} keeps growing. Lowest memory in each part of the run, MiB: "
            f"{said}"
        ]
    return []


def _around(data: bytes) -> str:
    found = _LEAKS.search(data)
    assert found is not None
    return repr(data[max(0, found.start() - 100) : found.end() + 200])
