"""RunService over the runs of this process, for callers that hold its token, and its server."""

from __future__ import annotations

import hmac
import os
import secrets
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Final, Protocol

from gymmesh.errors.v1 import errors_pb2
from gymmesh.run.v1 import run_pb2
from gymmesh_client.control.registry import RunEntry, remove_entry, write_entry
from gymmesh_client.dispatch import RunStateError
from gymmesh_client.groups import ConsumerClaim
from gymmesh_runtime.binding import Binding
from gymmesh_runtime.context import CallContext
from gymmesh_runtime.errors import MeshError, field_invalid, field_missing
from gymmesh_runtime.wire import MeshServer

RUN_SERVICE: Final = "gymmesh.run.v1.RunService"
AUTHORIZATION: Final = "authorization"
_PAGE: Final = 100
_LARGEST_PAGE: Final = 1000
_LOOPBACK: Final = "127.0.0.1"
# For streams of groups, which end with their run unless their readers are slow.
_STOP_S: Final = 5.0
_TOKEN_BYTES: Final = 32


class RunHandle(Protocol):
    """One run of this process.

    The commands are those of `ControlRun` in run.proto. They take effect before they return;
    RunStateError where the run's state does not allow one.
    """

    @property
    def run_id(self) -> str: ...
    def snapshot(self) -> run_pb2.Run:
        """How far it is; identity, output and times included."""

    def pause(self) -> None: ...
    def resume(self) -> None: ...
    def drain(self) -> None: ...
    def cancel(self) -> None: ...
    def tune(self, *, concurrency: int | None) -> None:
        """Change settings; None: as it is."""

    def cancel_group(self, task_id: str) -> None: ...
    def groups(
        self, after_cursor: int, max_staleness: int | None
    ) -> AsyncGenerator[run_pb2.StreamGroupsResponse, None]:
        """Finished groups for one reader; MeshError NOT_OFFERED when the run keeps none."""

    def shared_groups(
        self, claim: ConsumerClaim, max_staleness: int | None
    ) -> AsyncGenerator[run_pb2.StreamGroupsResponse, None]:
        """Finished groups for one of several consumers; MeshError as above."""

    async def acknowledge(self, consumer: str, incarnation: str, cursor: int) -> None:
        """A reader has the groups that it was sent; `consumer` empty: the only one. MeshError as
        AcknowledgeGroups says.
        """


class RunServicer:
    """The RPCs, named as in run.proto, which says what each does.

    Args:
        token: what callers must present as `authorization: Bearer <token>`; None: the server
            knows its callers by itself.
    """

    def __init__(self, token: str | None) -> None:
        self._expected = None if token is None else f"Bearer {token}".encode()
        self._runs: dict[str, RunHandle] = {}

    def add(self, run: RunHandle) -> None:
        """Offer a run."""
        self._runs[run.run_id] = run

    async def ListRuns(
        self, request: run_pb2.ListRunsRequest, context: CallContext
    ) -> run_pb2.ListRunsResponse:
        self._check(context)
        newest_first = list(self._runs.values())[::-1]
        start = _position(request.page_token, len(newest_first))
        if request.page_size < 0:
            raise field_invalid("page_size", "must not be negative")
        end = start + min(request.page_size or _PAGE, _LARGEST_PAGE)
        return run_pb2.ListRunsResponse(
            runs=[run.snapshot() for run in newest_first[start:end]],
            next_page_token=str(end) if end < len(newest_first) else "",
        )

    async def GetRun(
        self, request: run_pb2.GetRunRequest, context: CallContext
    ) -> run_pb2.GetRunResponse:
        self._check(context)
        return run_pb2.GetRunResponse(run=self._find(request.run_id).snapshot())

    async def ControlRun(
        self, request: run_pb2.ControlRunRequest, context: CallContext
    ) -> run_pb2.ControlRunResponse:
        self._check(context)
        run = self._find(request.run_id)
        try:
            _carry_out(run, request)
        except RunStateError as error:
            raise MeshError(
                errors_pb2.ERROR_REASON_RUN_STATE, str(error), metadata={"run_id": run.run_id}
            ) from None
        return run_pb2.ControlRunResponse(run=run.snapshot())

    async def StreamGroups(
        self, request: run_pb2.StreamGroupsRequest, context: CallContext
    ) -> AsyncGenerator[run_pb2.StreamGroupsResponse, None]:
        self._check(context)
        run = self._find(request.run_id)
        staleness = request.max_staleness if request.HasField("max_staleness") else None
        if request.consumer:
            found = run.shared_groups(_claim(request), staleness)
        elif request.consumers or request.incarnation or request.continues:
            raise field_missing("consumer", f"{RUN_SERVICE}/StreamGroups")
        else:
            found = run.groups(request.after_cursor, staleness)
        async with aclosing(found) as groups:
            async for group in groups:
                yield group

    async def AcknowledgeGroups(
        self, request: run_pb2.AcknowledgeGroupsRequest, context: CallContext
    ) -> run_pb2.AcknowledgeGroupsResponse:
        self._check(context)
        run = self._find(request.run_id)
        method = f"{RUN_SERVICE}/AcknowledgeGroups"
        if bool(request.consumer) != bool(request.incarnation):
            raise field_missing("incarnation" if request.consumer else "consumer", method)
        await run.acknowledge(request.consumer, request.incarnation, request.cursor)
        return run_pb2.AcknowledgeGroupsResponse()

    def _check(self, context: CallContext) -> None:
        if self._expected is None:
            return
        given = context.metadata.get(AUTHORIZATION, "").encode()
        if not hmac.compare_digest(given, self._expected):
            raise MeshError(
                errors_pb2.ERROR_REASON_CREDENTIAL_INVALID,
                "this call needs the collector's token. Run `gym-cli runs` as the user who "
                "started the run. The command then finds the token",
            )

    def _find(self, run_id: str) -> RunHandle:
        run = self._runs.get(run_id)
        if run is None:
            raise MeshError(
                errors_pb2.ERROR_REASON_RUN_NOT_FOUND,
                f"this collector has no run '{run_id}'; active runs: "
                f"{', '.join(self._runs) or 'none'}",
                metadata={"run_id": run_id},
            )
        return run


class RunServer:
    """Serves runs on loopback while it is open, and registers each.

    Use as an asynchronous context manager. Raises OSError when there is no port for it, or a run
    cannot be registered.
    """

    def __init__(self) -> None:
        self._token = secrets.token_urlsafe(_TOKEN_BYTES)
        self._servicer = RunServicer(self._token)
        self._server = MeshServer([Binding(RUN_SERVICE, self._servicer)], mux=False)
        self._entries: list[RunEntry] = []
        self._port = 0

    async def __aenter__(self) -> RunServer:
        self._port = await self._server.start(_LOOPBACK, 0)
        await self._server.set_serving(True)
        return self

    async def __aexit__(self, *_: object) -> None:
        for entry in self._entries:
            remove_entry(entry)
        await self._server.stop(_STOP_S)

    def add(self, run: RunHandle, output: str) -> None:
        """Serve a run whose rows go to `output`."""
        self._servicer.add(run)
        entry = RunEntry(run.run_id, f"{_LOOPBACK}:{self._port}", self._token, os.getpid(), output)
        write_entry(entry)
        self._entries.append(entry)


def _claim(request: run_pb2.StreamGroupsRequest) -> ConsumerClaim:
    return ConsumerClaim(
        name=request.consumer,
        incarnation=request.incarnation,
        consumers=request.consumers,
        continues=request.continues,
        after_cursor=request.after_cursor,
    )


def _carry_out(run: RunHandle, request: run_pb2.ControlRunRequest) -> None:
    command = request.WhichOneof("command")
    if command == "tune":
        tune = request.tune
        run.tune(concurrency=tune.concurrency if tune.HasField("concurrency") else None)
    elif command == "cancel_group":
        run.cancel_group(request.cancel_group.task_id)
    elif command in ("pause", "resume", "drain", "cancel"):
        getattr(run, command)()
    else:
        raise MeshError(
            errors_pb2.ERROR_REASON_REQUIRED_FIELD_MISSING,
            "ControlRun needs a command: `pause`, `resume`, `drain`, `cancel`, `tune` or "
            "`cancel_group`",
            metadata={"field": "command", "method": f"{RUN_SERVICE}/ControlRun"},
        )


def _position(token: str, length: int) -> int:
    start = int(token) if token.isascii() and token.isdecimal() and len(token) < 10 else 0
    if token and not 0 < start < length:
        raise field_invalid("page_token", "was not issued by this server")
    return start
