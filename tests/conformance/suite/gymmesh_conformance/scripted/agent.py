"""An agent that follows a script, for collectors to run against. It offers Collect alone.

A task's script is a list of attempts, each a list of steps; the last one is that of every further
attempt:

    whole                              started, a model call, verified with reward 1.0, completed
    started | model | pending          one event each (`pending`: a verdict without a reward)
    {verified: 0.5}                    the verdict
    completed                          the end
    {failed: {boundary, reason, code, retry_safe}}
    {wait: seconds}
    cut                                the connection breaks, once; the stream is kept
    lose                               the connection breaks, once, and the stream is lost with it
    move                               the same, and another instance answers from then on
    gap                                the next event's sequence leaves one out
    again                              the event before comes once more
    {unknown: ignorable | fatal}       an event of a kind that nobody knows
    {late: n}                          a whole attempt n of this rollout, with reward 0
    {refuse: {reason, code, retry_s}}  instead of events: start_refused
    stop                               nothing more comes of this attempt, and the stream ends

What a collector must not do is noted in `violations`.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import grpc
from google.rpc import error_details_pb2

from gymmesh.agent.v1 import agent_pb2
from gymmesh.responses.v1 import responses_pb2
from gymmesh.rollout.v1 import rollout_pb2 as pb
from gymmesh_conformance.errors import CallError, make_error

NAME: Final = "conformance-agent"
_FIRST_CURSOR: Final = 1000
_LOAD_S: Final = 1.0
_UNKNOWN_EVENT: Final = b"\x9a\x06\x00"  # field 99, an empty message
_BREAKS: Final = ("cut", "lose", "move")
_WHOLE: Final = ("started", "model", {"verified": 1.0}, "completed")
_UNAVAILABLE: Final = grpc.StatusCode.UNAVAILABLE
Key = tuple[str, int]


@dataclass
class _Stream:
    """What one collector asked for and what came of it, over all of its connections."""

    sent: list[tuple[int, agent_pb2.CollectResponse]] = field(default_factory=list)
    refusals: list[agent_pb2.CollectResponse] = field(default_factory=list)
    cursor: int = _FIRST_CURSOR
    acked: int = 0
    credit: int = 0
    position: int = 0  # how many of `sent` this connection has had
    connection: int = 0
    known: set[Key] = field(default_factory=set)
    running: dict[Key, asyncio.Task[None]] = field(default_factory=dict)
    broken: bool = False
    changed: asyncio.Event = field(default_factory=asyncio.Event)


class ScriptedAgent:
    """The agent of one case. `scripts`: by task id, the attempts' steps."""

    def __init__(self, scripts: Mapping[str, Sequence[Any]], capacity: int = 100) -> None:
        self._scripts = scripts
        self._capacity = capacity
        self._streams: dict[str, _Stream] = {}
        self._done: set[tuple[str, int, int]] = set()  # breaks that were made already
        self._instance = 0
        self.violations: list[str] = []
        self.connections = 0
        self.connected = 0  # those that are open
        self.resumptions = 0
        self._tries: Counter[str] = Counter()  # refused starts included
        #: The attempts that were started, by task.
        self.starts: dict[str, list[int]] = defaultdict(list)
        self.rollouts: dict[str, set[str]] = defaultdict(set)

    async def GetAgent(self, request: agent_pb2.GetAgentRequest, _: Any) -> Any:
        """Says what it is."""
        return agent_pb2.GetAgentResponse(
            name=NAME,
            version="1",
            model_roles=["policy"],
            collect=True,
            capacity=self._capacity,
            instance_id=f"{NAME}-0",
            contract_version="1.0",
            default_environment="conformance",
        )

    async def Collect(self, requests: Any, _: Any) -> AsyncIterator[agent_pb2.CollectResponse]:
        """One connection."""
        hello = (await anext(requests, agent_pb2.CollectRequest())).hello
        self.connections += 1
        self.connected += 1
        stream, resumed = self._open(hello)
        stream.connection += 1
        mine, stream.broken = stream.connection, False
        stream.changed.set()
        reader = asyncio.create_task(self._read(requests, stream))
        welcome = agent_pb2.CollectWelcome(
            resumed=resumed,
            resume_window_s=30,
            capacity=self._capacity,
            instance_id=f"{NAME}-{self._instance}",
            contract_version="1.0",
        )
        try:
            yield agent_pb2.CollectResponse(welcome=welcome)
            while True:
                stream.changed.clear()
                for message in self._ready(stream):
                    yield message
                if stream.connection != mine:
                    raise make_error("CALLER_CANCELLED", grpc.StatusCode.CANCELLED, "taken over")
                if stream.broken:
                    raise make_error("PEER_UNAVAILABLE", _UNAVAILABLE, "cut off by the script")
                if reader.done() and not stream.running and stream.position == len(stream.sent):
                    return
                try:
                    await asyncio.wait_for(stream.changed.wait(), _LOAD_S)
                except TimeoutError:
                    load = agent_pb2.CollectLoad(running=len(stream.running), target=self._capacity)
                    yield agent_pb2.CollectResponse(load=load)
        finally:
            self.connected -= 1
            reader.cancel()

    def close(self) -> None:
        """Stops what runs."""
        for stream in self._streams.values():
            for task in stream.running.values():
                task.cancel()

    def _open(self, hello: agent_pb2.CollectHello) -> tuple[_Stream, bool]:
        if not hello.stream_id:
            self._blame("the first message is no hello with a stream_id")
        if not hello.credit:
            self._blame("the hello has no credit")
        if hello.contract_version.partition(".")[0] not in ("", "1"):
            self._blame(f"the hello speaks contract version {hello.contract_version!r}")
        stream = self._streams.get(hello.stream_id)
        if stream is None:
            stream = self._streams[hello.stream_id] = _Stream(
                cursor=max(_FIRST_CURSOR, hello.last_cursor), credit=hello.credit
            )
            return stream, not hello.last_cursor
        self.resumptions += 1
        if not stream.acked <= hello.last_cursor <= stream.cursor:
            self._blame(
                f"resumed at {hello.last_cursor}; {stream.acked} is acknowledged, "
                f"{stream.cursor} was sent"
            )
        stream.credit = hello.credit
        stream.position = sum(cursor <= hello.last_cursor for cursor, _ in stream.sent)
        return stream, True

    def _ready(self, stream: _Stream) -> list[agent_pb2.CollectResponse]:
        ready, stream.refusals = stream.refusals, []
        fresh = stream.sent[stream.position : stream.position + stream.credit]
        stream.position += len(fresh)
        stream.credit -= len(fresh)
        return [*ready, *(message for _, message in fresh)]

    async def _read(self, requests: Any, stream: _Stream) -> None:
        async for request in requests:
            kind = request.WhichOneof("message")
            if kind == "starts":
                for start in request.starts.starts:
                    self._start(stream, start)
            elif kind == "cancels":
                for one in request.cancels.attempts:
                    task = stream.running.pop((one.rollout_id, one.attempt or 1), None)
                    if task is not None:
                        task.cancel()
            elif kind == "credit":
                stream.credit += request.credit.events
            elif kind == "ack":
                self._ack(stream, request.ack.cursor)
            else:
                self._blame(f"the message {kind} came after hello")
            stream.changed.set()
        stream.changed.set()

    def _ack(self, stream: _Stream, cursor: int) -> None:
        sent = stream.sent[stream.position - 1][0] if stream.position else 0
        if cursor > sent:
            self._blame(f"{cursor} was acknowledged, {sent} was sent")
        stream.acked = max(stream.acked, cursor)

    def _start(self, stream: _Stream, start: agent_pb2.CollectStart) -> None:
        request = start.request
        task, number = request.task, request.attempt or 1
        key = (request.rollout_id, number)
        if not request.rollout_id or not task.task_id or not task.environment:
            self._blame(f"a start without a rollout_id, task_id or environment: {key}")
        if task.agent not in ("", NAME):
            self._blame(f"a start for another agent, {task.agent!r}")
        if key in stream.known:
            return
        if number in self.starts[task.task_id]:
            self._blame(f"attempt {number} of {task.task_id} was started on two streams")
        stream.known.add(key)
        self.starts[task.task_id].append(number)
        self.rollouts[task.task_id].add(request.rollout_id)
        attempts = self._scripts.get(task.task_id, [["whole"]])
        self._tries[task.task_id] += 1
        place = min(self._tries[task.task_id], len(attempts)) - 1
        runner = _Runner(self, stream, request, place)
        running = asyncio.create_task(runner.run(attempts[place]))
        stream.running[key] = running
        running.add_done_callback(lambda _: self._over(stream, key))

    def _over(self, stream: _Stream, key: Key) -> None:
        stream.running.pop(key, None)
        stream.changed.set()

    def once(self, task_id: str, attempt: int, step: int) -> bool:
        """Whether this step breaks the connection for the first time."""
        key = (task_id, attempt, step)
        first = key not in self._done
        self._done.add(key)
        return first

    def forget(self, stream: _Stream) -> None:
        """Loses a stream and what ran in it."""
        for name, one in list(self._streams.items()):
            if one is stream:
                del self._streams[name]
        for task in stream.running.values():
            if task is not asyncio.current_task():
                task.cancel()

    def move(self, stream: _Stream) -> None:
        """Loses a stream, and is another instance from then on."""
        self._instance += 1
        self.forget(stream)

    def _blame(self, what: str) -> None:
        self.violations.append(what)


class _Runner:
    """Plays one attempt's script."""

    def __init__(
        self,
        agent: ScriptedAgent,
        stream: _Stream,
        request: agent_pb2.RunRolloutRequest,
        place: int,
    ) -> None:
        self._agent = agent
        self._stream = stream
        self._request = request
        self._place = place
        self._sequence = 0
        self._counts = pb.Counts()
        self._last = pb.RolloutEvent()

    async def run(self, steps: Sequence[Any]) -> None:
        task_id = self._request.task.task_id
        for number, step in enumerate(_expanded(steps)):
            name: str = step
            value: Any = None
            if isinstance(step, Mapping):
                name, value = next(iter(step.items()))
            if name == "wait":
                await asyncio.sleep(value)
            elif name in _BREAKS:
                await asyncio.sleep(0.2)  # what came before is sent
                if self._agent.once(task_id, self._place, number):
                    if name != "cut":
                        (self._agent.move if name == "move" else self._agent.forget)(self._stream)
                    self._stream.broken = True
                    self._stream.changed.set()
                    if name != "cut":
                        return
            elif name == "stop":
                await asyncio.sleep(0.2)
                self._stream.broken = True
                self._agent.forget(self._stream)
                self._stream.changed.set()
                return
            elif name == "refuse":
                self._refuse(value)
            else:
                self._event(name, value)

    def _event(self, name: str, value: Any) -> None:
        if name == "gap":
            self._sequence += 1
        elif name == "again":
            self._send(self._last)
        elif name == "late":
            self._late(value)
        elif name == "unknown":
            self._put(self._new(ignorable=value == "ignorable"), unknown=True)
        else:
            self._put(_EVENTS[name](self, value))

    def _new(self, **event: Any) -> pb.RolloutEvent:
        return pb.RolloutEvent(
            rollout_id=self._request.rollout_id,
            attempt=self._request.attempt or 1,
            record_time_unix_nano=time.time_ns(),
            **event,
        )

    def _put(self, event: pb.RolloutEvent, *, unknown: bool = False) -> None:
        self._sequence += 1
        event.sequence = self._sequence
        for end in ("completed", "failed"):
            if event.HasField(end):
                getattr(event, end).events = self._sequence
        if unknown:
            event.MergeFromString(_UNKNOWN_EVENT)
        self._send(event)

    def _send(self, event: pb.RolloutEvent) -> None:
        self._last = event
        self._stream.cursor += 3  # any step will do
        batch = agent_pb2.CollectEvents(cursor=self._stream.cursor, events=[event])
        self._stream.sent.append((self._stream.cursor, agent_pb2.CollectResponse(events=batch)))
        self._stream.changed.set()

    def _late(self, attempt: int) -> None:
        request = agent_pb2.RunRolloutRequest()
        request.CopyFrom(self._request)
        request.attempt = attempt
        other = _Runner(self._agent, self._stream, request, 0)
        for name, value in (("started", 0), ("model", 0), ("verified", 0.0), ("completed", 0)):
            other._event(name, value)

    def _refuse(self, value: Mapping[str, Any]) -> None:
        error: CallError = make_error(value["reason"], grpc.StatusCode[value["code"]], "not now")
        assert error.status is not None
        if "retry_s" in value:
            retry = error_details_pb2.RetryInfo()
            retry.retry_delay.FromMilliseconds(int(value["retry_s"] * 1000))
            error.status.details.add().Pack(retry)
        ref = agent_pb2.AttemptRef(
            rollout_id=self._request.rollout_id, attempt=self._request.attempt or 1
        )
        refused = agent_pb2.CollectStartRefused(attempts=[ref], status=error.status)
        self._stream.refusals.append(agent_pb2.CollectResponse(start_refused=refused))
        # It did not begin: the same attempt may be started again.
        self._stream.known.discard((ref.rollout_id, ref.attempt))
        self._agent.starts[self._request.task.task_id].remove(ref.attempt)
        self._stream.changed.set()

    def started(self, _: Any) -> pb.RolloutEvent:
        params = responses_pb2.ResponseParams(input_omitted=True)
        started = pb.Started(
            params=params,
            items=self._request.task.params.input,
            environment=self._request.task.environment,
            environment_version="7",
            agent=NAME,
            agent_version="1",
            agent_instance_id=f"{NAME}-0",
            resource_instance_id="conformance-0",
            session_id="s-1",
            contract_version="1.0",
        )
        return self._new(started=started)

    def model(self, _: Any) -> pb.RolloutEvent:
        self._counts.model_calls += 1
        response = responses_pb2.Response(id="r1", model="scripted", status="completed")
        message = response.output.add().message
        message.role, message.status = "assistant", "completed"
        message.parts.parts.add().output_text.text = "Paris"
        call = pb.ModelCallCompleted(
            call_id=f"m{self._counts.model_calls}",
            model="policy",
            trainable=True,
            response=response,
        )
        if self._counts.model_calls > 1:
            call.parent_call_id = f"m{self._counts.model_calls - 1}"
        return self._new(model_call_completed=call)

    def verified(self, reward: float) -> pb.RolloutEvent:
        verdict = pb.Verification(
            status=pb.VERIFICATION_STATUS_VERIFIED,
            reward=reward,
            verifier="scripted",
            verifier_version="1",
        )
        return self._new(verified=pb.Verified(verification=verdict))

    def pending(self, _: Any) -> pb.RolloutEvent:
        verdict = pb.Verification(
            status=pb.VERIFICATION_STATUS_PENDING, reason="judged later", verifier="scripted"
        )
        return self._new(verified=pb.Verified(verification=verdict))

    def completed(self, _: Any) -> pb.RolloutEvent:
        end = pb.Completed(stop_reason=pb.STOP_REASON_MODEL_FINISHED, counts=self._counts)
        return self._new(completed=end)

    def failed(self, value: Mapping[str, Any]) -> pb.RolloutEvent:
        error = make_error(value["reason"], grpc.StatusCode[value["code"]], "as scripted")
        failure = pb.Failure(
            boundary=pb.Boundary.Value(f"BOUNDARY_{value['boundary']}"),
            status=error.status,
            retry_safe=value.get("retry_safe", False),
            component="scripted",
        )
        return self._new(failed=pb.Failed(failure=failure, counts=self._counts))


_EVENTS: Final[Mapping[str, Any]] = {
    "started": _Runner.started,
    "model": _Runner.model,
    "verified": _Runner.verified,
    "pending": _Runner.pending,
    "completed": _Runner.completed,
    "failed": _Runner.failed,
}


def _expanded(steps: Sequence[Any]) -> list[Any]:
    """The steps, with `whole` written out."""
    return [one for step in steps for one in (_WHOLE if step == "whole" else (step,))]
