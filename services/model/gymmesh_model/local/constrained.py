"""Tool calls for a model that cannot call tools: a pure bridge, no I/O.

`constrain` takes a Chat Completions request and gives one without tools, whose answer the
server holds to one of two forms; `interpret` turns such an answer back into a Chat
Completions response with `tool_calls`, or with plain content.

    {"tool": NAME, "arguments": {…as the tool's parameter schema says…}}
    {"answer": "…"}

One call per turn: `parallel_tool_calls` is accepted and has no effect. Formats: OpenAI's
Chat Completions API; llguidance's grammar syntax as accepted by llama.cpp's `grammar`.
"""

from __future__ import annotations

import copy
import json
import re
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from gymmesh_model.local import schemas, transcript

_TOOL_KEYS: Final = ("tools", "tool_choice", "parallel_tool_calls", "functions", "function_call")
# The engine's own extension: leave out keywords it does not know, and no blanks between
# tokens, in which a small model can lose itself.
_ENGINE_OPTIONS: Final = {
    "whitespace_flexible": False,
    "lenient": True,
    "coerce_one_of": True,
}
_CALL_HEAD: Final = re.compile(
    r'\s*\{\s*"tool"\s*:\s*"(?:[^"\\]|\\.)*"\s*,\s*"arguments"\s*:\s*', re.DOTALL
)


class ConstraintOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How answers are constrained.

    answer_pattern: a regular expression that the final answer must match as a whole
        (anchored with `^…$` or not), or None for any text. See `schemas.is_supported_pattern` for
        the allowed syntax.
    call_first: the model can't give the final answer before it has used a tool for the latest user
        message (or system message, if there is none). Otherwise a small model answers without the
        tool. No effect if a request has no tools.

    Raises ValueError for an answer pattern that the engine cannot enforce.
    """

    answer_pattern: str | None = None
    call_first: bool = False

    def __post_init__(self) -> None:
        if self.answer_pattern is None or schemas.is_supported_pattern(self.answer_pattern):
            return
        raise ValueError(
            f"'answer_pattern' {self.answer_pattern!r} cannot be used as a constraint. Write the "
            "pattern without look-around, back references, word boundaries and literal "
            "backslashes. Put '^' only at the beginning and '$' only at the end"
        )


_DEFAULT: Final = ConstraintOptions()


@dataclass(frozen=True, slots=True)
class _Plan:
    """What one request lets the model do.

    answer: None when this step must be a tool call. may_answer: whether the prompt tells of
    the answer's form; it stays the same over a rollout, so that the server's prompt cache
    holds, also where `call_first` rules the answer out for one step.
    """

    tools: tuple[Mapping[str, Any], ...]
    answer: schemas.Schema | None
    may_answer: bool
    constrained: bool


def constrain(body: Mapping[str, Any], options: ConstraintOptions = _DEFAULT) -> dict[str, Any]:
    """A request without tools that asks for the same step as a constrained JSON answer.

    body: a Chat Completions request; it is not changed. `tool_choice` is honoured: "none",
        "auto", "required", or a named function. With no tool to call and no answer
        pattern the answer stays unconstrained, and the caller's `response_format` is kept;
        with tools, a `response_format` of type `json_schema` shapes the final answer.
    Returns a new body; all keys that are not about tools are unchanged. Never raises for a tool
    schema: the constraint omits parts that it can't express.
    """
    plan = _plan(body, options)
    result = {key: value for key, value in body.items() if key not in _TOOL_KEYS}
    messages = transcript.rewrite(body.get("messages") or [], as_steps=plan.constrained)
    if plan.constrained:
        paragraph = transcript.describe(plan.tools, may_answer=plan.may_answer)
        messages = transcript.with_system(messages, paragraph)
        result.pop("response_format", None)
        # For llama.cpp's server built with llguidance, as the embedded one is.
        guided = json.dumps({**_step_schema(plan), "x-guidance": _ENGINE_OPTIONS})
        result["grammar"] = f"%llguidance {{}}\nstart: %json {guided}"
    result["messages"] = messages
    return copy.deepcopy(result)


def is_constrained(body: Mapping[str, Any], options: ConstraintOptions = _DEFAULT) -> bool:
    """Whether `constrain` holds the answer to one of its forms, so that it needs `interpret`."""
    return _plan(body, options).constrained


def interpret(
    response: Mapping[str, Any],
    body: Mapping[str, Any],
    options: ConstraintOptions = _DEFAULT,
) -> dict[str, Any]:
    """The Chat Completions response that a model with tool calling would have given.

    response: the server's answer to `constrain(body, options)`; not changed.
    body: the request as it was before `constrain`.
    Returns a new response. A complete call becomes a `tool_calls` entry with a fresh id, the
    arguments exactly as the model wrote them, and finish reason "tool_calls"; an answer
    becomes plain content. What is neither is passed on as content: with the finish reason
    "length" if it is a step that broke off, else with the server's own.
    """
    result, plan = copy.deepcopy(dict(response)), _plan(body, options)
    choices = result.get("choices")
    for choice in choices if plan.constrained and isinstance(choices, list) else []:
        if isinstance(choice, dict) and isinstance(choice.get("message"), dict):
            _interpret_choice(choice, may_call=bool(plan.tools))
    return result


def _plan(body: Mapping[str, Any], options: ConstraintOptions) -> _Plan:
    choice = body.get("tool_choice", "auto")
    tools = [] if choice == "none" else _functions(body.get("tools"))
    wanted = _named(choice)
    if wanted is not None:
        tools = [tool for tool in tools if tool.get("name") == wanted]
    forced = bool(tools) and (choice == "required" or wanted is not None)
    # Whether a tool's result follows the last message that is neither step nor result.
    roles = (message.get("role") for message in reversed(body.get("messages") or []))
    has_used_tool = next((role for role in roles if role != "assistant"), None) == "tool"
    first = options.call_first and not has_used_tool
    wanted_format = body.get("response_format")
    only_call = forced or (first and bool(tools))
    answer = None if only_call else _answer_schema(wanted_format, options)
    constrained = bool(tools) or (options.answer_pattern is not None and wanted_format is None)
    return _Plan(tuple(tools), answer, not forced, constrained)


def _functions(tools: object) -> list[Mapping[str, Any]]:
    """The function definitions among the tools; other kinds of tools cannot be called here."""
    if not isinstance(tools, Sequence):
        return []
    found = [tool.get("function") for tool in tools if isinstance(tool, Mapping)]
    return [one for one in found if isinstance(one, Mapping) and isinstance(one.get("name"), str)]


def _named(choice: object) -> str | None:
    if not isinstance(choice, Mapping):
        return None
    function = choice.get("function")
    name = function.get("name") if isinstance(function, Mapping) else choice.get("name")
    return name if isinstance(name, str) else None


def _answer_schema(response_format: object, options: ConstraintOptions) -> schemas.Schema:
    if isinstance(response_format, Mapping):
        if response_format.get("type") == "json_object":
            return {"type": "object"}
        wrapped = response_format.get("json_schema")
        if isinstance(wrapped, Mapping) and isinstance(wrapped.get("schema"), Mapping):
            return schemas.loosen(wrapped["schema"])
    if options.answer_pattern is None:
        return {"type": "string"}
    pattern = options.answer_pattern.removeprefix("^").removesuffix("$")
    return {"type": "string", "pattern": f"^(?:{pattern})$"}


def _step_schema(plan: _Plan) -> schemas.Schema:
    steps = []
    for tool in plan.tools:
        loose = schemas.loosen(tool.get("parameters"))
        arguments = loose if loose.get("type") == "object" else {"type": "object"}
        steps.append(_closed({"tool": {"const": tool["name"]}, "arguments": arguments}))
    if plan.answer is not None:
        steps.append(_closed({"answer": plan.answer}))
    return steps[0] if len(steps) == 1 else {"anyOf": steps}


def _closed(properties: schemas.Schema) -> schemas.Schema:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def _interpret_choice(choice: dict[str, Any], *, may_call: bool) -> None:
    """Rewrites one choice of a response that the caller owns."""
    message = choice["message"]
    text = message.get("content")
    if not isinstance(text, str):
        return
    try:
        step = json.loads(text)
    except (ValueError, RecursionError):
        if text.lstrip().startswith("{"):
            choice["finish_reason"] = "length"
        return
    if not isinstance(step, dict):
        return
    if may_call and isinstance(step.get("tool"), str) and isinstance(step.get("arguments"), dict):
        function = {"name": step["tool"], "arguments": _raw_arguments(text, step)}
        call = {"id": f"call_{uuid.uuid4().hex}", "type": "function", "function": function}
        message["tool_calls"] = [call]
        message["content"] = None
        choice["finish_reason"] = "tool_calls"
    elif set(step) == {"answer"}:
        answer = step["answer"]
        raw = text[text.index(":") + 1 :].rstrip().removesuffix("}").strip()
        message["content"] = answer if isinstance(answer, str) else raw


def _raw_arguments(text: str, step: Mapping[str, Any]) -> str:
    """The arguments as the model wrote them: a re-encoding would touch numbers."""
    head = _CALL_HEAD.match(text)
    if head is None or len(step) != 2:
        return json.dumps(step["arguments"], ensure_ascii=False)
    return text[head.end() :].rstrip().removesuffix("}").rstrip()
