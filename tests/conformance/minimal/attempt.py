"""One attempt of the minimal agent, in the order that agent.proto gives.

The session, `started`, then the model with its tools or turns until there is a stop reason, then
the verdict, `verified` and `completed`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Final

import grpc
from google.rpc import status_pb2

from gymmesh.agent.v1 import agent_pb2
from gymmesh.model.v1 import model_pb2, model_pb2_grpc
from gymmesh.resource.v1 import resource_pb2, resource_pb2_grpc
from gymmesh.responses.v1 import responses_pb2
from gymmesh.rollout.v1 import rollout_pb2 as pb
from gymmesh.verify.v1 import verify_pb2, verify_pb2_grpc
from tests.conformance.minimal.params import first_items, merged_params
from tests.conformance.minimal.status import make_status, reason_of, status_of
from tests.conformance.minimal.verdicts import (
    age_of,
    of_group,
    problem,
    rule_of,
    with_turns,
)

_LONGEST_S: Final = 600.0
_CUT: Final = {
    "max_output_tokens": pb.STOP_REASON_MAX_OUTPUT_TOKENS,
    "content_filter": pb.STOP_REASON_CONTENT_FILTER,
    "aborted": pb.STOP_REASON_ABORTED,
}
_closing: set[asyncio.Task[Any]] = set()  # keeps tasks from being collected while they run


class Failed(Exception):
    """The attempt failed; holds the one cause."""

    def __init__(self, failure: pb.Failure) -> None:
        super().__init__(failure.status.message)
        self.failure = failure


async def sessions_closed() -> None:
    """Waits for sessions that are being closed, each for a bounded time."""
    loop = asyncio.get_running_loop()
    await asyncio.gather(*(task for task in _closing if task.get_loop() is loop))


class Attempt:
    """One attempt; `emit` takes its events as they happen."""

    def __init__(
        self,
        finder: Any,
        about: agent_pb2.GetAgentResponse,
        request: agent_pb2.RunRolloutRequest,
        emit: Callable[[pb.RolloutEvent], None],
    ) -> None:
        self._finder = finder
        self._about = about
        self._request = request
        self._options = request.options
        self._emit_event = emit
        self._attempt = request.attempt or 1
        self._sequence = 0
        self._began = time.monotonic()
        self._ends = self._began + _LONGEST_S
        self._counts = pb.Counts()
        self._params = responses_pb2.ResponseParams()
        self._items: list[responses_pb2.Item] = []  # the whole conversation
        self._first = 0  # how many of them were there at the start
        self._turned = 0  # how many of them the environment has seen
        self._rewards: list[float] = []
        self._versions: list[int] = []  # of the weights that wrote the answers
        self._environment = resource_pb2.GetEnvironmentResponse(retry_safe=True)
        self._resource: Any = None
        self._session = resource_pb2.CreateSessionResponse()
        self._last_call = ""

    async def run(self, deadline: float | None) -> None:
        """Runs it; the last event says how it ended. `deadline`: seconds, or None."""
        budget = self._options.max_wall_s if self._options.HasField("max_wall_s") else None
        limit = min((one for one in (deadline, budget) if one is not None), default=None)
        self._ends = time.monotonic() + (_LONGEST_S if limit is None else limit)
        try:
            async with asyncio.timeout(limit):
                await self._run()
        except Failed as exc:
            exc.failure.retry_safe &= self._environment.retry_safe
            self._fail(exc.failure)
        except TimeoutError:
            self._fail(_out_of_time(over_budget=limit == budget))
        except Exception as exc:
            code, reason = grpc.StatusCode.INTERNAL, "AGENT_FAULT"
            status = make_status(code, reason, type(exc).__name__, agent=self._about.name)
            self._fail(pb.Failure(boundary=pb.BOUNDARY_AGENT, status=status))

    def cancelled(self) -> None:
        """Ends it because its collector does not want it any more."""
        status = make_status(grpc.StatusCode.CANCELLED, "CALLER_CANCELLED", "cancelled")
        self._fail(pb.Failure(boundary=pb.BOUNDARY_CANCELLED, status=status))

    def close_session(self) -> None:
        """Closes the session beside whatever comes next."""
        if not self._session.session_id:
            return
        request = resource_pb2.CloseSessionRequest(session_id=self._session.session_id)

        async def close() -> None:
            await asyncio.gather(
                self._resource.CloseSession(request, timeout=5.0), return_exceptions=True
            )

        task = asyncio.create_task(close())
        _closing.add(task)
        task.add_done_callback(_closing.discard)

    async def _run(self) -> None:
        await self._open()
        self._start()
        reason = await self._loop()
        verdict = await self._judge(reason)
        self._emit(verified=pb.Verified(verification=verdict))
        done = pb.Completed(stop_reason=reason, counts=self._counts, duration_us=self._elapsed())
        self._end(done)

    async def _open(self) -> None:
        task = self._request.task
        async with _stage(pb.BOUNDARY_RESOURCE, task.environment):
            service = "gymmesh.resource.v1.ResourceService"
            channel = await self._channel(pb.BOUNDARY_RESOURCE, service, task.environment)
            self._resource = resource_pb2_grpc.ResourceServiceStub(channel)
            self._verifier: Any = verify_pb2_grpc.VerifyServiceStub(channel)
            about = resource_pb2.GetEnvironmentRequest()
            self._environment = await self._resource.GetEnvironment(about, timeout=self._left())
            request = resource_pb2.CreateSessionRequest(
                task=task,
                seed=task.seed if task.HasField("seed") else None,
                request_id=self._name("session"),
                rollout_id=self._request.rollout_id,
                attempt=self._attempt,
            )
            self._session = await self._resource.CreateSession(request, timeout=self._left())
        self._params = merged_params(task, self._options, self._session)

    def _start(self) -> None:
        self._items = first_items(self._request.task.params, self._session)
        self._first = self._turned = len(self._items)
        started = pb.Started(
            params=self._params,
            items=self._items,
            environment=self._request.task.environment,
            environment_version=self._session.environment_version,
            agent=self._about.name,
            agent_version=self._about.version,
            agent_instance_id=self._about.instance_id,
            resource_instance_id=self._session.instance_id,
            session_id=self._session.session_id,
            contract_version="1.0",
        )
        if self._session.session_id:
            started.seed = self._session.seed
        self._emit(started=started)

    async def _loop(self) -> pb.StopReason.ValueType:
        while True:
            limit = self._limit()
            if limit is not None:
                return limit
            answer = await self._call_model()
            if answer is None:
                return pb.STOP_REASON_CONTEXT_LENGTH
            if answer.status == "incomplete":
                cut = _CUT.get(answer.incomplete_details.reason)
                return pb.STOP_REASON_AGENT_RULE if cut is None else cut
            calls = [item.function_call for item in answer.output if item.HasField("function_call")]
            if calls:
                done = await self._call_tools(calls)
            elif self._session.multi_turn:
                done = await self._take_turn()
            else:
                return pb.STOP_REASON_MODEL_FINISHED
            if done:
                return pb.STOP_REASON_ENVIRONMENT_DONE

    def _limit(self) -> pb.StopReason.ValueType | None:
        options = self._options
        if options.HasField("max_steps") and self._counts.model_calls >= options.max_steps:
            return pb.STOP_REASON_MAX_STEPS
        spent = self._counts.output_tokens
        if options.HasField("max_total_output_tokens") and spent >= options.max_total_output_tokens:
            return pb.STOP_REASON_MAX_OUTPUT_TOKENS
        return None

    async def _call_model(self) -> responses_pb2.Response | None:
        role = "policy"
        name = self._options.models.get(role, role)
        call_id = f"m{self._counts.model_calls + 1}"
        params = responses_pb2.ResponseParams()
        params.CopyFrom(self._params)
        params.input.extend(self._items)
        request = model_pb2.CreateResponseRequest(
            params=params,
            rollout_id=self._request.rollout_id,
            request_id=self._name(call_id),
            call_id=call_id,
        )
        if self._options.HasField("capture"):
            request.capture.CopyFrom(self._options.capture)
        sent = time.monotonic()
        try:
            async with _stage(pb.BOUNDARY_MODEL, name, call_id):
                service = "gymmesh.model.v1.ModelService"
                channel = await self._channel(pb.BOUNDARY_MODEL, service, name)
                model: Any = model_pb2_grpc.ModelServiceStub(channel)
                answer = await model.CreateResponse(request, timeout=self._left())
        except Failed as exc:
            if reason_of(exc.failure.status) == "MODEL_CONTEXT_EXCEEDED":
                return None
            raise
        self._counts.model_calls += 1
        self._counts.input_tokens += answer.response.usage.input_tokens
        self._counts.output_tokens += answer.response.usage.output_tokens
        call = pb.ModelCallCompleted(
            call_id=call_id,
            parent_call_id=self._last_call,
            model=name,
            trainable=True,
            response=answer.response,
            tokens=answer.tokens if answer.HasField("tokens") else None,
            timings=pb.CallTimings(queue_us=answer.queue_us, total_us=_since(sent)),
        )
        self._emit(model_call_completed=call)
        self._items.extend(answer.response.output)
        self._last_call = call_id
        self._check_age(answer.tokens.weights)
        return answer.response  # type: ignore[no-any-return]  # the stub is untyped here

    def _check_age(self, spans: Any) -> None:
        self._versions += [span.version for span in spans]
        age = age_of(self._versions)
        if self._options.HasField("max_staleness") and age > self._options.max_staleness:
            details = {"oldest": str(min(self._versions)), "current": str(max(self._versions))}
            status = make_status(grpc.StatusCode.ABORTED, "WEIGHTS_STALE", "too old", **details)
            raise Failed(pb.Failure(boundary=pb.BOUNDARY_BUDGET, status=status, retry_safe=True))

    async def _call_tools(self, calls: list[responses_pb2.FunctionCall]) -> bool:
        for call in calls:
            begun = pb.ToolCallStarted(
                call_id=call.call_id, name=call.name, model_call_id=self._last_call
            )
            self._emit(tool_call_started=begun)
        if self._session.tools_in_order:
            answers = [await self._call_tool(call) for call in calls]
        else:
            answers = await self._call_concurrently(calls)
        self._items.extend(output for output, _ in answers)
        return any(done for _, done in answers)

    async def _call_concurrently(
        self, calls: list[responses_pb2.FunctionCall]
    ) -> list[tuple[responses_pb2.Item, bool]]:
        tasks = [asyncio.create_task(self._call_tool(call)) for call in calls]
        try:
            return await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()

    async def _call_tool(self, call: responses_pb2.FunctionCall) -> tuple[responses_pb2.Item, bool]:
        request = resource_pb2.CallToolRequest(
            session_id=self._session.session_id,
            name=call.name,
            arguments=call.arguments,
            call_id=call.call_id,
            request_id=self._name(f"{self._last_call}-{call.call_id}"),
        )
        sent = time.monotonic()
        async with _stage(pb.BOUNDARY_TOOL, call.name, call.call_id):
            answer = await self._resource.CallTool(request, timeout=self._left())
        output = responses_pb2.Item()
        output.function_call_output.call_id = call.call_id
        if answer.WhichOneof("output") == "parts":
            output.function_call_output.parts.CopyFrom(answer.parts)
        else:
            output.function_call_output.text = answer.text
        self._counts.tool_calls += 1
        completed = pb.ToolCallCompleted(
            call_id=call.call_id,
            name=call.name,
            model_call_id=self._last_call,
            output=output,
            outcome=answer.outcome,
            timings=pb.CallTimings(total_us=_since(sent)),
        )
        self._emit(tool_call_completed=completed)
        return output, answer.done

    async def _take_turn(self) -> bool:
        turn = self._counts.turns + 1
        request = resource_pb2.NextTurnRequest(
            session_id=self._session.session_id,
            new_items=self._items[self._turned :],
            request_id=self._name(f"turn-{turn}"),
        )
        async with _stage(pb.BOUNDARY_RESOURCE, self._request.task.environment):
            answer = await self._resource.NextTurn(request, timeout=self._left())
        self._counts.turns = turn
        taken = pb.TurnCompleted(
            turn=turn,
            model_call_id=self._last_call,
            items=answer.items,
            reward=answer.reward if answer.HasField("reward") else None,
            done=answer.done,
            model_usage=answer.model_usage,
        )
        self._emit(turn_completed=taken)
        if answer.HasField("reward"):
            self._rewards.append(answer.reward)
        self._items.extend(answer.items)
        self._turned = len(self._items)
        return bool(answer.done)

    async def _judge(self, reason: pb.StopReason.ValueType) -> pb.Verification:
        if self._options.skip_verification:
            return pb.Verification(
                status=pb.VERIFICATION_STATUS_SKIPPED, reason="skip_verification was asked for"
            )
        request = verify_pb2.VerifyRequest(
            session_id=self._session.session_id,
            task=self._request.task,
            transcript=self._items[self._first :],
            stop_reason=reason,
            rollout_id=self._request.rollout_id,
            attempt=self._attempt,
            turn_rewards=self._rewards,
        )
        environment = self._request.task.environment
        async with _stage(pb.BOUNDARY_VERIFIER, environment):
            answer = await self._verifier.Verify(request, timeout=self._left())
        verdict = with_turns(answer.verification, self._environment.reward_rule, self._rewards)
        if broken := problem(verdict):
            code = grpc.StatusCode.INTERNAL
            status = make_status(code, "CONTRACT_VIOLATED", "no verdict", rule=broken)
            failure = pb.Failure(boundary=pb.BOUNDARY_VERIFIER, status=status)
            raise Failed(failure)
        return of_group(verdict, judges_groups=self._environment.judges_groups)

    def _left(self) -> float:
        """Seconds that remain of the attempt: no call made for it gets more."""
        return max(0.0, self._ends - time.monotonic())

    async def _channel(
        self, boundary: pb.Boundary.ValueType, service: str, name: str
    ) -> grpc.aio.Channel:
        instance = await self._finder.find(service, name)
        if instance is None:
            code, reason = grpc.StatusCode.NOT_FOUND, "SERVICE_NOT_FOUND"
            status = make_status(code, reason, f"no '{name}'", service=service, name=name)
            failure = pb.Failure(boundary=boundary, status=status, component=name, retry_safe=True)
            raise Failed(failure)
        return self._finder.channel(instance.address)  # type: ignore[no-any-return]  # likewise

    def _fail(self, failure: pb.Failure) -> None:
        if self._sequence == 0:
            self._start()  # the first event is always `started`
        end = pb.Failed(failure=failure, counts=self._counts, duration_us=self._elapsed())
        self._end(end)

    def _end(self, end: pb.Completed | pb.Failed) -> None:
        end.events = self._sequence + 1
        if isinstance(end, pb.Completed):
            self._emit(completed=end)
        else:
            self._emit(failed=end)

    def _emit(self, **event: Any) -> None:
        self._sequence += 1
        self._emit_event(
            pb.RolloutEvent(
                rollout_id=self._request.rollout_id,
                attempt=self._attempt,
                sequence=self._sequence,
                record_time_unix_nano=time.time_ns(),
                **event,
            )
        )

    def _elapsed(self) -> int:
        return _since(self._began)

    def _name(self, part: str) -> str:
        return f"{self._request.rollout_id}/{self._attempt}/{part}"


@asynccontextmanager
async def _stage(
    boundary: pb.Boundary.ValueType, component: str, call_id: str = ""
) -> AsyncIterator[None]:
    """What fails in here is attributed to this boundary."""
    try:
        yield
    except grpc.aio.AioRpcError as exc:
        status = status_of(exc)
        rule = rule_of(status)
        failure = pb.Failure(
            boundary=rule.boundary or boundary,
            status=status,
            retry_safe=rule.retry_safe,
            component=component,
            call_id=call_id,
        )
        raise Failed(failure) from None


def _out_of_time(*, over_budget: bool) -> pb.Failure:
    code = grpc.StatusCode.ABORTED if over_budget else grpc.StatusCode.DEADLINE_EXCEEDED
    reason = "BUDGET_SPENT" if over_budget else "DEADLINE_PASSED"
    status: status_pb2.Status = make_status(code, reason, "the time is over")
    boundary = pb.BOUNDARY_BUDGET if over_budget else pb.BOUNDARY_DEADLINE
    return pb.Failure(boundary=boundary, status=status, retry_safe=True)


def _since(start: float) -> int:
    return int((time.monotonic() - start) * 1e6)
