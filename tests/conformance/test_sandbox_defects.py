"""The sandbox suite notices what is wrong: each defect of a good service fails its case."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path as FilePath
from typing import Any

import grpc
import pytest
import pytest_asyncio
from google.protobuf.message import Message

from gymmesh.sandbox.v1 import files_pb2, process_pb2
from gymmesh_conformance.errors import CallError, make_error
from gymmesh_conformance.paths import Path
from gymmesh_conformance.runner import CaseResult, Subject, run_case
from gymmesh_conformance.services import Rpc
from gymmesh_conformance.suites import select
from tests.conformance.ours import open_sandboxes

pytestmark = pytest.mark.asyncio(loop_scope="module")

_fresh = itertools.count()
_Change = Callable[[Any], None]
_Changes = dict[str, _Change]


@dataclass
class Tampered:
    """A path that changes requests, responses and whole streams, by the name of their RPC.

    `forgiven`: errors of these RPCs come out as an empty success. `instead`: another error.
    """

    inner: Path
    requests: _Changes = field(default_factory=dict)
    responses: _Changes = field(default_factory=dict)
    streams: dict[str, Callable[[Any, list[Any]], list[Any]]] = field(default_factory=dict)
    forgiven: tuple[str, ...] = ()
    instead: Callable[[CallError], CallError] = lambda error: error

    def _changed(self, rpc: Rpc, request: Message) -> Message:
        changed = type(request).FromString(request.SerializeToString())
        self.requests.get(rpc.method.name, _nothing)(changed)
        return changed

    async def unary(self, rpc: Rpc, request: Message, timeout: float) -> Message:
        try:
            response = await self.inner.unary(rpc, self._changed(rpc, request), timeout)
        except CallError as error:
            if rpc.method.name in self.forgiven:
                return rpc.response_class()
            raise self.instead(error) from None
        self.responses.get(rpc.method.name, _nothing)(response)
        return response

    async def stream(
        self, rpc: Rpc, request: Message | AsyncIterator[Message], timeout: float
    ) -> AsyncIterator[Message]:
        assert isinstance(request, Message)
        changed = self._changed(rpc, request)
        try:
            found = [one async for one in self.inner.stream(rpc, changed, timeout)]
        except CallError as error:
            raise self.instead(error) from None
        change = self.streams.get(rpc.method.name, _unchanged)
        for response in change(request, found):
            yield response


def _unchanged(request: Any, responses: list[Any]) -> list[Any]:
    """The stream as it is."""
    return responses


def _nothing(message: Any) -> None:
    """Changes nothing."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def good() -> AsyncIterator[Subject]:
    async with open_sandboxes("plain") as target:
        yield await target.subject()


async def _run(good: Subject, case: str, **tampering: Any) -> CaseResult:
    subject = Subject(Tampered(good.path, **tampering), good.variables)
    return await run_case(select("sandbox", [case])[0], subject)


def _set(**fields: Any) -> _Change:
    def change(message: Any) -> None:
        for name, value in fields.items():
            setattr(message, name, value() if callable(value) else value)

    return change


def _unset(*names: str) -> _Change:
    def change(message: Any) -> None:
        for name in names:
            message.ClearField(name)

    return change


def _unique() -> str:
    return f"fresh-{next(_fresh)}"


def _process(**fields: Any) -> _Change:
    return lambda request: _set(**fields)(request.process)


def _own_machine(request: Any) -> None:
    """Lets a sandbox reach the loopback address of the service's machine."""
    request.network.hosts.hosts.add(name="127.0.0.1", private=True)


def _one_lease(answer: Any) -> None:
    answer.grant.lease = answer.own_lease


def _short_lease(answer: Any) -> None:
    answer.own_lease = answer.own_lease[:8]


def _lasts_longer(answer: Any) -> None:
    answer.expires_unix_nano *= 2


def _through_a_shell(request: Any) -> None:
    words = request.process.argv.words
    if words:
        request.process.shell = b" ".join(words).decode("latin-1")


def _in_place(request: Any) -> None:
    for one in request.files:
        one.offset = one.offset


def _through_the_link(request: Any) -> None:
    for one in request.files:
        one.path = one.path.replace(b"/tmp/link", b"/tmp/target")


def _any_mode(request: Any) -> None:
    for one in request.files:
        one.mode = 0o777


def _backwards(answer: Any) -> None:
    files = list(answer.files)[::-1]
    del answer.files[:]
    answer.files.extend(files)


def _with_a_lease(request_lease: list[bytes]) -> _Changes:
    def shown(answer: Any) -> None:
        answer.sandbox.labels["lease"] = request_lease[-1].hex()

    return {
        "CreateSandbox": lambda answer: request_lease.append(answer.own_lease),
        "AttachSandbox": shown,
    }


def _exit(change: _Change) -> Callable[[Any, list[Any]], list[Any]]:
    def changed(request: Any, responses: list[Any]) -> list[Any]:
        for one in responses:
            if one.event.HasField("exit"):
                change(one.event.exit)
        return responses

    return changed


def _without(kind: str) -> Callable[[Any, list[Any]], list[Any]]:
    return lambda _, responses: [one for one in responses if one.event.WhichOneof("event") != kind]


def _of_the_host(request: Any, responses: list[Any]) -> list[Any]:
    """Reads the files of this machine, where it has them."""
    answers = []
    for index, path in enumerate(request.paths):
        try:
            content = FilePath(path.decode("latin-1")).read_bytes()
        except OSError:
            answers += [one for one in responses if one.index == index]
            continue
        answers.append(files_pb2.ReadFilesResponse(index=index, content=content))
        answers.append(files_pb2.ReadFilesResponse(index=index, info=files_pb2.FileInfo()))
    return answers


def _exited_well(exit_: Any) -> None:
    exit_.cause, exit_.exit_code = process_pb2.EXIT_CAUSE_EXITED, 0


def _lease_invalid(error: CallError) -> CallError:
    code = grpc.StatusCode.PERMISSION_DENIED
    return make_error("SANDBOX_LEASE_INVALID", code, error.message)


def _no_status(error: CallError) -> CallError:
    return CallError(error.code, error.message)


@pytest.mark.parametrize(
    ("case", "tampering"),
    [
        # Leases and lives
        ("same_request_same_sandbox", {"requests": {"CreateSandbox": _set(request_id=_unique)}}),
        ("makes_a_sandbox", {"responses": {"CreateSandbox": _one_lease}}),
        ("makes_a_sandbox", {"responses": {"CreateSandbox": _short_lease}}),
        ("makes_a_sandbox", {"responses": _with_a_lease([])}),
        ("what_was_asked_for_is_there", {"requests": {"CreateSandbox": _unset("env")}}),
        ("resources_in_force", {"requests": {"CreateSandbox": _unset("resources")}}),
        ("ended_is_not_found", {"requests": {"EndSandbox": _set(sandbox_id=_unique)}}),
        ("ended_is_not_found", {"instead": _lease_invalid}),
        ("only_the_owner_ends_it", {"forgiven": ("EndSandbox",)}),
        ("lease_that_was_never_given", {"instead": _no_status}),
        ("reading_only", {"requests": {"LendSandbox": _unset("scope")}}),
        ("one_folder_only", {"requests": {"LendSandbox": _unset("scope")}}),
        ("one_folder_and_links", {"requests": {"LendSandbox": _unset("scope")}}),
        ("lent_again", {"responses": {"RenewLease": _lasts_longer}}),
        ("ends_before_the_sandbox", {"requests": {"LendSandbox": _unset("ttl_s")}}),
        ("revokes", {"requests": {"RevokeLease": _set(lease=b"a lease of nobody")}}),
        # Networks
        ("listed_hosts_are_reached", {"requests": {"CreateSandbox": _unset("network")}}),
        ("other_hosts_are_not", {"requests": {"CreateSandbox": _own_machine}}),
        ("private_addresses_need_leave", {"requests": {"CreateSandbox": _own_machine}}),
        # Programs
        ("runs_once", {"requests": {"Exec": _set(request_id=_unique)}}),
        ("runs_once_side_by_side", {"requests": {"Exec": _set(request_id=_unique)}}),
        ("runs_arguments_without_a_shell", {"requests": {"Exec": _through_a_shell}}),
        ("gets_standard_input", {"requests": {"Exec": _unset("stdin")}}),
        ("ends_at_its_time", {"requests": {"Exec": _process(timeout_ms=0)}}),
        ("exit_codes", {"streams": {"Exec": _exit(_exited_well)}}),
        ("ended_by_a_signal", {"streams": {"Exec": _exit(_exited_well)}}),
        ("exit_codes", {"streams": {"Exec": _without("exit")}}),
        ("much_output", {"streams": {"Exec": lambda _, all_: all_[:1] + all_[2:]}}),
        ("output_beyond_what_is_kept", {"streams": {"Exec": _exit(_unset("stdout_dropped"))}}),
        ("starts_once", {"requests": {"StartProcess": _set(request_id=_unique)}}),
        ("signals", {"requests": {"SignalProcess": _set(signal=9)}}),
        ("signals_descendants", {"requests": {"SignalProcess": _set(descendants=False)}}),
        ("listens_from_where_it_was", {"requests": {"WaitProcess": _set(stdout_offset=0)}}),
        ("writes_to_standard_input", {"requests": {"WriteStdin": _set(offset=0)}}),
        # Files
        ("writes_and_reads", {"requests": {"WriteFiles": _any_mode}}),
        ("takes_the_place_at_once", {"requests": {"WriteFiles": _in_place}}),
        ("writes_no_link_through", {"requests": {"WriteFiles": _through_the_link}}),
        ("reads_a_part", {"requests": {"ReadFiles": _unset("max_bytes")}}),
        ("lists_a_folder", {"responses": {"ListFiles": _backwards}}),
        ("lists_folders_below", {"requests": {"ListFiles": _unset("recursive")}}),
        ("members_that_go_up", {"forgiven": ("WriteArchive",)}),
        ("packs", {"streams": {"ReadArchive": lambda _, all_: all_[:-1]}}),
        # Hostile
        ("files_of_the_host", {"streams": {"ReadFiles": _of_the_host}}),
        ("floods_its_output", {"streams": {"Exec": _exit(_unset("stdout_dropped"))}}),
        ("daemons", {"requests": {"EndSandbox": _set(sandbox_id=_unique)}}),
    ],
)
async def test_a_tampered_service_fails(
    good: Subject, case: str, tampering: dict[str, Any]
) -> None:
    bad = await _run(good, case, **tampering)
    assert bad.outcome == "failed"
