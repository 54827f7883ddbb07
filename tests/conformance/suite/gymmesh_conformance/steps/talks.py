"""Connections of a collector: a case's conversations over `agent.Collect`.

    call: agent.Collect
    talk:
      - say: {hello: {stream_id: "${id:s}", credit: 100}}   a CollectRequest
      - hear: {welcome: {resumed: true}}    messages come, up to one that is like this
      - save: {variable: path}              takes values out of it, such as `events.cursor`
      - quiet: 0.3                          for so many seconds no events come
      - loads: 3                            so many loads come, with no longer between any two
                                            messages than the contract's 10 seconds and some slack
      - forget: cursor                      events that came after this cursor do not count
      - finish: true                        all is said; what still comes, to the end, is heard
      - drop: true                          the connection is broken off
    expect: {error: {…}}                    how the connection ends, where not well
    rollouts: {"${id:r}": [kinds]}          all events of a rollout so far, over all of the case's
                                            connections: the exact kinds, and whole by the laws

By the laws, `welcome` comes first and once, cursors grow (from the hello's, by any step), no more
events come than there is credit for, and over all connections each attempt's events come without
a gap or a repeat.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from gymmesh.agent.v1 import agent_pb2
from gymmesh.rollout.v1 import rollout_pb2
from gymmesh_conformance import laws
from gymmesh_conformance.cases import mismatches, to_plain
from gymmesh_conformance.errors import CallError, from_status
from gymmesh_conformance.paths import Path
from gymmesh_conformance.services import rpc

_HEAR_S: Final = 10.0
_LOAD_S: Final = 10.0
_SLACK_S: Final = 5.0  # for machines that are busy
_CONNECTION_S: Final = 60.0
_COLLECT: Final = rpc("agent.Collect")


@dataclass
class Collected:
    """What came of a case's rollouts, over all of its connections."""

    asked: dict[str, agent_pb2.RunRolloutRequest] = field(default_factory=dict)
    came: list[tuple[int, rollout_pb2.RolloutEvent]] = field(default_factory=list)

    def forget(self, cursor: int) -> None:
        """Leave out what came in batches after this cursor."""
        self.came = [one for one in self.came if one[0] <= cursor]

    def problems(self, expected: Mapping[str, list[str]]) -> list[str]:
        """What is not as expected of these rollouts, by kinds and by the stream law."""
        found = []
        for rollout_id, kinds in expected.items():
            events = [event for _, event in self.came if event.rollout_id == rollout_id]
            got = [str(event.WhichOneof("event")) for event in events]
            if got != kinds:
                found.append(f"{rollout_id}: expected the events {kinds}, got {got}")
            request = self.asked.get(rollout_id)
            if request is not None and kinds:
                found += [f"{rollout_id}: {one}" for one in laws.stream_problems(events, request)]
        return found


class Talk:
    """One connection. `close` it in any case."""

    def __init__(self, path: Path, collected: Collected) -> None:
        self.problems: list[str] = []
        self.error: CallError | None = None
        self._collected = collected
        self._said: asyncio.Queue[agent_pb2.CollectRequest | None] = asyncio.Queue()
        self._heard: asyncio.Queue[agent_pb2.CollectResponse | None] = asyncio.Queue()
        self._credit = 0
        self._cursor = 0
        self._messages = 0
        self._ended = False
        self._last: dict[str, Any] = {}
        self._reader = asyncio.create_task(self._read(path))

    def say(self, request: agent_pb2.CollectRequest) -> None:
        """Send a message."""
        self._credit += request.hello.credit + request.credit.events
        self._cursor = max(self._cursor, request.hello.last_cursor)
        for start in request.starts.starts:
            self._collected.asked.setdefault(start.request.rollout_id, start.request)
        self._said.put_nowait(request)

    async def hear(self, expected: Any) -> list[str]:
        """Take messages up to one that is like this; what is wrong when none is."""
        nearest = ["nothing came"]
        while (message := await self._next(_HEAR_S)) is not None:
            self._last = to_plain(message)
            nearest = mismatches(expected, self._last, "message")
            if not nearest:
                return []
        why = self.error or ("the end came" if self._ended else "nothing more came")
        return [f"no message like {expected}: {why}; the last one: {nearest}"]

    async def quiet(self, seconds: float) -> list[str]:
        """See that no events come for a while."""
        end = asyncio.get_running_loop().time() + seconds
        while (left := end - asyncio.get_running_loop().time()) > 0:
            message = await self._next(left)
            if message is not None and message.HasField("events"):
                return [f"{len(message.events.events)} events came where none should"]
        return []

    async def loads(self, count: int) -> list[str]:
        """Take messages until so many of them were the load."""
        while count:
            message = await self._next(_LOAD_S + _SLACK_S)
            if message is None:
                why = self.error or f"nothing came for {_LOAD_S + _SLACK_S:g} s"
                return [f"{count} loads more should have come: {why}"]
            count -= message.HasField("load")
        return []

    async def finish(self) -> list[str]:
        """Say no more, and hear the rest."""
        self._said.put_nowait(None)
        while await self._next(_HEAR_S) is not None:
            pass
        return [] if self._ended else ["the stream did not end when all was said and done"]

    def take(self, save: Mapping[str, str], walk: Callable[[Any, str], Any]) -> dict[str, Any]:
        """Values of the message heard last. Raises LookupError."""
        return {name: walk(self._last, path) for name, path in save.items()}

    async def close(self) -> None:
        """Break the connection off; nothing happens when it has ended."""
        self._reader.cancel()
        await asyncio.gather(self._reader, return_exceptions=True)

    async def _next(self, seconds: float) -> agent_pb2.CollectResponse | None:
        if self._ended and self._heard.empty():
            return None
        try:
            async with asyncio.timeout(seconds):
                message = await self._heard.get()
        except TimeoutError:
            return None
        if message is None:
            self._ended = True
            return None
        self._check(message)
        return message

    async def _requests(self) -> AsyncIterator[agent_pb2.CollectRequest]:
        while (request := await self._said.get()) is not None:
            yield request

    async def _read(self, path: Path) -> None:
        try:
            async for response in path.stream(_COLLECT, self._requests(), _CONNECTION_S):
                assert isinstance(response, agent_pb2.CollectResponse)
                self._heard.put_nowait(response)
        except CallError as error:
            self.error = error
        self._heard.put_nowait(None)

    def _check(self, message: agent_pb2.CollectResponse) -> None:
        kind = message.WhichOneof("message")
        self._messages += 1
        if (kind == "welcome") != (self._messages == 1):
            self.problems.append(f"message {self._messages} is {kind}: welcome comes first, once")
        if kind is None:
            self.problems.append("a message with nothing set")
        if kind == "start_refused":
            error = from_status(message.start_refused.status)
            self.problems += laws.error_problems(error)
        if kind == "events":
            self._check_events(message.events)

    def _check_events(self, batch: agent_pb2.CollectEvents) -> None:
        if batch.cursor <= self._cursor:
            self.problems.append(f"the cursor {batch.cursor} came after {self._cursor}")
        self._cursor = batch.cursor
        self._credit -= len(batch.events)
        if self._credit < 0:
            self.problems.append(f"{-self._credit} events more than there is credit for")
        if not batch.events:
            self.problems.append("a batch without events")
        self._collected.came += [(batch.cursor, event) for event in batch.events]
