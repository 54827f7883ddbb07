"""The checks of `gym-cli env test`: they try an environment before its first rollout.

The checks call the environment directly, as an agent in the same process does. A fault of the
environment's code is a finding. A typed refusal, such as TASK_INVALID, is not a finding. A reward
for an empty rollout is a warning. Each call has a time limit.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any

import jsonschema

from gymmesh.errors.v1 import errors_pb2
from gymmesh.resource.v1 import resource_pb2
from gymmesh.responses.v1 import responses_pb2
from gymmesh.rollout.v1 import rollout_pb2
from gymmesh.verify.v1 import verify_pb2
from gymmesh_resource.checks.calls import (
    CALL_S,
    FAULTS,
    REWARD,
    EnvironmentCalls,
    Finding,
    Flaw,
    Warned,
)
from gymmesh_resource.sample_arguments import CannotMakeUp, made_up
from gymmesh_resource.service import ResourceService
from gymmesh_responses import CodecError, dumps, loads, new_message
from gymmesh_runtime.errors import MeshError
from gymmesh_runtime.peers import PeerDirectory

_IN_FLIGHT = 64
# Sessions at a time that have sandboxes, each of which takes a place of the service.
_WITH_SANDBOXES = 8
_SHOWN = 200  # characters
_NO_TOOL = "no_such_tool_here"


async def try_out(
    service: ResourceService,
    directory: PeerDirectory,
    *,
    tasks: Sequence[rollout_pb2.Task] = (),
    sessions: int = 100,
) -> list[Finding]:
    """Check an environment whose service is open. `tasks`: replace its example tasks.
    `sessions`: how many sessions the load check opens at a time.
    """
    trial = _Trial(service, directory, tasks)
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
        ("load", partial(trial.bears_load, sessions)),
    ]
    return [await _found(name, check) for name, check in checks]


async def _found(name: str, check: Callable[[], Awaitable[str]]) -> Finding:
    try:
        return Finding(name, True, await check())
    except Flaw as flaw:
        return Finding(name, False, str(flaw))
    except Warned as warning:
        return Finding(name, True, str(warning), warning=True)
    except MeshError as error:
        return Finding(name, False, f"{error.reason_name}: {error.message}")


class _Trial(EnvironmentCalls):
    """The checks of one environment. Each returns a line for people, or raises Flaw or Warned."""

    async def describes(self) -> str:
        about = await self.about()
        if not about.description:
            raise Flaw(
                "the class has no docstring. Write a docstring that says what the environment is"
            )
        kind = "multi-turn" if about.multi_turn else "single-turn"
        asks = f", calls the models {', '.join(about.models)}" if about.models else ""
        boxes = f", uses the sandboxes {', '.join(about.sandboxes)}" if about.sandboxes else ""
        return f"version {about.version}, {kind}{asks}{boxes}"

    async def has_sound_tools(self) -> str:
        """The tools have names, descriptions and schemas that model endpoints accept."""
        request = resource_pb2.ListToolsRequest(page_size=1000)
        tools = list((await self.resource.ListTools(request, timeout=CALL_S)).tools)
        tasks = await self.tasks()
        if tasks:
            async with self.session(tasks[0]) as opened:
                tools = list(opened.tools)
        for tool in tools:
            _check_tool(tool.function)
        return ", ".join(tool.function.name for tool in tools) or "none"

    async def opens_its_tasks(self) -> str:
        """A session opens for each example task, and each example task has its own id."""
        tasks = await self.tasks()
        if not tasks:
            file = self.service.environment.examples_file()
            if file is not None and not file.exists():
                raise Flaw(
                    f"the file of example tasks is missing: create {file.name}, or pass --tasks "
                    "FILE"
                )
            raise Flaw(
                "the environment has no example tasks. Name a file of task rows in the "
                "class attribute `examples`"
            )
        ids = [task.task_id for task in tasks]
        for task in tasks:
            if ids.count(task.task_id) > 1:
                raise Flaw(f"two tasks have the id {task.task_id!r}")
            async with self.session(task):
                pass
        return "1 opened" if len(tasks) == 1 else f"{len(tasks)} opened"

    async def refuses_a_bare_task(self) -> str:
        """A task without any keys runs, or is refused as TASK_INVALID."""
        bare = rollout_pb2.Task(task_id="bare", environment=self.service.name)
        try:
            async with self.session(bare) as opened:
                await self.judge(opened.session_id, bare)
        except MeshError as error:
            if error.reason == errors_pb2.ERROR_REASON_TASK_INVALID:
                return f"refused: {error.metadata.get('field', '')}"
            if error.reason in FAULTS:
                raise Flaw(
                    f"{error.message} Check the task's keys with task.require in check_task, or "
                    "raise TaskInvalid"
                ) from None
            raise
        return "taken"

    async def keeps_sessions_apart(self) -> str:
        """A session is created once, has its own state, and does not exist after it is closed."""
        task = (await self.some_tasks())[0]
        request = resource_pb2.CreateSessionRequest(task=task, seed=7, request_id=self.new_id())
        first = await self.resource.CreateSession(request, timeout=CALL_S)
        again = await self.resource.CreateSession(request, timeout=CALL_S)
        try:
            if first.session_id != again.session_id:
                raise Flaw("two requests with the same request_id opened two sessions")
            async with self.session(task, seed=7) as other:
                find = self.service.sessions.get
                mine, theirs = (find(one.session_id).session.state for one in (first, other))
            shared = mine is not None and mine is theirs
            # What cannot be changed may be shared.
            if shared and not isinstance(mine, int | float | str | bytes | tuple | frozenset):
                raise Flaw("two sessions share one state. Make a new state for each session")
        finally:
            for _ in range(2):
                await self.close(first.session_id)
        with contextlib.suppress(MeshError):
            await self.call(first.session_id, _NO_TOOL)
            raise Flaw("a closed session still answers calls")
        return "each session opened once, had its own state and ended on close"

    async def answers_wrong_calls(self) -> str:
        """A wrong call of the model is answered with an error text for the model."""
        async with self.session((await self.some_tasks())[0]) as opened:
            unknown = await self.call(opened.session_id, _NO_TOOL)
            if unknown.outcome != rollout_pb2.TOOL_OUTCOME_UNKNOWN_TOOL:
                raise Flaw(
                    "a call to a tool that the environment does not offer was answered "
                    "as if the tool existed"
                )
            for tool in opened.tools:
                answer = await self.call(opened.session_id, tool.function.name, b'{"broken":')
                if answer.outcome == rollout_pb2.TOOL_OUTCOME_UNKNOWN_TOOL:
                    raise Flaw(
                        f"the environment offers the tool {tool.function.name}, but has no "
                        "method call_other to run it. Define call_other"
                    )
                if answer.outcome != rollout_pb2.TOOL_OUTCOME_BAD_ARGUMENTS:
                    raise Flaw(
                        f"the tool {tool.function.name} accepted arguments that are not JSON"
                    )
        return "each wrong call got an error that the model sees"

    async def answers_calls(self) -> str:
        """Each tool answers one valid call, with arguments made up from its schema."""
        task = (await self.some_tasks())[0]
        async with self.session(task) as opened:
            names = [tool.function.name for tool in opened.tools]
        outcomes = []
        for name in names:
            # A session for each, so that no call spoils the next one's.
            async with self.session(task) as opened:
                tool = next((one for one in opened.tools if one.function.name == name), None)
                if tool is not None:
                    outcomes.append(
                        f"{name} {await self._called(opened.session_id, tool.function)}"
                    )
        return ", ".join(outcomes) or "no tools"

    async def _called(self, session_id: str, function: responses_pb2.FunctionTool) -> str:
        """The result of a valid call, in a few words."""
        name = function.name
        try:
            arguments = dumps(made_up(loads(function.parameters_json or b"{}")))
        except CannotMakeUp as error:
            return f"not called ({error})"
        shown = arguments.decode(errors="replace")[:_SHOWN]
        try:
            answer = await self.call(session_id, name, arguments)
        except MeshError as error:
            if error.reason not in FAULTS:
                raise
            raise Flaw(f"{name}({shown}): {error.reason_name}: {error.message}") from None
        if answer.outcome == rollout_pb2.TOOL_OUTCOME_OK:
            return "answers"
        text = answer.text.decode(errors="replace")[:_SHOWN]
        if answer.outcome == rollout_pb2.TOOL_OUTCOME_BAD_ARGUMENTS:
            return f"rejected {shown}: {text}"
        return f"answered {text!r}"

    async def takes_turns(self) -> str:
        """An environment that takes turns replies to a vague answer without a fault."""
        if not (await self.about()).multi_turn:
            return "the environment is single-turn, so this check does not apply"
        async with self.session((await self.some_tasks())[0]) as opened:
            request = resource_pb2.NextTurnRequest(
                session_id=opened.session_id,
                new_items=[new_message("assistant", "I am not sure.")],
                request_id=self.new_id(),
            )
            turn = await self.resource.NextTurn(request, timeout=CALL_S)
        if not turn.items and not turn.done:
            raise Flaw(
                "next_turn returned a Turn without `say`, but the episode is not over. "
                "Set `say`, or `done=True`"
            )
        return "the episode ended after one turn" if turn.done else "answers"

    async def judges_nothing(self) -> str:
        """A rollout without any message gets a verdict, or a typed error."""
        return await self._judged([], "a rollout without messages and calls")

    async def judges_an_empty_answer(self) -> str:
        """A rollout whose answer is empty gets a verdict, or a typed error."""
        return await self._judged([new_message("assistant", "")], "an empty answer")

    async def _judged(self, transcript: Sequence[responses_pb2.Item], what: str) -> str:
        """The verdicts on one transcript, for each task."""
        verdicts: list[tuple[str, str]] = []
        for task in await self.some_tasks():
            async with self.session(task) as opened:
                kind = await self.judge(opened.session_id, task, transcript)
            verdicts.append((task.task_id, kind))
        counts = Counter(kind for _, kind in verdicts)
        said = ", ".join(f"{count} x {kind}" for kind, count in counts.items())
        if paid := next((task_id for task_id, kind in verdicts if _pays(kind)), ""):
            raise Warned(
                f"{said}: {what} gets a reward above 0, first for the task {paid!r}. A policy "
                "would learn to produce such rollouts"
            )
        return said

    async def judges_a_group(self) -> str:
        """A verifier of groups judges two rollouts without any message together."""
        if not (await self.about()).judges_groups:
            return "the verifier does not judge groups"
        for task in await self.some_tasks():
            members = [await self._silent_member(task) for _ in range(2)]
            request = verify_pb2.VerifyGroupRequest(task=task, members=members)
            await self.verifier.VerifyGroup(request, timeout=CALL_S)
        return "the verifier judged a group of two empty rollouts"

    async def _silent_member(self, task: rollout_pb2.Task) -> verify_pb2.GroupMember:
        """A rollout without any message, with its session's state if the environment keeps it."""
        stopped = rollout_pb2.STOP_REASON_MODEL_FINISHED
        member = verify_pb2.GroupMember(rollout_id=self.new_id(), stop_reason=stopped)
        if (await self.about()).keeps_state:
            async with self.session(task) as opened:
                request = verify_pb2.VerifyRequest(
                    session_id=opened.session_id, task=task, stop_reason=stopped
                )
                verified = await self.verifier.Verify(request, timeout=CALL_S)
            member.final_state.CopyFrom(verified.final_state)
            member.verification.CopyFrom(verified.verification)
        return member

    async def judges_calls_alone(self) -> str:
        """A rollout that calls each tool once, and answers nothing, gets a verdict."""
        task = (await self.some_tasks())[0]
        async with self.session(task) as opened:
            items: list[responses_pb2.Item] = []
            for number, tool in enumerate(opened.tools):
                items += await self._call_items(opened.session_id, tool.function, f"call_{number}")
            if not items:
                return "no call was answered" if opened.tools else "no tools"
            said = await self.judge(opened.session_id, task, items)
        if _pays(said):
            raise Warned(
                f"{said} for calling each tool once with made-up arguments and giving no answer. A "
                "policy would learn to produce such rollouts"
            )
        return said

    async def _call_items(
        self, session_id: str, function: responses_pb2.FunctionTool, call_id: str
    ) -> list[responses_pb2.Item]:
        """One valid call and its output; empty if no valid call was found or the call failed."""
        try:
            arguments = dumps(made_up(loads(function.parameters_json or b"{}")))
            answer = await self.call(session_id, function.name, arguments)
        except (CannotMakeUp, MeshError):
            return []  # the check of calls reports it
        call = responses_pb2.FunctionCall(
            name=function.name, call_id=call_id, arguments=arguments, status="completed"
        )
        output = responses_pb2.FunctionCallOutput(call_id=call_id, text=answer.text)
        return [
            responses_pb2.Item(function_call=call),
            responses_pb2.Item(function_call_output=output),
        ]

    async def bears_load(self, sessions: int) -> str:
        """Many sessions are opened, called, judged and closed at the same time without a fault."""
        tasks = await self.some_tasks()
        about = await self.about()
        limit = about.session_limit
        count = min(sessions, limit) if limit else sessions
        if about.sandboxes:
            count = min(count, _WITH_SANDBOXES)
        places = asyncio.Semaphore(_IN_FLIGHT)
        started = time.perf_counter()
        async with contextlib.AsyncExitStack() as stack:

            async def one(task: rollout_pb2.Task) -> None:
                async with places:
                    opened = await stack.enter_async_context(self.session(task))
                    await self.call(opened.session_id, _NO_TOOL)
                    await self.judge(opened.session_id, task)

            results = await asyncio.gather(
                *(one(tasks[number % len(tasks)]) for number in range(count)),
                return_exceptions=True,
            )
        took = time.perf_counter() - started
        failed = [error for error in results if isinstance(error, BaseException)]
        if failed:
            raise Flaw(f"{len(failed)} of {count} sessions failed; the first error is: {failed[0]}")
        if left := len(self.service.sessions):
            raise Flaw(f"sessions are still open at the end of the check: {left}")
        return f"{count} sessions at a time, {took / count * 1000:.1f} ms each"


def _pays(verdict: str) -> bool:
    return verdict.startswith(REWARD) and float(verdict.removeprefix(REWARD)) > 0


def _check_tool(function: responses_pb2.FunctionTool) -> None:
    name = function.name
    if not function.description:
        raise Flaw(
            f"the tool {name} has no description, so a model can't know what the tool does. Write "
            "a docstring for the tool"
        )
    try:
        schema: Any = loads(function.parameters_json or b"{}")
        jsonschema.Draft202012Validator.check_schema(schema)
    except (CodecError, jsonschema.SchemaError) as error:
        raise Flaw(f"the parameters of the tool {name} are not a JSON Schema: {error}") from None
    if schema and schema.get("type") != "object":
        raise Flaw(f"the parameters of the tool {name} are not a JSON Schema with the type object")
