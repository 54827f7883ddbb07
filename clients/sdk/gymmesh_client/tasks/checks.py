"""What a task row must be like: pure checks that yield (key, sentence) for each mistake."""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Final, TypeAlias

from gymmesh_client.problems import UserError
from gymmesh_responses import JsonValue

Mistakes: TypeAlias = Iterator[tuple[str, str]]

NAMING_KEYS: Final = ("environment", "agent")
"""Keys that name something in the mesh when they are strings."""

_PARAMS: Final = "responses_create_params"
# Columns of public data sets that hold the prompt.
_PROMPT_COLUMNS: Final = (
    *("messages", "conversations", "question", "problem", "query", "instruction", "input"),
    *("question_stem", "ctx", "sentence"),
)
_ITEM_TYPES_WITH_ID: Final = ("function_call", "function_call_output")
_ROLES: Final = ("system", "developer", "user", "assistant")


def check_row(row: JsonValue) -> Mistakes:
    """The row's own keys; a mistake at key `""` or in `responses_create_params` is final."""
    if type(row) is not dict:
        yield "", f"holds {kind_of(row)}; each line must be one JSON object"
        return
    if _PARAMS not in row and "prompt" not in row:
        near = _nearest(_PARAMS, row)
        hint = f"rename {near!r}" if near else _other_shape(row)
        yield _PARAMS, f"the key is missing; {hint}"
    elif _PARAMS in row and type(row[_PARAMS]) is not dict:
        yield _PARAMS, f"must be an object, not {kind_of(row[_PARAMS])}"
    if type(row.get("task_id")) is not int:
        yield from _text(row, "task_id")
    for key in NAMING_KEYS:
        if type(row.get(key)) not in (dict, list):
            yield from _text(row, key)
    seed = row.get("seed")
    if seed is not None and (type(seed) is not int or not -(2**63) <= seed < 2**63):
        yield "seed", f"must be a whole number of 64 bits, not {kind_of(seed)}"
    yield from _tags(row.get("tags"))


def _tags(tags: JsonValue) -> Mistakes:
    if tags is None:
        return
    if type(tags) is not dict or not all(type(value) is str for value in tags.values()):
        yield (
            "tags",
            "must be an object whose values are strings; rename the key if the verifier reads it",
        )
    elif any(_has_surrogate(text) for pair in tags.items() for text in pair):
        yield (
            "tags",
            ("holds an unpaired surrogate, which UTF-8 can't represent; remove the surrogate"),
        )


def _other_shape(row: dict[str, JsonValue]) -> str:
    """What to do about a row without a prompt."""
    columns = [key for key in _PROMPT_COLUMNS if key in row]
    if not columns:
        return 'add it, with at least {"input": …}, or add a "prompt"'
    kind = "messages" if columns[0] == "messages" else "hf"
    return (
        f"this looks like a data set row with its prompt under {columns[0]!r}. Make tasks with: "
        f"gym-cli import FILE --format {kind} --output tasks.jsonl"
    )


def check_params(params: dict[str, JsonValue]) -> Mistakes:
    """The row's Responses parameters."""
    yield from check_input(params)
    for key, sentence in check_settings(params):
        yield f"{_PARAMS}.{key}", sentence
    yield from check_tools(params.get("tools"))


def check_settings(params: Mapping[str, JsonValue]) -> Mistakes:
    """Responses parameters other than the prompt and the tools, by their own keys."""
    for key, (fits, kind) in _KINDS.items():
        value = params.get(key)
        if value is not None and not fits(value):
            yield key, f"must be {kind}, not {kind_of(value)}"
    for key, least, most, whole in _RANGES:
        value = params.get(key)
        if value is None or (key in _KINDS and not _is_number(value)):
            continue
        right = type(value) is int if whole else _is_number(value)
        if not right or not least <= value <= most:
            kind = "a whole number" if whole else "a number"
            between = f"of at least {least}" if most == math.inf else f"from {least} to {most:g}"
            shown = value if _is_number(value) else kind_of(value)
            yield key, f"must be {kind} {between}, not {shown}"


def check_input(params: dict[str, JsonValue]) -> Mistakes:
    """The prompt: text, or a list of items."""
    key = f"{_PARAMS}.input"
    if "input" not in params:
        near = _nearest("input", params)
        hint = f"rename {near!r}" if near else "give a text or a list of messages"
        yield key, f"the key is missing; {hint}"
        return
    given = params["input"]
    if type(given) not in (str, list):
        yield key, f"must be a string or a list of items, not {kind_of(given)}"
    elif type(given) is str and not given.strip():
        # A list without items is for an environment that opens the conversation.
        yield key, "is empty; give a text, or a list of items"
    elif type(given) is str and _has_surrogate(given):
        # The contract has it as text, which is UTF-8; a message's content may be anything.
        yield (
            key,
            (
                "has an unpaired surrogate, which UTF-8 can't represent. Remove the "
                'surrogate, or pass the text as a message: [{"role": "user", "content": …}]'
            ),
        )
    elif type(given) is list:
        for place, item in enumerate(given):
            yield from _item(item, f"{key}[{place}]")


def _item(item: JsonValue, key: str) -> Mistakes:
    if type(item) is not dict:
        yield key, f"must be an object, not {kind_of(item)}"
        return
    kind = item.get("type", "message")
    if type(kind) is not str:
        yield f"{key}.type", f"must be a string, not {kind_of(kind)}"
    elif kind == "message":
        yield from _message(item, key)
    elif kind in _ITEM_TYPES_WITH_ID and type(item.get("call_id")) is not str:
        yield f"{key}.call_id", f"an item of type {kind!r} needs a string 'call_id'"


def _message(item: dict[str, JsonValue], key: str) -> Mistakes:
    role = item.get("role")
    if type(role) is not str or role not in _ROLES:
        problem = "must be a string" if type(role) is not str else f"is {role!r:.40}"
        problem = problem if "role" in item else "is missing"
        if type(role) is str and _has_surrogate(role):
            problem = "holds an unpaired surrogate"
        yield f"{key}.role", f"{problem}; use 'system', 'developer', 'user' or 'assistant'"
    content = item.get("content")
    if type(content) is list:
        for place, part in enumerate(content):
            if type(part) is not dict or type(part.get("type")) is not str:
                yield f"{key}.content[{place}]", 'must be an object with a "type"'
    elif type(content) is not str:
        problem = "is missing" if "content" not in item else f"must not be {kind_of(content)}"
        yield f"{key}.content", f"{problem}; use a string or a list of parts"


def check_tools(tools: JsonValue) -> Mistakes:
    """The tools: each function has a unique name and a valid JSON Schema."""
    key = f"{_PARAMS}.tools"
    if tools is None:
        return
    if type(tools) is not list:
        yield key, f"must be a list, not {kind_of(tools)}"
        return
    names: dict[str, int] = {}
    for place, tool in enumerate(tools):
        at = f"{key}[{place}]"
        if type(tool) is not dict or type(tool.get("type")) is not str:
            yield at, 'must be an object with a "type", such as "function"'
        elif tool["type"] == "function":
            yield from _function(tool, at)
            name = tool.get("name")
            if type(name) is str:
                first = names.setdefault(name, place)
                if first != place:
                    yield f"{at}.name", f"tools[{first}] already has the name {name!r}"


def _function(tool: dict[str, JsonValue], at: str) -> Mistakes:
    if type(tool.get("name")) is not str or not tool["name"]:
        nested = type(tool.get("function")) is dict
        hint = "; move the keys of its 'function' up, beside 'type'" if nested else ""
        yield f"{at}.name", f"a function tool needs a string 'name'{hint}"
        return
    schema = tool.get("parameters")
    if type(schema) is dict:
        yield from _schema(schema, f"{at}.parameters")
    elif schema is not None:
        yield f"{at}.parameters", f"must be a JSON Schema object, not {kind_of(schema)}"


def _schema(schema: dict[str, JsonValue], at: str) -> Mistakes:
    # Slow to import, and most task files have no tools.
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import best_match
    from jsonschema.validators import validator_for

    validator = validator_for(schema, default=Draft202012Validator)
    meta = validator(validator.META_SCHEMA)
    error = best_match(meta.iter_errors(schema))
    if error is not None:
        path = "".join(f"[{s}]" if isinstance(s, int) else f".{s}" for s in error.absolute_path)
        sentence = error.message.splitlines()[0][:200]
        yield f"{at}{path}", f"not a valid JSON Schema: {sentence}"


def check_names(key: str, name: str, default: str, known: Collection[str] | None) -> Mistakes:
    """The environment or agent: named by the row or by default, and one that exists.

    Raises UserError for a default that does not exist, which is not the row's mistake.
    """
    if not (name or default):
        yield (
            key,
            (
                f"the row has no key {key!r}, and the configuration has no default; add the key "
                "to the row"
            ),
        )
    elif known is not None and (name or default) not in known:
        near = _nearest(name or default, known)
        hint = f"did you mean {near!r}?" if near else "known names: " + ", ".join(sorted(known))
        if not name:
            raise UserError(
                f"defaults.{key}: the configuration has no {key} {default!r}; {hint}; rows "
                f"without the key {key!r} need the default"
            )
        yield key, f"there is no {key} {name!r}; {hint}"


def named(row: dict[str, JsonValue], key: str) -> str:
    """What one of NAMING_KEYS names; empty where it names nothing."""
    value = row.get(key)
    return value if type(value) is str else ""


def kind_of(value: JsonValue) -> str:
    """What a JSON value is called in a sentence."""
    if value is None:
        return "null"
    names = {dict: "an object", list: "a list", str: "a string", bool: "true or false"}
    return names.get(type(value), "a number")


def _text(row: dict[str, JsonValue], key: str) -> Mistakes:
    value = row.get(key)
    if value is None:
        return
    if type(value) is not str:
        yield key, f"must be a string, not {kind_of(value)}"
    elif not value:
        yield key, "is empty; remove the key, or set a name"
    elif _has_surrogate(value):
        yield key, "holds an unpaired surrogate"


def _has_surrogate(text: str) -> bool:
    return not text.isascii() and any("\ud800" <= char <= "\udfff" for char in text)


def _is_number(value: JsonValue) -> bool:
    return type(value) is int or (type(value) is float and math.isfinite(value))


def _nearest(name: str, names: Collection[str]) -> str | None:
    close = difflib.get_close_matches(name, list(names), n=1, cutoff=0.6)
    return close[0] if close else None


# What the value of a parameter must be, where it is there: a check of it, and its name.
_IS_TEXT: Final = (lambda value: type(value) is str, "a string")
_IS_NUMBER: Final = (_is_number, "a number")
_IS_OBJECT: Final = (lambda value: type(value) is dict, "an object")
# Of a number its least and greatest value, and whether it must be whole.
_RANGES: Final = (
    ("max_output_tokens", 1, math.inf, True),
    ("temperature", 0, math.inf, False),
    ("top_p", 0, 1.0, False),
    ("top_k", -1, math.inf, True),  # 0 and -1 are engines' words for no limit
    ("min_p", 0, 1.0, False),
)
_KINDS: Final[dict[str, tuple[Callable[[JsonValue], bool], str]]] = {
    "model": _IS_TEXT,
    "instructions": _IS_TEXT,
    "previous_response_id": _IS_TEXT,
    "temperature": _IS_NUMBER,
    "top_p": _IS_NUMBER,
    "text": _IS_OBJECT,
    "reasoning": _IS_OBJECT,
    "metadata": _IS_OBJECT,
    "parallel_tool_calls": (lambda value: type(value) is bool, "true or false"),
    "tool_choice": (lambda value: type(value) in (str, dict), "a string or an object"),
}
