"""Runs of this user's other processes: found in the registry, called with their tokens."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from typing import Any, Final

from gymmesh.errors.v1 import errors_pb2
from gymmesh.run.v1 import run_pb2
from gymmesh_client.control.registry import RunEntry, read_entries
from gymmesh_client.control.servicer import AUTHORIZATION, RUN_SERVICE
from gymmesh_runtime.errors import MeshError
from gymmesh_runtime.peers import PeerDirectory

_CALL_S: Final = 20.0  # a collector that starts on a busy machine imports for seconds


class RemoteRun:
    """A run that another process collects. Every method raises MeshError."""

    def __init__(self, entry: RunEntry, peer: Any) -> None:
        self.run_id = entry.run_id
        self.output = entry.output
        self._peer = peer
        self._metadata = {AUTHORIZATION: f"Bearer {entry.token}"}

    async def get(self) -> run_pb2.Run:
        """How far it is."""
        request = run_pb2.GetRunRequest(run_id=self.run_id)
        reply = await self._peer.GetRun(request, timeout=_CALL_S, metadata=self._metadata)
        run: run_pb2.Run = reply.run
        return run

    async def control(self, request: run_pb2.ControlRunRequest) -> run_pb2.Run:
        """Steer it; `run_id` is filled in. Gives how far it is afterwards."""
        command = run_pb2.ControlRunRequest()
        command.CopyFrom(request)
        command.run_id = self.run_id
        reply = await self._peer.ControlRun(command, timeout=_CALL_S, metadata=self._metadata)
        run: run_pb2.Run = reply.run
        return run

    async def groups(
        self, after_cursor: int = 0, *, max_staleness: int | None = None, timeout: float
    ) -> AsyncGenerator[run_pb2.StreamGroupsResponse, None]:
        """Finished groups as they come, for at most `timeout` seconds. Close it to end it early.

        When the run is finished and all were taken, the last are acknowledged, too.
        """
        request = run_pb2.StreamGroupsRequest(
            run_id=self.run_id, after_cursor=after_cursor, max_staleness=max_staleness
        )
        stream = self._peer.StreamGroups(request, timeout=timeout, metadata=self._metadata)
        async with aclosing(stream) as groups:
            async for group in groups:
                yield group
                request.after_cursor = group.cursor
        with contextlib.suppress(MeshError):  # the run is over, and may be gone already
            done = self._peer.StreamGroups(request, timeout=_CALL_S, metadata=self._metadata)
            async with aclosing(done) as rest:
                async for _ in rest:
                    return


@asynccontextmanager
async def open_runs() -> AsyncIterator[list[RemoteRun]]:
    """The runs that this user's processes collect now, oldest first."""
    directory = PeerDirectory()
    try:
        yield [
            RemoteRun(entry, directory.plain_peer(entry.address, RUN_SERVICE))
            for entry in read_entries()
        ]
    finally:
        await directory.close()


def find_run(runs: list[RemoteRun], wanted: str) -> RemoteRun:
    """The run of this id, or of an unambiguous beginning of one; the only one when `wanted` is
    empty. Raises RUN_NOT_FOUND.
    """
    found = [run for run in runs if run.run_id == wanted] or [
        run for run in runs if run.run_id.startswith(wanted)
    ]
    if len(found) == 1:
        return found[0]
    ids = ", ".join(run.run_id for run in (found or runs)) or "none"
    if found:
        which = f"fit '{wanted}'" if wanted else "are active"
        problem = f"{len(found)} runs {which}; choose one of: {ids}"
    elif wanted:
        problem = f"no active run {wanted!r}; active runs: {ids}"
    else:
        problem = "no active run of this user on this machine"
    raise MeshError(errors_pb2.ERROR_REASON_RUN_NOT_FOUND, problem, metadata={"run_id": wanted})
