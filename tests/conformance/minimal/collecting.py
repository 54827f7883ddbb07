"""The minimal agent with Collect: everything is kept in lists, one stream at a time.

What is shown here is the order of things that agent.proto asks for, not how to be fast: an agent
that runs thousands of rollouts puts more events into a message and bounds what it keeps.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, Final

import grpc

from gymmesh.agent.v1 import agent_pb2
from gymmesh.rollout.v1 import rollout_pb2 as pb
from tests.conformance.minimal.agent import MinimalAgent
from tests.conformance.minimal.attempt import Attempt
from tests.conformance.minimal.status import fail

_METHOD: Final = "gymmesh.agent.v1.AgentService/Collect"
_WINDOW_S: Final = 20
_CAPACITY: Final = 1000
_LOAD_S: Final = 1.0  # after so long without another message; the contract allows 10
_INVALID: Final = grpc.StatusCode.INVALID_ARGUMENT
Key = tuple[str, int]


class _Stream:
    """What one collector asked for and what came of it, whatever its connections do."""

    def __init__(self, first: int) -> None:
        self.first = first  # the cursor before the first event that is kept
        self.kept: list[pb.RolloutEvent] = []
        self.sent = first
        self.credit = 0
        self.refusals: list[agent_pb2.CollectStartRefused] = []
        self.running: dict[Key, asyncio.Task[None]] = {}
        self.known: set[Key] = set()
        self.connection = 0
        self.changed = asyncio.Event()

    def add(self, event: pb.RolloutEvent) -> None:
        self.kept.append(event)
        self.changed.set()

    def batch(self) -> agent_pb2.CollectResponse | None:
        """The next events to send; a cursor is the place of an event among all."""
        place = self.sent - self.first
        events = self.kept[place : place + self.credit]
        if not events:
            return None
        self.credit -= len(events)
        self.sent += len(events)
        return agent_pb2.CollectResponse(
            events=agent_pb2.CollectEvents(cursor=self.sent, events=events)
        )

    def forget(self, cursor: int) -> None:
        del self.kept[: max(0, cursor - self.first)]
        self.first = max(self.first, cursor)


class CollectingAgent(MinimalAgent):
    """The service."""

    def __init__(self, registry: str) -> None:
        super().__init__(registry)
        self._about.collect = True
        self._streams: dict[str, _Stream] = {}

    async def close(self) -> None:
        """Stops what runs and closes its channels."""
        running = [task for one in self._streams.values() for task in one.running.values()]
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        await super().close()

    async def Collect(self, requests: Any, context: Any) -> AsyncIterator[Any]:
        """One connection of a collector."""
        hello = await self._hello(requests, context)
        stream, resumed = self._open(hello)
        stream.connection += 1
        mine = stream.connection
        stream.changed.set()  # an earlier connection learns that it is over
        reader = asyncio.create_task(self._read(requests, stream, mine))
        try:
            yield self._welcome(resumed=resumed)
            while stream.connection == mine:
                stream.changed.clear()
                while stream.refusals:
                    yield agent_pb2.CollectResponse(start_refused=stream.refusals.pop(0))
                while (batch := stream.batch()) is not None:
                    yield batch
                if reader.done():
                    if (problem := reader.result()) is not None:
                        await fail(context, _INVALID, "FIELD_INVALID", problem, field=problem)
                    if not stream.running:
                        return
                try:
                    await asyncio.wait_for(stream.changed.wait(), _LOAD_S)
                except TimeoutError:
                    load = agent_pb2.CollectLoad(running=len(stream.running), target=_CAPACITY)
                    yield agent_pb2.CollectResponse(load=load)
            code = grpc.StatusCode.CANCELLED
            await fail(context, code, "CALLER_CANCELLED", "another connection took over")
        finally:
            reader.cancel()
            if stream.connection == mine:
                loop = asyncio.get_running_loop()
                loop.call_later(_WINDOW_S, self._abandon, hello.stream_id, mine)

    async def _hello(self, requests: Any, context: Any) -> Any:
        request = agent_pb2.CollectRequest()
        async for request in requests:  # noqa: B007 (the first one, if there is any)
            break
        hello = request.hello
        if not hello.stream_id or not hello.credit:
            details = {"field": "hello", "method": _METHOD}
            await fail(context, _INVALID, "REQUIRED_FIELD_MISSING", "no hello", **details)
        if hello.contract_version.partition(".")[0] not in ("", "1"):
            code = grpc.StatusCode.FAILED_PRECONDITION
            details = {"ours": "1.0", "theirs": hello.contract_version}
            await fail(context, code, "CONTRACT_MISMATCH", "another contract", **details)
        return hello

    def _open(self, hello: Any) -> tuple[_Stream, bool]:
        stream = self._streams.get(hello.stream_id)
        last = hello.last_cursor
        if stream is None or not stream.first <= last <= stream.first + len(stream.kept):
            # One cursor is left out: who did not hear that the stream is lost must not find it.
            stream = self._streams[hello.stream_id] = _Stream(last + 1 if last else 0)
            stream.credit = hello.credit
            return stream, not last
        stream.sent, stream.credit = last, hello.credit
        return stream, True

    def _welcome(self, *, resumed: bool) -> agent_pb2.CollectResponse:
        welcome = agent_pb2.CollectWelcome(
            resumed=resumed,
            resume_window_s=_WINDOW_S,
            capacity=_CAPACITY,
            instance_id=self._about.instance_id,
            contract_version="1.0",
        )
        return agent_pb2.CollectResponse(welcome=welcome)

    async def _read(self, requests: Any, stream: _Stream, mine: int) -> str | None:
        """Does what the collector says; returns the field that it must not send."""
        problem = None
        async for request in requests:
            if stream.connection != mine:
                break
            kind = request.WhichOneof("message")
            if kind == "starts":
                for start in request.starts.starts:
                    self._start(stream, start)
            elif kind == "cancels":
                for one in request.cancels.attempts:
                    task = stream.running.get((one.rollout_id, one.attempt or 1))
                    if task is not None:
                        task.cancel()
            elif kind == "credit":
                stream.credit += request.credit.events
            elif kind == "ack":
                stream.forget(request.ack.cursor)
            else:
                problem = kind or "message"
                break
            stream.changed.set()
        stream.changed.set()
        return problem

    def _start(self, stream: _Stream, start: Any) -> None:
        request = start.request
        key = (request.rollout_id, request.attempt or 1)
        if key in stream.known:
            return
        status = self._refusal(request)
        if status is not None:
            ref = agent_pb2.AttemptRef(rollout_id=key[0], attempt=key[1])
            stream.refusals.append(agent_pb2.CollectStartRefused(attempts=[ref], status=status))
            return
        stream.known.add(key)
        deadline = start.timeout_ms / 1000 if start.timeout_ms else None
        task = stream.running[key] = asyncio.create_task(self._run(stream, request, deadline))
        task.add_done_callback(lambda _: self._over(stream, key))

    async def _run(self, stream: _Stream, request: Any, deadline: float | None) -> None:
        attempt = Attempt(self._finder, self._about, request, stream.add)
        try:
            await attempt.run(deadline)
        except asyncio.CancelledError:
            attempt.cancelled()
        finally:
            attempt.close_session()

    def _over(self, stream: _Stream, key: Key) -> None:
        del stream.running[key]
        stream.changed.set()

    def _abandon(self, stream_id: str, connection: int) -> None:
        stream = self._streams.get(stream_id)
        if stream is not None and stream.connection == connection:
            del self._streams[stream_id]
            for task in stream.running.values():
                task.cancel()
