"""Tries an environment out: what an author wants to know before the first rollout.

The checks go over the direct path, as an agent would, and judge the environment's own code: a
fault of it is a finding, a refusal that is typed as such is not. A reward for nothing is a warning.
Each call is bounded.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import jsonschema

from gymmesh.discovery.v1 import discovery_pb2
from gymmesh.errors.v1 import errors_pb2
from gymmesh.resource.v1 import resource_pb2
from gymmesh.responses.v1 import responses_pb2
from gymmesh.rollout.v1 import rollout_pb2
from gymmesh.verify.v1 import verify_pb2
from gymmesh_responses import CodecError, dumps, loads, new_message
from gymmesh_runtime.errors import MeshError
from gymmesh_runtime.peers import PeerDirectory

from ..service import RESOURCE_SERVICE, VERIFY_SERVICE, ResourceService
from .made_up import CannotMakeUp, made_up

__all__ = ["Finding", "try_out"]

_CALL_S = 60.0
_IN_FLIGHT = 64
_REWARD = "reward "
_SHOWN = 200  # characters
_NO_TOOL = "no_such_tool_here"
_Reason = errors_pb2.ErrorReason
_FAULTS = frozenset(
    {
        _Reason.ERROR_REASON_ENVIRONMENT_FAULT,
        _Reason.ERROR_REASON_VERIFIER_FAULT,
        _Reason.ERROR_REASON_INTERNAL_FAULT,
        _Reason.ERROR_REASON_TOOL_TIMEOUT,
        _Reason.ERROR_REASON_VERIFIER_TIMEOUT,
    }
)


@dataclass(frozen=True, slots=True)
class Finding:
    """What one check came to; `detail` is a line for people.

    `warning`: nothing is broken, but its author should look at it.
    """

    check: str
    fine: bool
    detail: str
    warning: bool = False


class _Wrong(Exception):
    """A check's own verdict; the text is for the author."""


class _Doubtful(Exception):
    """A check's warning; the text is for the author."""


async def try_out(
    service: ResourceService,
    directory: PeerDirectory,
    *,
    tasks: Sequence[rollout_pb2.Task] = (),
    sessions: int = 100,
) -> list[Finding]:
    """Check an environment whose service is open. `tasks`: instead of its example tasks;
    `sessions`: how many are held at a time under load.
    """
    trial = _Trial(service, directory, tasks, sessions)
    checks: list[tuple[str, Callable[[], Awaitable[str]]]] = [
        ("describes itself", trial.describes),
        ("tools", trial.has_sound_tools),
        ("tasks", trial.opens_its_tasks),
        ("a task without its keys", trial.refuses_a_bare_task),
        ("sessions", trial.keeps_sessions_apart),
        ("wrong calls", trial.answers_wrong_calls),
        ("calls", trial.answers_calls),
        ("turns", trial.takes_turns),
        ("verdict on nothing", trial.judges_nothing),
        ("verdict on an empty answer", trial.judges_an_empty_answer),
        ("verdict on calls alone", trial.judges_calls_alone),
        ("verdict on a group", trial.judges_a_group),
        ("load", trial.bears_load),
    ]
    return [await _found(name, check) for name, check in checks]


async def _found(name: str, check: Callable[[], Awaitable[str]]) -> Finding:
    try:
        return Finding(name, True, await check())
    except _Wrong as wrong:
        return Finding(name, False, str(wrong))
    except _Doubtful as doubt:
        return Finding(name, True, str(doubt), warning=True)
    except MeshError as error:
        return Finding(name, False, f"{error.reason_name}: {error.message}")


class _Trial:
    """The checks, and the calls that they make."""

    def __init__(
        self,
        service: ResourceService,
        directory: PeerDirectory,
        tasks: Sequence[rollout_pb2.Task],
        sessions: int,
    ) -> None:
        instance = discovery_pb2.Instance(
            id=service.instance_id, service=RESOURCE_SERVICE, name=service.name
        )
        directory.add_direct(instance, service.servicers())
        self._service = service
        self._resource = directory.peer(instance)
        self._verifier = directory.peer(instance, VERIFY_SERVICE)
        self._given = tasks
        self._sessions = sessions
        self._ids = itertools.count(1)

    # ---- checks

    async def describes(self) -> str:
        """It says what it is."""
        about = await self._about()
        if not about.description:
            raise _Wrong("its class has no docstring; write one: it says what the environment is")
        kind = "multi-turn" if about.multi_turn else "single-turn"
        asks = f", asks {', '.join(about.models)}" if about.models else ""
        return f"version {about.version}, {kind}{asks}"

    async def has_sound_tools(self) -> str:
        """Its tools have names, descriptions and schemas that models' hosts take."""
        request = resource_pb2.ListToolsRequest(page_size=1000)
        tools = list((await self._resource.ListTools(request, timeout=_CALL_S)).tools)
        tasks = await self._tasks()
        if tasks:
            async with self._session(tasks[0]) as opened:
                tools = list(opened.tools)
        for tool in tools:
            _check_tool(tool.function)
        return ", ".join(tool.function.name for tool in tools) or "none"

    async def opens_its_tasks(self) -> str:
        """Each of its example tasks has what a session needs, and an id of its own."""
        tasks = await self._tasks()
        if not tasks:
            file = self._service.environment.examples_file()
            if file is not None and not file.exists():
                raise _Wrong(f"its example tasks are missing: write {file.name}, or give --tasks")
            raise _Wrong("it ships no example tasks; name a file of task rows in `examples`")
        ids = [task.task_id for task in tasks]
        for task in tasks:
            if ids.count(task.task_id) > 1:
                raise _Wrong(f"two tasks have the id {task.task_id!r}")
            async with self._session(task):
                pass
        return "1 opened" if len(tasks) == 1 else f"{len(tasks)} opened"

    async def refuses_a_bare_task(self) -> str:
        """A task without any keys is run, or refused as what it is."""
        bare = rollout_pb2.Task(task_id="bare", environment=self._service.name)
        try:
            async with self._session(bare) as opened:
                await self._judge(opened.session_id, bare)
        except MeshError as error:
            if error.reason == _Reason.ERROR_REASON_TASK_INVALID:
                return f"refused: {error.metadata.get('field', '')}"
            if error.reason in _FAULTS:
                raise _Wrong(
                    f"{error.message} Look into the task with task.require in check_task, or "
                    "raise TaskInvalid"
                ) from None
            raise
        return "taken"

    async def keeps_sessions_apart(self) -> str:
        """Sessions are created once, have state of their own, and are gone when closed."""
        task = (await self._some_tasks())[0]
        request = resource_pb2.CreateSessionRequest(task=task, seed=7, request_id=self._id())
        first = await self._resource.CreateSession(request, timeout=_CALL_S)
        again = await self._resource.CreateSession(request, timeout=_CALL_S)
        try:
            if first.session_id != again.session_id:
                raise _Wrong("one request_id opened two sessions")
            async with self._session(task, seed=7) as other:
                find = self._service.sessions.get
                mine, theirs = (find(one.session_id).session.state for one in (first, other))
            if mine is not None and mine is theirs and _can_change(mine):
                raise _Wrong("two sessions share one state; make a fresh one for each")
        finally:
            for _ in range(2):
                await self._close(first.session_id)
        with contextlib.suppress(MeshError):
            await self._call(first.session_id, _NO_TOOL)
            raise _Wrong("a session that was closed still answers")
        return "made once, apart, gone when closed"

    async def answers_wrong_calls(self) -> str:
        """What a model does wrong is an answer that it can learn from."""
        async with self._session((await self._some_tasks())[0]) as opened:
            unknown = await self._call(opened.session_id, _NO_TOOL)
            if unknown.outcome != rollout_pb2.TOOL_OUTCOME_UNKNOWN_TOOL:
                raise _Wrong("a tool that is not offered was called nevertheless")
            for tool in opened.tools:
                answer = await self._call(opened.session_id, tool.function.name, b'{"broken":')
                if answer.outcome == rollout_pb2.TOOL_OUTCOME_UNKNOWN_TOOL:
                    raise _Wrong(f"{tool.function.name} is offered, but call_other is not defined")
                if answer.outcome != rollout_pb2.TOOL_OUTCOME_BAD_ARGUMENTS:
                    raise _Wrong(f"{tool.function.name} took arguments that are not JSON")
        return "told, not raised"

    async def answers_calls(self) -> str:
        """Each tool answers one valid call, with arguments made up from its schema."""
        task = (await self._some_tasks())[0]
        async with self._session(task) as opened:
            names = [tool.function.name for tool in opened.tools]
        told = []
        for name in names:
            # A session for each, so that no call spoils the next one's.
            async with self._session(task) as opened:
                tool = next((one for one in opened.tools if one.function.name == name), None)
                if tool is not None:
                    told.append(f"{name} {await self._called(opened.session_id, tool.function)}")
        return ", ".join(told) or "no tools"

    async def _called(self, session_id: str, function: responses_pb2.FunctionTool) -> str:
        """What came of a valid call, in a few words."""
        name = function.name
        try:
            arguments = dumps(made_up(loads(function.parameters_json or b"{}")))
        except CannotMakeUp as error:
            return f"not called ({error})"
        shown = arguments.decode(errors="replace")[:_SHOWN]
        try:
            answer = await self._call(session_id, name, arguments)
        except MeshError as error:
            if error.reason not in _FAULTS:
                raise
            raise _Wrong(f"{name}({shown}): {error.reason_name}: {error.message}") from None
        if answer.outcome == rollout_pb2.TOOL_OUTCOME_OK:
            return "answers"
        text = answer.text.decode(errors="replace")[:_SHOWN]
        if answer.outcome == rollout_pb2.TOOL_OUTCOME_BAD_ARGUMENTS:
            return f"did not take {shown}: {text}"
        return f"told the model {text!r}"

    async def takes_turns(self) -> str:
        """A turn after an answer that says little comes without a fault, where turns are taken."""
        if not (await self._about()).multi_turn:
            return "takes none"
        async with self._session((await self._some_tasks())[0]) as opened:
            request = resource_pb2.NextTurnRequest(
                session_id=opened.session_id,
                new_items=[new_message("assistant", "I am not sure.")],
                request_id=self._id(),
            )
            turn = await self._resource.NextTurn(request, timeout=_CALL_S)
        if not turn.items and not turn.done:
            raise _Wrong("next_turn said nothing, though the episode is not over")
        return "done after one" if turn.done else "answers"

    async def judges_nothing(self) -> str:
        """A rollout in which nothing was said gets a verdict, or a typed error."""
        return await self._judged([], "a rollout in which nothing was said or done")

    async def judges_an_empty_answer(self) -> str:
        """So does a rollout whose answer is empty."""
        return await self._judged([new_message("assistant", "")], "an empty answer")

    async def judges_a_group(self) -> str:
        """Two rollouts in which nothing was said are judged together, where groups are."""
        if not (await self._about()).judges_groups:
            return "judges none"
        for task in await self._some_tasks():
            members = [
                verify_pb2.GroupMember(
                    rollout_id=self._id(), stop_reason=rollout_pb2.STOP_REASON_MODEL_FINISHED
                )
                for _ in range(2)
            ]
            request = verify_pb2.VerifyGroupRequest(task=task, members=members)
            await self._verifier.VerifyGroup(request, timeout=_CALL_S)
        return "judges two that said nothing"

    async def _judged(self, transcript: Sequence[responses_pb2.Item], what: str) -> str:
        """The verdicts on one transcript, for each task."""
        told: dict[str, int] = {}
        paid = ""
        for task in await self._some_tasks():
            async with self._session(task) as opened:
                kind = await self._judge(opened.session_id, task, transcript)
            told[kind] = told.get(kind, 0) + 1
            if not paid and _pays(kind):
                paid = task.task_id
        said = ", ".join(f"{count} x {kind}" for kind, count in told.items())
        if paid:
            raise _Doubtful(
                f"{said}: {what} is rewarded, first for the task {paid!r}; a policy learns that"
            )
        return said

    async def judges_calls_alone(self) -> str:
        """A rollout that calls each tool once, and answers nothing, gets a verdict."""
        task = (await self._some_tasks())[0]
        async with self._session(task) as opened:
            items: list[responses_pb2.Item] = []
            for number, tool in enumerate(opened.tools):
                items += await self._call_items(opened.session_id, tool.function, f"call_{number}")
            if not items:
                return "no call was answered" if opened.tools else "no tools"
            said = await self._judge(opened.session_id, task, items)
        if _pays(said):
            raise _Doubtful(
                f"{said} for calling each tool once with arguments that are made up, and answering "
                "nothing; a policy learns that"
            )
        return said

    async def _call_items(
        self, session_id: str, function: responses_pb2.FunctionTool, call_id: str
    ) -> list[responses_pb2.Item]:
        """One valid call and its output; nothing where there is none, or it was a fault."""
        try:
            arguments = dumps(made_up(loads(function.parameters_json or b"{}")))
            answer = await self._call(session_id, function.name, arguments)
        except (CannotMakeUp, MeshError):
            return []  # told by the check of calls
        call = responses_pb2.FunctionCall(
            name=function.name, call_id=call_id, arguments=arguments, status="completed"
        )
        output = responses_pb2.FunctionCallOutput(call_id=call_id, text=answer.text)
        return [
            responses_pb2.Item(function_call=call),
            responses_pb2.Item(function_call_output=output),
        ]

    async def bears_load(self) -> str:
        """Many sessions at a time are opened, called, judged and closed without a fault."""
        tasks = await self._some_tasks()
        limit = (await self._about()).session_limit
        count = min(self._sessions, limit) if limit else self._sessions
        places = asyncio.Semaphore(_IN_FLIGHT)
        started = time.perf_counter()
        async with contextlib.AsyncExitStack() as stack:

            async def one(task: rollout_pb2.Task) -> None:
                async with places:
                    opened = await stack.enter_async_context(self._session(task))
                    await self._call(opened.session_id, _NO_TOOL)
                    await self._judge(opened.session_id, task)

            results = await asyncio.gather(
                *(one(tasks[number % len(tasks)]) for number in range(count)),
                return_exceptions=True,
            )
        took = time.perf_counter() - started
        failed = [error for error in results if isinstance(error, BaseException)]
        if failed:
            raise _Wrong(f"{len(failed)} of {count} sessions failed, the first with: {failed[0]}")
        if left := len(self._service.sessions):
            raise _Wrong(f"{left} sessions are left open")
        return f"{count} sessions at a time, {took / count * 1000:.1f} ms each"

    # ---- calls

    async def _about(self) -> resource_pb2.GetEnvironmentResponse:
        request = resource_pb2.GetEnvironmentRequest()
        about: resource_pb2.GetEnvironmentResponse = await self._resource.GetEnvironment(
            request, timeout=_CALL_S
        )
        return about

    async def _tasks(self) -> list[rollout_pb2.Task]:
        if self._given:
            return list(self._given)
        request = resource_pb2.ListTasksRequest(page_size=1000)
        return list((await self._resource.ListTasks(request, timeout=_CALL_S)).tasks)

    async def _some_tasks(self) -> list[rollout_pb2.Task]:
        tasks = await self._tasks()
        if not tasks:
            raise _Wrong("not tried: there are no tasks")
        return tasks

    @asynccontextmanager
    async def _session(
        self, task: rollout_pb2.Task, seed: int | None = None
    ) -> AsyncIterator[resource_pb2.CreateSessionResponse]:
        request = resource_pb2.CreateSessionRequest(task=task, seed=seed, request_id=self._id())
        opened = await self._resource.CreateSession(request, timeout=_CALL_S)
        try:
            yield opened
        finally:
            await self._close(opened.session_id)

    async def _close(self, session_id: str) -> None:
        request = resource_pb2.CloseSessionRequest(session_id=session_id)
        await self._resource.CloseSession(request, timeout=_CALL_S)

    async def _call(
        self, session_id: str, name: str, arguments: bytes = b"{}"
    ) -> resource_pb2.CallToolResponse:
        request = resource_pb2.CallToolRequest(
            session_id=session_id, name=name, arguments=arguments, request_id=self._id()
        )
        answer: resource_pb2.CallToolResponse = await self._resource.CallTool(
            request, timeout=_CALL_S
        )
        return answer

    async def _judge(
        self,
        session_id: str,
        task: rollout_pb2.Task,
        transcript: Sequence[responses_pb2.Item] = (),
    ) -> str:
        """What the verifier makes of a transcript; raises MeshError for a fault."""
        request = verify_pb2.VerifyRequest(
            session_id=session_id,
            task=task,
            transcript=transcript,
            stop_reason=rollout_pb2.STOP_REASON_MODEL_FINISHED,
        )
        try:
            response = await self._verifier.Verify(request, timeout=_CALL_S)
        except MeshError as error:
            if error.reason in _FAULTS or error.reason == _Reason.ERROR_REASON_TASK_INVALID:
                raise
            return error.reason_name
        verdict = response.verification
        if verdict.HasField("reward"):
            return f"{_REWARD}{verdict.reward:g}"
        name = rollout_pb2.VerificationStatus.Name(verdict.status)
        return name.removeprefix("VERIFICATION_STATUS_")

    def _id(self) -> str:
        return f"trial-{next(self._ids)}"


def _pays(verdict: str) -> bool:
    return verdict.startswith(_REWARD) and float(verdict.removeprefix(_REWARD)) > 0


def _check_tool(function: responses_pb2.FunctionTool) -> None:
    name = function.name
    if not function.description:
        raise _Wrong(f"{name} has no description; the model learns nothing about it")
    try:
        schema: Any = loads(function.parameters_json or b"{}")
        jsonschema.Draft202012Validator.check_schema(schema)
    except (CodecError, jsonschema.SchemaError) as error:
        raise _Wrong(f"{name}: its parameters are no JSON Schema: {error}") from None
    if schema and schema.get("type") != "object":
        raise _Wrong(f"{name}: its parameters are no object")


def _can_change(state: object) -> bool:
    return not isinstance(state, int | float | str | bytes | tuple | frozenset)
