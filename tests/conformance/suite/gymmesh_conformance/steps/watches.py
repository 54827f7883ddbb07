"""Watches of a registry: streams that go on beside the steps of a case.

    {watch: w, request: {…}}                 opens `discovery.WatchInstances` under the name w
    {hear: w, like: {upserted: {…}}}         changes come, up to one that is like this; `within: 5`
                                             seconds
    {quiet: w, for: 0.3}                     for so many seconds none comes
    {stop_reading: w}                        what comes is left where it is, in gRPC's buffers
    {read_on: w, until: {…}, within: 30}     it is read, up to when the view that it makes is the
                                             list that the registry gives for this request

By the laws, a snapshot comes first, its instances in the order of their ids, and versions grow.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Final

from google.protobuf.message import Message

from gymmesh.discovery.v1 import discovery_pb2
from gymmesh_conformance import laws
from gymmesh_conformance.cases import mismatches, to_plain
from gymmesh_conformance.errors import CallError
from gymmesh_conformance.paths import Path
from gymmesh_conformance.services import rpc

_HEAR_S: Final = 10.0
_WATCH_S: Final = 120.0
_WATCH: Final = rpc("discovery.WatchInstances")
_LIST: Final = rpc("discovery.ListInstances")
#: The steps of a watch, by their first key.
WATCH_WORDS: Final = ("watch", "hear", "quiet", "stop_reading", "read_on")


class Watch:
    """One watch. `close` it in any case."""

    def __init__(self, path: Path, request: Message) -> None:
        self.problems: list[str] = []
        self._heard: asyncio.Queue[discovery_pb2.WatchInstancesResponse | None] = asyncio.Queue()
        self._error: CallError | None = None
        self._version = 0
        self._messages = 0
        self._view: dict[str, discovery_pb2.Instance] = {}
        self._path = path
        self._reads = asyncio.Event()
        self._reads.set()
        self._reader = asyncio.create_task(self._read(path, request))

    async def hear(self, expected: Any, within_s: float = _HEAR_S) -> list[str]:
        """Take changes up to one that is like this; what is wrong when none is."""
        nearest = ["nothing came"]
        end = asyncio.get_running_loop().time() + within_s
        while (change := await self._next(end)) is not None:
            nearest = mismatches(expected, to_plain(change), "change")
            if not nearest or self.problems:
                return self.problems
        return [f"no change like {expected}: {self._error or 'no more came'}; last: {nearest}"]

    async def quiet(self, seconds: float) -> list[str]:
        """See that no change comes for a while."""
        change = await self._next(asyncio.get_running_loop().time() + seconds)
        return [] if change is None else [f"a change came where none should: {to_plain(change)}"]

    def stop_reading(self) -> None:
        """Read no further message but the one that is waited for already."""
        self._reads.clear()

    async def read_on(self, listing: Message, within_s: float) -> list[str]:
        """Read until the view that the messages make is what the registry lists."""
        self._reads.set()
        end = asyncio.get_running_loop().time() + within_s
        listed = await self._listed(listing)
        while self._view != listed:
            if await self._next(end) is None:
                odd = sorted(set(self._view) ^ set(listed)) or "none, but some differ"
                what = f"{len(self._view)} instances, the registry lists {len(listed)}"
                return [f"the watcher's view has {what}; in one alone: {odd}"[:600]]
        return self.problems

    async def close(self) -> None:
        """Cancel the call."""
        self._reader.cancel()
        await asyncio.gather(self._reader, return_exceptions=True)

    async def _next(self, end: float) -> discovery_pb2.WatchInstancesResponse | None:
        try:
            async with asyncio.timeout_at(end):
                change = await self._heard.get()
        except TimeoutError:
            return None
        if change is not None:
            self._check(change)
        return change

    async def _read(self, path: Path, request: Message) -> None:
        try:
            async for response in path.stream(_WATCH, request, _WATCH_S):
                assert isinstance(response, discovery_pb2.WatchInstancesResponse)
                self._heard.put_nowait(response)
                await self._reads.wait()
        except CallError as error:
            self._error = error
            self.problems += laws.error_problems(error)
        self._heard.put_nowait(None)

    def _check(self, change: discovery_pb2.WatchInstancesResponse) -> None:
        kind = change.WhichOneof("change")
        self._messages += 1
        if kind is None:
            self.problems.append("a message with nothing set")
        if self._messages == 1 and kind != "snapshot":
            self.problems.append(f"the first message is {kind}, not the snapshot")
        if self._messages > 1 and change.version <= self._version:
            self.problems.append(f"version {change.version} came after {self._version}")
        self._version = change.version
        self._fold(change)
        ids = [one.id for one in change.snapshot.instances]
        if ids != sorted(ids):
            self.problems.append(f"the snapshot is not in the order of ids: {ids}")

    async def _listed(self, listing: Message) -> dict[str, discovery_pb2.Instance]:
        request = discovery_pb2.ListInstancesRequest.FromString(listing.SerializeToString())
        found: dict[str, discovery_pb2.Instance] = {}
        while True:
            page = await self._path.unary(_LIST, request, _HEAR_S)
            assert isinstance(page, discovery_pb2.ListInstancesResponse)
            found |= {one.id: one for one in page.instances}
            request.page_token = page.next_page_token
            if not request.page_token:
                return found

    def _fold(self, change: discovery_pb2.WatchInstancesResponse) -> None:
        if change.HasField("snapshot"):
            self._view = {one.id: one for one in change.snapshot.instances}
        elif change.HasField("upserted"):
            self._view[change.upserted.id] = change.upserted
        else:
            self._view.pop(change.removed_id, None)


class Watches:
    """The watches of one case, by name."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._open: dict[str, Watch] = {}

    async def step(self, step: Mapping[str, Any], request: Message | None) -> list[str]:
        """Does a step; `request` is its message, where it has one. Returns its problems."""
        if "watch" in step:
            assert request is not None
            self._open[step["watch"]] = Watch(self._path, request)
            return []
        if "hear" in step:
            return await self._open[step["hear"]].hear(step["like"], step.get("within", _HEAR_S))
        if "stop_reading" in step:
            self._open[step["stop_reading"]].stop_reading()
            return []
        if "read_on" in step:
            assert request is not None
            return await self._open[step["read_on"]].read_on(request, step.get("within", _HEAR_S))
        return await self._open[step["quiet"]].quiet(float(step["for"]))

    async def close(self) -> None:
        """Cancel all."""
        for watch in self._open.values():
            await watch.close()
