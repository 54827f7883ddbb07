"""Tool calls: the tools of a session, and the outcomes of calls.

Invariant: a mistake of the model is an answer that says what to correct; a fault of the environment
is a MeshError.
"""

from __future__ import annotations

import difflib
import time
from collections.abc import Mapping, Sequence
from functools import cache, partial
from typing import Any, Final, TypeAlias

from gymmesh.errors.v1 import errors_pb2
from gymmesh.resource.v1 import resource_pb2
from gymmesh.responses.v1 import responses_pb2
from gymmesh.rollout.v1 import rollout_pb2
from gymmesh_resource.errors import DefinitionError, TookTooLong, ToolError, WrongResult
from gymmesh_resource.serving import metrics
from gymmesh_resource.serving.environment_method import Method
from gymmesh_resource.serving.faults import environment_fault, raise_from
from gymmesh_resource.serving.served_environment import ServedEnvironment
from gymmesh_resource.serving.sessions import OpenSession
from gymmesh_resource.session import Session
from gymmesh_resource.tools import (
    BadArguments,
    ToolResult,
    answer_of,
    read_arguments,
    read_object,
)
from gymmesh_resource.verdicts import turn_reward
from gymmesh_responses import (
    TOOL_NAME_RULE,
    CodecError,
    is_tool_name,
    loads,
    text_to_bytes,
    tool_from_json,
)
from gymmesh_runtime.errors import MeshError
from gymmesh_runtime.telemetry import for_rollout

_Output: TypeAlias = "bytes | responses_pb2.ContentParts"
_MAX_NAMES = 20
# The label in metrics for tools that no class declares, whose names are unbounded in number.
_OTHER: Final = "other"
_UNKNOWN: Final = "unknown"
_OUTCOMES = {
    rollout_pb2.TOOL_OUTCOME_OK: "ok",
    rollout_pb2.TOOL_OUTCOME_TOOL_ERROR: "tool_error",
    rollout_pb2.TOOL_OUTCOME_BAD_ARGUMENTS: "bad_arguments",
    rollout_pb2.TOOL_OUTCOME_UNKNOWN_TOOL: "unknown_tool",
}


class ToolCalls:
    """The tools of one environment, called in its sessions."""

    def __init__(self, served: ServedEnvironment) -> None:
        self._served = served
        self._tools = served.tools
        environment, config = served.environment, served.config
        limit_s = config.tool_timeout_s
        self._methods = {name: served.method(t.call, limit_s) for name, t in self._tools.items()}
        self._calls_others = served.defines("call_other")
        self._call_other = served.method(environment.call_other, limit_s)
        self._session_tools = served.method(environment.session_tools, config.turn_timeout_s)
        self.offered = [tool.message for tool in self._tools.values()]
        self._seconds = cache(partial(metrics.TOOL_SECONDS.labels, served.name))
        self._counts = cache(partial(metrics.TOOL_CALLS.labels, served.name))

    async def further(self, session: Session[Any]) -> list[responses_pb2.Tool]:
        """The tools that a session has beside the environment's. Raises what its code raises."""
        documents = await self._session_tools.call((session,))
        if not isinstance(documents, Sequence) or isinstance(documents, str):
            raise WrongResult("must return a list of tools", self._session_tools.function)
        further = [_session_tool(document) for document in documents]
        names = [*self._tools, *(tool.function.name for tool in further)]
        if len(set(names)) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise DefinitionError(
                f"session_tools returned two tools called {twice!r}. Rename one of these tools."
            )
        return further

    async def call(
        self, opened: OpenSession[Any], request: resource_pb2.CallToolRequest
    ) -> resource_pb2.CallToolResponse:
        """Call a tool in a session; the answer, for the model."""
        name, session = request.name, opened.session
        tool = self._tools.get(name)
        label = _OTHER if tool is None else name
        args: tuple[Any, ...] = ()
        keywords: dict[str, Any] = {}
        try:
            if tool is not None:
                method = self._methods[name]
                keywords = read_arguments(request.arguments, tool.arguments, tool.schema, name)
                if tool.wants_session:
                    keywords["session"] = session
            elif (other := self._others(opened).get(name)) is not None:
                method = self._call_other
                args = (session, name, read_object(request.arguments, _schema(other), name))
            else:
                text = text_to_bytes(self._no_such_tool(opened, name))
                return self._answer(_UNKNOWN, text, rollout_pb2.TOOL_OUTCOME_UNKNOWN_TOOL)
        except BadArguments as error:
            text = text_to_bytes(str(error))
            return self._answer(label, text, rollout_pb2.TOOL_OUTCOME_BAD_ARGUMENTS)
        async with opened.order:
            return await self._run(session, name, label, method, args, keywords)

    async def _run(
        self,
        session: Session[Any],
        name: str,
        label: str,
        method: Method,
        args: tuple[Any, ...],
        keywords: Mapping[str, Any],
    ) -> resource_pb2.CallToolResponse:
        """Call a method for the model; `label` names the tool in metrics."""
        started = time.perf_counter()
        result, reward = ToolResult(""), None
        with for_rollout(session.rollout_id):
            try:
                returned = await method.call(args, keywords)
                result = returned if isinstance(returned, ToolResult) else ToolResult(returned)
                output = answer_of(result.output, method.function)
                reward = self._reward(result, method)
            except ToolError as error:
                result = ToolResult("", error=True)
                output = text_to_bytes(str(error) or f"The tool {name} failed without a reason.")
            except Exception as error:
                self._counts(label, "fault").inc()
                raise_from(self._fault(name, error), error)
        outcome = (
            rollout_pb2.TOOL_OUTCOME_TOOL_ERROR if result.error else rollout_pb2.TOOL_OUTCOME_OK
        )
        answer = self._answer(label, output, outcome)
        if reward is not None:
            answer.reward = reward
        if result.done:
            session.finish()
        seconds = time.perf_counter() - started
        self._seconds(label).observe(seconds, session.rollout_id)
        answer.duration_us = int(seconds * 1e6)
        if session.done:
            answer.done = True
        if self._served.sandboxes:
            session.sandboxes.report(answer)
        return answer

    def _reward(self, result: ToolResult, method: Method) -> float | None:
        """The call's reward. Raises WrongResult for what is not a number of the range."""
        if result.reward is None:
            return None
        try:
            return turn_reward(result.reward, self._served.environment.reward_range)
        except WrongResult as error:
            raise WrongResult(str(error), method.function) from None

    def _fault(self, name: str, error: Exception) -> MeshError:
        if not isinstance(error, TookTooLong):
            return environment_fault(error, self._served.name, "call_tool")
        return MeshError(
            errors_pb2.ERROR_REASON_TOOL_TIMEOUT,
            f"The tool {name!r} ran {error}.",
            metadata={"tool": name, "timeout_s": f"{self._served.config.tool_timeout_s:g}"},
        )

    def _others(self, opened: OpenSession[Any]) -> Mapping[str, responses_pb2.FunctionTool]:
        """The tools of a session and of its task, if the environment answers those."""
        if not self._calls_others:
            return {}
        # The session's last: its tools replace the task's own of the same name.
        tools = [*opened.session.task.message.params.tools, *opened.answer.tools]
        return {
            tool.function.name: tool.function
            for tool in tools
            if tool.function.name and tool.function.name not in self._tools
        }

    def _no_such_tool(self, opened: OpenSession[Any], name: str) -> str:
        names = [*self._tools, *self._others(opened)]
        shown = name if len(name) <= 64 else name[:63] + "…"
        if not names:
            return f"There is no tool {shown!r}: no tools are offered here."
        near = difflib.get_close_matches(name[:200], names, n=1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        more = ", …" if len(names) > _MAX_NAMES else ""
        offered = ", ".join(names[:_MAX_NAMES])
        return f"There is no tool {shown!r}.{hint} The tools are: {offered}{more}."

    def _answer(
        self, label: str, output: _Output, outcome: rollout_pb2.ToolOutcome.ValueType
    ) -> resource_pb2.CallToolResponse:
        self._counts(label, _OUTCOMES[outcome]).inc()
        if isinstance(output, bytes):
            return resource_pb2.CallToolResponse(outcome=outcome, text=output)
        return resource_pb2.CallToolResponse(outcome=outcome, parts=output)


def _session_tool(document: object) -> responses_pb2.Tool:
    if not isinstance(document, Mapping):
        raise DefinitionError(f"session_tools: each tool must be an object, not {document!r:.100}.")
    try:
        tool = tool_from_json(dict(document))
    except CodecError as error:
        raise DefinitionError(f"session_tools: a tool cannot be read: {error}.") from None
    if not tool.HasField("function") or not tool.function.name:
        raise DefinitionError(
            "session_tools: each tool needs 'type': 'function' and its own 'name'."
        )
    if not is_tool_name(tool.function.name):
        raise DefinitionError(
            f"session_tools: {tool.function.name!r:.200} is not a valid tool name; endpoints "
            f"accept {TOOL_NAME_RULE}."
        )
    return tool


def _schema(tool: responses_pb2.FunctionTool) -> Mapping[str, Any]:
    """The parameters' schema, as far as it says anything."""
    try:
        schema = loads(tool.parameters_json) if tool.parameters_json else {}
    except CodecError:
        return {}
    return schema if isinstance(schema, dict) else {}
