"""Runs of other processes: this user's, found in the registry and called with their tokens, and
those of other machines, at their addresses.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from functools import partial
from typing import Any, Final

from gymmesh.errors.v1 import errors_pb2
from gymmesh.run.v1 import run_pb2
from gymmesh_client.control.consumer import GroupConsumer, ServedRun
from gymmesh_client.control.registry import read_entries
from gymmesh_client.control.servicer import AUTHORIZATION, RUN_SERVICE
from gymmesh_runtime.errors import MeshError
from gymmesh_runtime.peers import Instance, PeerDirectory
from gymmesh_runtime.security import Credentials, SecurityConfig
from gymmesh_runtime.wire import KEEPALIVE_KEY, KEEPALIVE_S

_CALL_S: Final = 20.0  # a collector that starts on a busy machine imports for seconds


class RemoteRun:
    """A run that another process collects. Every method raises MeshError.

    Args:
        token: what each call shows; empty: what the connection shows is enough.
        now_at: returns where the run is served after its collector was resumed; None: as before.
    """

    def __init__(
        self,
        run_id: str,
        output: str,
        peer: Any,
        token: str = "",
        now_at: Callable[[], ServedRun | None] = lambda: None,
    ) -> None:
        self.run_id = run_id
        self.output = output
        self._peer = peer
        self._metadata = shown(token) if token else {}
        self._now_at = now_at

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

    async def acknowledge(self, cursor: int) -> None:
        """Acknowledge the groups up to a cursor, while `groups` goes on."""
        request = run_pb2.AcknowledgeGroupsRequest(run_id=self.run_id, cursor=cursor)
        await self._peer.AcknowledgeGroups(request, timeout=_CALL_S, metadata=self._metadata)

    def consumer(
        self,
        name: str,
        *,
        consumers: int,
        max_staleness: int | None = None,
        reconnect_s: float = 60.0,
    ) -> GroupConsumer:
        """One of several consumers that share the groups; see GroupConsumer. Close it."""
        return GroupConsumer(
            self._peer,
            self._metadata,
            run_id=self.run_id,
            name=name,
            consumers=consumers,
            max_staleness=max_staleness,
            reconnect_s=reconnect_s,
            now_at=self._now_at,
        )


def shown(token: str) -> dict[str, str]:
    """The metadata that shows a token."""
    return {AUTHORIZATION: f"Bearer {token}"}


@asynccontextmanager
async def open_runs() -> AsyncIterator[list[RemoteRun]]:
    """The runs that this user's processes collect now, oldest first."""
    directory = PeerDirectory()

    def now_at(run_id: str) -> ServedRun | None:
        """A collector that was resumed has another port and token."""
        for entry in read_entries():
            if entry.run_id == run_id:
                return directory.plain_peer(entry.address, RUN_SERVICE), shown(entry.token)
        return None

    try:
        yield [
            RemoteRun(
                entry.run_id,
                entry.output,
                directory.plain_peer(entry.address, RUN_SERVICE),
                entry.token,
                partial(now_at, entry.run_id),
            )
            for entry in read_entries()
        ]
    finally:
        await directory.close()


@asynccontextmanager
async def runs_at(
    address: str, security: SecurityConfig | None = None
) -> AsyncIterator[list[RemoteRun]]:
    """The runs of the collector that listens at an address (`--stream-listen`), oldest first.

    Args:
        security: the certificates and the token to show.

    Raises ConfigError for files that can't be used, and MeshError: CREDENTIAL_INVALID also where
    the collector serves TLS and `security` has none.
    """
    credentials = Credentials(security)
    directory = PeerDirectory(credentials=credentials)
    # Collectors allow pings; with them a collector that is gone without a word is noticed.
    pinged = {KEEPALIVE_KEY: str(KEEPALIVE_S)}
    directory.upsert(Instance(id=address, service=RUN_SERVICE, address=address, meta=pinged))
    try:
        peer: Any = directory.plain_peer(address, RUN_SERVICE)
        try:
            reply = await peer.ListRuns(run_pb2.ListRunsRequest(), timeout=_CALL_S)
        except MeshError as error:
            raise await credentials.explained(error, address) from None
        yield [RemoteRun(run.run_id, run.output, peer) for run in reversed(reply.runs)]
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
        problem = f"no active run has the id {wanted!r}; active runs: {ids}"
    else:
        problem = "no active run here"
    raise MeshError(errors_pb2.ERROR_REASON_RUN_NOT_FOUND, problem, metadata={"run_id": wanted})
