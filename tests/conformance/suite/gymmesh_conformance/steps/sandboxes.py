"""The sandboxes of a case: made with few words, called with few words, ended in any case.

    {open: a, request: {…}}    makes a sandbox: CreateSandbox with `create` of the profile, and what
                               the request says. ${a.id}, ${a.own} and ${a.lease} (operate) follow,
                               and ${a.answer} is the whole answer
    {call: sandbox.Exec, in: a, as: own, …}
                               a call with this sandbox's id and lease (operate, unless `as` names
                               another: a field of the sandbox, or a variable), and with a
                               request_id of its own where the RPC has one; its deadline is in
                               60 s, unless `timeout` says otherwise
    {gone: TEXT}               no process of the suite's own machine has TEXT in its command line;
                               it says nothing where the server runs on another machine
    {unchanged: true}          the file of the suite's own machine that hostile programs go for is
                               as it was

No lease that a case was given may come back in an answer that does not give leases, or in an error.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import time
from collections.abc import Callable, Mapping
from pathlib import Path as FilePath
from typing import Any, Final

from google.protobuf.message import Message

from gymmesh.sandbox.v1 import grant_pb2, sandbox_pb2
from gymmesh_conformance.cases import Answer, to_plain
from gymmesh_conformance.errors import CallError
from gymmesh_conformance.paths import Path
from gymmesh_conformance.services import Rpc, rpc

_END_S: Final = 30.0
_OPEN_S: Final = 60.0
#: The deadline of a call in a sandbox whose step names none. A call may start programs in a
#: container, several for many files, which takes a busy machine more than 10 s.
CALL_S: Final = 60.0
_GONE_S: Final = 10.0
_POLL_S: Final = 0.05
CREATE: Final = "sandbox.CreateSandbox"
_GIVE_LEASES: Final = (CREATE, "sandbox.ForkSandbox", "sandbox.LendSandbox")


class Sandboxes:
    """What one case has made at a sandbox service."""

    def __init__(self, path: Path, create: Mapping[str, Any]) -> None:
        self._path = path
        self._create = create
        self._own: dict[str, bytes] = {}
        self._snapshots: set[str] = set()
        self._leases: set[bytes] = set()

    def filled(
        self, method: Rpc, step: Mapping[str, Any], lookup: Callable[[str], Any]
    ) -> dict[str, Any]:
        """The request of a step, with what the step need not say."""
        request = dict(step.get("request", {}))
        if method == rpc(CREATE):
            base = {} if "build" in request else self._create
            request = {**base, **request}
        if "in" in step:
            name, lease = step["in"], step.get("as", "lease")
            known = f"{name}.{lease}" if lease in ("own", "lease") else lease
            request = {"sandbox_id": lookup(f"{name}.id"), "lease": lookup(known), **request}
        given = "in" in step or "open" in step
        if given and "request_id" in method.method.input_type.fields_by_name:
            request.setdefault("request_id", secrets.token_hex(8))
        return request

    def take(self, name: str, answer: Answer) -> list[str]:
        """Notes what an answer gives; what is wrong with the leases in it."""
        found: list[str] = []
        if answer.error is not None:
            shown = [answer.error.message.encode()]
            if answer.error.status is not None:
                shown.append(answer.error.status.SerializeToString())
        elif name in _GIVE_LEASES:
            for response in answer.responses:
                self._note(response)
            return found
        else:
            shown = [one.SerializeToString() for one in answer.responses]
        for response in answer.responses:
            if isinstance(response, sandbox_pb2.SnapshotSandboxResponse):
                self._snapshots.add(response.image.name)
        hidden = [*self._leases, *(one.hex().encode() for one in self._leases)]
        if any(lease in text for lease in hidden for text in shown):
            found.append("there is a lease in it")
        return found

    def variables(self, answer: Answer) -> dict[str, Any]:
        """What `open` leaves for later steps. Raises LookupError where there is no sandbox."""
        plain = to_plain(answer.responses[-1])
        return {
            "id": plain["grant"]["sandbox"]["sandbox_id"],
            "own": plain["own_lease"],
            "lease": plain["grant"]["lease"],
            "answer": plain,
        }

    async def close(self) -> None:
        """Ends the sandboxes and removes the snapshots that the case has made."""
        for sandbox_id, lease in self._own.items():
            end = sandbox_pb2.EndSandboxRequest(sandbox_id=sandbox_id, lease=lease)
            await self._quietly("sandbox.EndSandbox", end)
        for name in self._snapshots:
            delete = sandbox_pb2.DeleteSnapshotRequest(name=name)
            await self._quietly("sandbox.DeleteSnapshot", delete)

    async def _quietly(self, name: str, request: Message) -> None:
        with contextlib.suppress(CallError):
            await self._path.unary(rpc(name), request, _END_S)

    def _note(self, response: Message) -> None:
        made: list[sandbox_pb2.CreateSandboxResponse] = []
        grants: list[grant_pb2.SandboxGrant] = []
        if isinstance(response, sandbox_pb2.CreateSandboxResponse):
            made = [response]
        elif isinstance(response, sandbox_pb2.ForkSandboxResponse):
            made = list(response.sandboxes)
        elif isinstance(response, sandbox_pb2.LendSandboxResponse):
            grants = [response.grant]
        for one in made:
            self._own[one.grant.sandbox.sandbox_id] = one.own_lease
            self._leases.add(one.own_lease)
            grants.append(one.grant)
        self._leases |= {grant.lease for grant in grants if grant.lease}
        self._leases.discard(b"")


def opening(step: Mapping[str, Any]) -> dict[str, Any]:
    """The call that a step with `open` is; it may wait for a place, as a service may be in use."""
    return {"timeout": _OPEN_S, **step, "call": CREATE}


async def gone(text: str) -> list[str]:
    """Waits until no process of this machine has a text in its command line."""
    end = time.monotonic() + _GONE_S
    while True:
        left = await asyncio.to_thread(_processes_with, text.encode())
        if not left:
            return []
        if time.monotonic() > end:
            return [f"processes are left: {', '.join(left)}"]
        await asyncio.sleep(_POLL_S)


def unchanged(secret: Mapping[str, str]) -> list[str]:
    """Whether a file of this machine has the text that it should have."""
    try:
        same = FilePath(secret["path"]).read_text(encoding="utf-8") == secret["text"]
    except OSError:
        same = False
    return [] if same else [f"{secret['path']} of the host was changed"]


def _processes_with(text: bytes) -> list[str]:
    found = []
    # Names alone: a pattern of pathlib would look at processes, which may be gone by then.
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            if text in FilePath("/proc", name, "cmdline").read_bytes():
                found.append(name)
    return found
