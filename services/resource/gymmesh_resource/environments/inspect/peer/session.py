"""One sample of the evaluation, and who plays it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
from inspect_ai.log import EvalSample
from inspect_ai.model import (
    ChatCompletionChoice,
    ChatMessage,
    ChatMessageAssistant,
    ContentImage,
    ContentText,
    ModelAPI,
    ModelOutput,
    execute_tools,
    messages_from_openai_responses,
)
from inspect_ai.solver import TaskState
from inspect_ai.solver._task_state import sample_state
from inspect_ai.tool import ToolCall, ToolDef, ToolInfo

_STOPS = {
    "STOP_REASON_MAX_OUTPUT_TOKENS": "max_tokens",
    "STOP_REASON_CONTEXT_LENGTH": "model_length",
    "STOP_REASON_CONTENT_FILTER": "content_filter",
}
_SUBMIT = "submit"
_Work = Callable[[], Awaitable[Any]]

#: The sessions whose samples run, by the sample's id and epoch.
RUNNING: dict[tuple[str, int], SampleSession] = {}


class SampleFailed(Exception):
    """What the sample's solver, scorer or sandbox raised, or why it was given up."""


class PromptReached(Exception):
    """The solver called the model in a sample that nobody plays: its messages are the prompt."""


class SampleSession:
    """A sample and the steps of its life, each a future that the service waits for.

    api: the model that its solver and scorers reach. None: our agent plays in place of the
        solver's first call of the model.
    opened: its `tools` and those `left_out`, where our agent plays. played: its solver has ended.
        judged: its verdict was asked for. ended: what the evaluation made of it.
    scope: cancels what runs of the sample now. failure: what its solver raised.
    asked: the messages of the solver's first call, where our agent plays. probe: only they are
        wanted. may_ask_judge: whether its scorers may call the service's model. closed: it was
        given up.
    """

    def __init__(
        self,
        host: Any,
        session_id: str,
        sample: Any,
        sandboxes: list[str],
        *,
        judge: bool = False,
        probe: bool = False,
    ) -> None:
        loop = asyncio.get_running_loop()
        self.host, self.id, self.sample = host, session_id, sample
        self.sandboxes = sandboxes
        self.may_ask_judge, self.probe = judge, probe
        self.asked: list[ChatMessage] = []
        self.failure: Exception | None = None
        self.closed = False
        self.api: ModelAPI | None = None
        self.output: ModelOutput | None = None
        self.scope: anyio.CancelScope | None = None
        self.opened: asyncio.Future[dict[str, Any]] = loop.create_future()
        self.played: asyncio.Future[None] = loop.create_future()
        self.judged: asyncio.Future[None] = loop.create_future()
        self.ended: asyncio.Future[EvalSample] = loop.create_future()
        for future in (self.opened, self.played, self.judged, self.ended):
            future.add_done_callback(_retrieved)
        self._shown: list[ChatMessage] = []
        self._messages: list[ChatMessage] = []
        self._tools: dict[str, ToolDef] = {}
        self._submits = False
        self._submitted: str | None = None
        self._inbox: asyncio.Queue[tuple[_Work, asyncio.Future[Any]]] = asyncio.Queue()

    async def show(self, prompt: list[Any]) -> None:
        """What our agent is shown before anything else, as Responses items."""
        self._shown = await messages_from_openai_responses(prompt)

    async def hand_over(self, messages: list[ChatMessage], tools: Any, *, submits: bool) -> None:
        """In the sample: offer its tools to our agent, and serve their calls until the verdict.

        submits: whether a tool `submit` gives the answer and ends the episode, as in agents.
        """
        self.asked = list(messages)
        if self.probe:
            raise PromptReached
        if self.sample.choices and _last_user(messages) != _last_user(self._shown):
            raise SampleFailed(
                "the row's prompt does not have the choices that the solver shows. Either the "
                "choices change with each run, or the row has another prompt. Set the option "
                "`solver: own`"
            )
        left_out: list[str] = []
        self._tools = {tool.name: tool for tool in await _definitions(tools, left_out)}
        self._submits = submits
        described = [_described(tool) for tool in self._tools.values()]
        settle(self.opened, {"tools": described, "left_out": left_out})
        while not self.judged.done():
            work, answer = await self._inbox.get()
            try:
                settle(answer, await work())
            except Exception as error:
                settle(answer, error)

    async def call_tool(self, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """A call of our agent's, run in the sample by Inspect."""

        async def work() -> dict[str, Any]:
            request = ToolCall(id="call", function=name, arguments=arguments)
            message = ChatMessageAssistant(content="", tool_calls=[request])
            result = await execute_tools([message], list(self._tools.values()))
            answer = result.messages[0]
            if answer.error is not None:
                return {"error": answer.error.message}
            done = self._submits and name == _SUBMIT
            if done:
                self._submitted = answer.text
            return {"output": _parts(answer.content), "done": done}

        return dict(await self._in_sample(work))

    async def judge(self, items: list[Any], stop: str) -> None:
        """Let the sample go on to its scorers, with our agent's conversation if it played."""
        if self.api is not None:
            settle(self.judged, None)
            return
        self._messages = await messages_from_openai_responses(items)
        output = ModelOutput(model="gymmesh")
        last = next((one for one in reversed(self._messages) if one.role == "assistant"), None)
        if last is not None:
            choice = ChatCompletionChoice(message=last, stop_reason=_STOPS.get(stop, "stop"))
            output = ModelOutput(model="gymmesh", choices=[choice])
        if self._submitted is not None:
            output.completion = self._submitted

        async def work() -> None:
            self.output = output
            settle(self.judged, None)

        await self._in_sample(work)

    def put(self, state: TaskState) -> None:
        """Our agent's conversation as the sample's."""
        assert self.output is not None, "it was judged"
        state.messages, state.output = self._messages, self.output

    def end(self, sample: EvalSample | None) -> None:
        """The evaluation is done with it; None: it never ran."""
        if sample is None or sample.error is not None:
            problem = "Inspect never ran the sample" if sample is None else sample.error.message
            for future in (self.opened, self.played, self.ended):
                settle(future, self.failure or SampleFailed(problem))
            return
        for future in (self.opened, self.played):
            settle(future, SampleFailed("the sample ended before the solver ended"))
        settle(self.ended, sample)

    def stop(self) -> None:
        """End its solver; there may be a verdict on what it did."""
        if self.scope is not None:
            self.scope.cancel()

    def cancel(self) -> None:
        """End the sample, whatever it waits for or does."""
        self.closed = True
        settle(self.judged, None)
        settle(self.ended, SampleFailed("the session was closed"))
        self.stop()

    async def _in_sample(self, work: _Work) -> Any:
        """What `work` returns, run in the sample's own context. Raises what it raises."""
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        answer.add_done_callback(_retrieved)
        self._inbox.put_nowait((work, answer))
        await asyncio.wait([answer, self.ended], return_when=asyncio.FIRST_COMPLETED)
        if answer.done():
            return answer.result()
        self.ended.result()
        raise SampleFailed("the sample has ended")


def current_session() -> SampleSession | None:
    """The session of the sample that runs in this context, if any."""
    state = sample_state()
    return None if state is None else RUNNING.get((str(state.sample_id), state.epoch))


def settle(future: asyncio.Future[Any], outcome: Any) -> None:
    """Give a future its result or its exception, where it has none."""
    if future.done():
        return
    if isinstance(outcome, Exception):
        future.set_exception(outcome)
    else:
        future.set_result(outcome)


def _retrieved(future: asyncio.Future[Any]) -> None:
    """Nobody may wait for it: its exception is not to be reported as lost."""
    if not future.cancelled():
        future.exception()


async def _definitions(tools: Any, left_out: list[str]) -> list[ToolDef]:
    """The tools that can be called; `left_out` gets those that only a model's host runs."""
    found: list[ToolDef] = []
    for tool in tools if isinstance(tools, list | tuple) else [tools]:
        if isinstance(tool, ToolDef):
            found.append(tool)
        elif isinstance(tool, ToolInfo):
            left_out.append(tool.name)
        elif hasattr(tool, "tools"):
            found += await _definitions(await tool.tools(), left_out)
        else:
            found.append(ToolDef(tool))
    return found


def _described(tool: ToolDef) -> dict[str, Any]:
    """A tool as Responses JSON."""
    return {
        "type": "function",
        "name": tool.name,
        "description": tool.description,
        "parameters": json.loads(tool.parameters.model_dump_json(exclude_none=True)),
    }


def _parts(content: Any) -> list[dict[str, Any]]:
    """What a tool answered, as content of the Responses API; other kinds are named."""
    if isinstance(content, str):
        return [{"type": "input_text", "text": content}]
    parts: list[dict[str, Any]] = []
    for one in content:
        if isinstance(one, ContentText):
            parts.append({"type": "input_text", "text": one.text})
        elif isinstance(one, ContentImage) and one.image.startswith("data:"):
            parts.append({"type": "input_image", "image_url": one.image})
        else:
            parts.append({"type": "input_text", "text": f"[{one.type}]"})
    return parts


def _last_user(messages: list[ChatMessage]) -> str:
    return next((one.text for one in reversed(messages) if one.role == "user"), "")
