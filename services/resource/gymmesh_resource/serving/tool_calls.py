"""Tool calls: which tools a session has, and what comes of calling one.

Invariant: what the model did wrong is an answer that says what to mend; what the environment did
wrong is a MeshError.
"""

from __future__ import annotations

import contextlib
import difflib
import time
from collections.abc import Mapping, Sequence
from functools import cache, partial
from typing import Any, TypeAlias

from gymmesh.errors.v1 import errors_pb2
from gymmesh.resource.v1 import resource_pb2
from gymmesh.responses.v1 import responses_pb2
from gymmesh.rollout.v1 import rollout_pb2
from gymmesh_responses import (
    TOOL_NAME_RULE,
    CodecError,
    is_tool_name,
    loads,
    text_to_bytes,
    tool_from_json,
)
from gymmesh_runtime import metrics
from gymmesh_runtime.errors import MeshError
from gymmesh_runtime.in_rollout import for_rollout

from ..errors import DefinitionError, TookTooLong, ToolError, WrongResult
from ..session import Session
from ..tools import BadArguments, answer_of, read_arguments, read_object
from .hosted import Hosted
from .method import Method
from .sessions import Open

__all__ = ["ToolCalls"]

_Answer: TypeAlias = resource_pb2.CallToolResponse
_Job: TypeAlias = tuple[str, str, Method, tuple[Any, ...], dict[str, Any]]
"""A call to be made: what metrics call the tool, its name, method and arguments."""
_MAX_NAMES = 20
# What metrics call a tool that no class declares: such names are without number.
_OTHER, _UNKNOWN = "other", "unknown"
_OUTCOMES = {
    rollout_pb2.TOOL_OUTCOME_OK: "ok",
    rollout_pb2.TOOL_OUTCOME_TOOL_ERROR: "tool_error",
    rollout_pb2.TOOL_OUTCOME_BAD_ARGUMENTS: "bad_arguments",
    rollout_pb2.TOOL_OUTCOME_UNKNOWN_TOOL: "unknown_tool",
}


class ToolCalls:
    """The tools of one environment, called in its sessions."""

    def __init__(self, hosted: Hosted) -> None:
        self._hosted = hosted
        environment, config = hosted.environment, hosted.config
        self._tools = dict(hosted.tools)
        self._methods = {
            name: hosted.method(tool.call, config.tool_timeout_s)
            for name, tool in self._tools.items()
        }
        self._calls_others = hosted.defines("call_other")
        self._call_other = hosted.method(environment.call_other, config.tool_timeout_s)
        self._session_tools = hosted.method(environment.session_tools, config.turn_timeout_s)
        self.offered = [tool.message for tool in self._tools.values()]
        #: The counter of calls by tool and outcome, the histogram by tool.
        self._counts = cache(partial(metrics.TOOL_CALLS.labels, hosted.name))
        self._seconds = cache(partial(metrics.TOOL_SECONDS.labels, hosted.name))

    async def further(self, session: Session[Any]) -> list[responses_pb2.Tool]:
        """The tools that a session has beside the environment's. Raises what its code raises."""
        documents = await self._session_tools.call((session,))
        if not isinstance(documents, Sequence) or isinstance(documents, str):
            raise WrongResult("must give a list of tools", self._session_tools.function)
        further = [_session_tool(document) for document in documents]
        names = [*self._tools, *(tool.function.name for tool in further)]
        if len(set(names)) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise DefinitionError(f"session_tools: there is another tool called {twice!r}.")
        return further

    async def call(self, opened: Open[Any], name: str, written: bytes) -> _Answer:
        """The answer to a call. `written`: the arguments as the model wrote them."""
        session = opened.session
        tool = self._tools.get(name)
        try:
            if tool is not None:
                named = read_arguments(written, tool.arguments, tool.schema, name, tool.quick)
                if tool.wants_session:
                    named["session"] = session
                job: _Job = (name, name, self._methods[name], (), named)
            elif (other := self._other(opened, name)) is not None:
                given = read_object(written, _schema(other), name)
                job = (_OTHER, name, self._call_other, (session, name, given), {})
            else:
                text = self._unknown(opened, name)
                return self._told(_UNKNOWN, text, rollout_pb2.TOOL_OUTCOME_UNKNOWN_TOOL)
        except BadArguments as error:
            label = _OTHER if tool is None else name
            return self._told(label, str(error), rollout_pb2.TOOL_OUTCOME_BAD_ARGUMENTS)
        async with opened.order if self._hosted.in_order else contextlib.nullcontext():
            return await self._run(job, session)

    async def _run(self, job: _Job, session: Session[Any]) -> _Answer:
        _, _, method, args, named = job
        started = time.perf_counter()
        with for_rollout(session.rollout_id):
            try:
                output = answer_of(await method.call(args, named), method.function)
            except Exception as error:
                return self._failed(job, error, session, started)
        return self._ran(job, output, rollout_pb2.TOOL_OUTCOME_OK, session, started)

    def _failed(
        self, job: _Job, error: Exception, session: Session[Any], started: float
    ) -> _Answer:
        """The answer where the tool told the model what to do; else raises the MeshError."""
        label, name, *_ = job
        if isinstance(error, ToolError):
            text = str(error) or f"The tool {name} failed and gave no reason."
            output = text_to_bytes(text)
            return self._ran(job, output, rollout_pb2.TOOL_OUTCOME_TOOL_ERROR, session, started)
        self._counts(label, "fault").inc()
        hosted = self._hosted
        if isinstance(error, TookTooLong):
            raise MeshError(
                errors_pb2.ERROR_REASON_TOOL_TIMEOUT,
                f"The tool {name!r} ran {error}.",
                metadata={"tool": name, "timeout_s": f"{hosted.config.tool_timeout_s:g}"},
            ) from None
        hosted.host.raise_fault(error, "call_tool")

    def _ran(
        self,
        job: _Job,
        output: bytes | responses_pb2.ContentParts,
        outcome: rollout_pb2.ToolOutcome.ValueType,
        session: Session[Any],
        started: float,
    ) -> _Answer:
        """The answer to a call that began at `started`."""
        label = job[0]
        answer = self._answer(label, output, outcome)
        took = time.perf_counter() - started
        self._seconds(label).observe(took, session.rollout_id)
        answer.duration_us = int(took * 1e6)
        if session.done:
            answer.done = True
        return answer

    def _other(self, opened: Open[Any], name: str) -> responses_pb2.FunctionTool | None:
        """A tool of the session or of its task by name, where the environment answers those."""
        return self._others(opened).get(name) if self._calls_others else None

    def _others(self, opened: Open[Any]) -> Mapping[str, responses_pb2.FunctionTool]:
        # The session's last: its tools come before the task's own of the same name.
        tools = [*opened.session.task.message.params.tools, *opened.answer.tools]
        return {
            tool.function.name: tool.function
            for tool in tools
            if tool.function.name and tool.function.name not in self._tools
        }

    def _unknown(self, opened: Open[Any], name: str) -> str:
        names = [*self._tools, *(self._others(opened) if self._calls_others else ())]
        shown = name if len(name) <= 64 else name[:63] + "…"
        if not names:
            return f"There is no tool {shown!r}: no tools are offered here."
        near = difflib.get_close_matches(name[:200], names, n=1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        more = ", …" if len(names) > _MAX_NAMES else ""
        offered = ", ".join(names[:_MAX_NAMES])
        return f"There is no tool {shown!r}.{hint} The tools are: {offered}{more}."

    def _told(
        self, tool: str, text: str, outcome: rollout_pb2.ToolOutcome.ValueType
    ) -> resource_pb2.CallToolResponse:
        return self._answer(tool, text_to_bytes(text), outcome)

    def _answer(
        self,
        tool: str,
        output: bytes | responses_pb2.ContentParts,
        outcome: rollout_pb2.ToolOutcome.ValueType,
    ) -> resource_pb2.CallToolResponse:
        self._counts(tool, _OUTCOMES[outcome]).value += 1.0
        answer = resource_pb2.CallToolResponse()
        answer.outcome = outcome
        if isinstance(output, bytes):
            answer.text = output
        else:
            answer.parts.CopyFrom(output)
        return answer


def _session_tool(document: object) -> responses_pb2.Tool:
    if not isinstance(document, Mapping):
        raise DefinitionError(f"session_tools: a tool is an object, not {document!r:.100}.")
    try:
        tool = tool_from_json(dict(document))
    except CodecError as error:
        raise DefinitionError(f"session_tools: a tool cannot be read: {error}.") from None
    if not tool.HasField("function") or not tool.function.name:
        raise DefinitionError(
            "session_tools: each tool needs 'type': 'function' and a 'name' of its own."
        )
    if not is_tool_name(tool.function.name):
        raise DefinitionError(
            f"session_tools: {tool.function.name!r:.200} is no name for a tool, which endpoints "
            f"take of {TOOL_NAME_RULE}."
        )
    return tool


def _schema(tool: responses_pb2.FunctionTool) -> Mapping[str, Any]:
    """The parameters' schema, as far as it says anything."""
    try:
        schema = loads(tool.parameters_json) if tool.parameters_json else {}
    except CodecError:
        return {}
    return schema if isinstance(schema, dict) else {}
