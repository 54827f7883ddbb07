"""Whether an answer fits a JSON Schema, strictly, as NeMo Gym's structured_outputs judges it.

Invariant: a verdict is on the answer. A schema that is none is `SchemaError`, never a reward.

`judge` is pure but for the time it may take: a schema's pattern can run away on an answer. Run
it in a process that can be killed.

Schemas are read as draft 2020-12, whatever they say themselves, and made strict: an object must
have all properties that its schema names and no others. As in NeMo Gym this does not reach into
lists of schemas such as `anyOf`, formats are not checked, and nothing is fetched for a `$ref`.
Multiples are calculated exactly: as floats, 1.13 is no multiple of 0.01.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from typing import Any, Final

from .coercion import typed_rows, typed_tree
from .parsing import ParseError, TextFormat, parse
from .references import reference_problem

# Characters of an explanation.
MESSAGE: Final = 200
# Levels of an answer that any schema can be applied to, if it says anything about them.
_TOP: Final = 10
# Keys of a schema whose values are schemas by names of the author's, not by keywords.
_NAMED: Final = {"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"}
# Keys whose values are data.
_DATA: Final = {"const", "default", "enum", "example", "examples"}


class SchemaError(ValueError):
    """A task's schema that cannot be judged by; the text is a clause about it."""


@dataclass(frozen=True, slots=True)
class SchemaResult:
    """The judgement: `error` is the kind of the first error, or empty, and `message` says more."""

    reward: float
    error: str = ""
    message: str = ""


def warm_up() -> None:
    """Import what most judgements need."""
    judge('{"type": "object"}', "json", "{}", coerce_xml=True)


def judge(schema: str, format: TextFormat, answer: str, coerce_xml: bool = True) -> SchemaResult:
    """The verdict on an answer that is text in a format.

    `coerce_xml`: whether XML's texts are read as the numbers and booleans of the schema.
    Raises `SchemaError`.
    """
    strict = _valid(_strict(load_schema(schema)))
    if not answer.strip():
        return SchemaResult(0.0, "empty_response", "there is no text")
    try:
        value = parse(answer, format)
    except ParseError as error:
        return failed("parse_error", error)
    if format == "xml" and coerce_xml:
        value = typed_tree(value, strict)
    elif format == "csv":
        value = typed_rows(value, strict)
    return _validate(value, strict)


def judge_arguments(schema: str, arguments: str, key: str | None) -> SchemaResult:
    """The verdict on a tool's arguments, JSON, or on what they have under a key.

    Raises `SchemaError`.
    """
    strict = _valid(_strict(load_schema(schema)))
    try:
        value = parse(arguments, "json")
    except ParseError as error:
        return failed("tool_arguments_parse_error", error)
    if key:
        if not isinstance(value, dict) or key not in value:
            return failed("missing_tool_payload_key", f"the arguments have no {key!r}")
        value = value[key]
    return _validate(value, strict)


def failed(error: str, message: object) -> SchemaResult:
    """The verdict on an answer that does not fit."""
    return SchemaResult(0.0, error, str(message)[:MESSAGE])


def load_schema(schema: str) -> dict[str, Any]:
    """The schema of a task. Raises `SchemaError` unless the text is JSON, an object, and refers
    to nothing but what is in it."""
    try:
        loaded = json.loads(schema)
    except (ValueError, RecursionError) as error:
        raise SchemaError(f"is not JSON: {error}") from None
    if not isinstance(loaded, dict):
        raise SchemaError("must be a JSON Schema that is an object")
    try:
        problem = reference_problem(loaded)
    except RecursionError:
        problem = "is nested too deeply"
    if problem is not None:
        raise SchemaError(problem)
    return loaded


def _strict(schema: Mapping[str, Any]) -> dict[str, Any]:
    strict: dict[str, Any] = {}
    for key, value in schema.items():
        if not isinstance(value, dict) or key in _DATA:
            strict[key] = value
        elif key in _NAMED:
            strict[key] = {
                name: _strict(inner) if isinstance(inner, dict) else inner
                for name, inner in value.items()
            }
        else:
            strict[key] = _strict(value)
    if isinstance(schema.get("properties"), dict):
        strict["required"] = list(schema["properties"])
        strict["additionalProperties"] = False
    return strict


def _valid(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema itself; before any answer is looked at. Raises `SchemaError`."""
    import jsonschema
    from referencing.jsonschema import DRAFT202012

    try:
        jsonschema.Draft202012Validator.check_schema(schema)
    except (jsonschema.SchemaError, RecursionError) as error:
        problem = getattr(error, "message", "it is nested too deeply")
        raise SchemaError(f"is no valid JSON Schema: {problem[:MESSAGE]}") from None
    waiting: list[Any] = [schema]
    for one in waiting:
        divisor = one.get("multipleOf") if isinstance(one, dict) else None
        if isinstance(divisor, float) and not math.isfinite(divisor):
            raise SchemaError(f"is no valid JSON Schema: {divisor} as a multipleOf is not finite")
        waiting += DRAFT202012.subresources_of(one)
    return schema


@cache
def _validator() -> Any:
    """The library's validator, with exact multiples."""
    import jsonschema

    def multiple_of(validator: Any, divisor: Any, number: Any, _: Any) -> Iterator[Any]:
        if validator.is_type(number, "number") and _exact(number) % _exact(divisor):
            yield jsonschema.ValidationError(f"{number!r} is not a multiple of {divisor}")

    kind = jsonschema.Draft202012Validator
    extended: Any = jsonschema.validators.extend  # has no types
    return extended(kind, {"multipleOf": multiple_of})


def _exact(number: float) -> Fraction:
    """The number as it is written."""
    return Fraction(number) if isinstance(number, int) else Fraction(repr(number))


def _first_error(value: Any, schema: dict[str, Any]) -> Any:
    from referencing import Registry

    registry: Registry[Any] = Registry()  # an empty one: nothing is fetched
    return next(_validator()(schema, registry=registry).iter_errors(value), None)


def _validate(value: Any, schema: dict[str, Any]) -> SchemaResult:
    from referencing.exceptions import Unresolvable

    try:
        first = _first_error(value, schema)
    except Unresolvable as unresolvable:
        raise SchemaError(f"refers to what is not in it: {unresolvable.ref!r}") from None
    except re.error as error:
        raise SchemaError(f"has a pattern that is none: {error}") from None
    except RecursionError:
        if _is_endless(_top(value, _TOP), schema):
            raise SchemaError("refers to itself without end, or is nested too deeply") from None
        return failed("validation_error", "nested too deeply")
    except TypeError:  # a pattern for keys meets YAML's, which may be numbers
        return failed("validation_error", "a key is not text")
    except Exception as error:  # the schema is a valid one, so it is the answer's: huge numbers
        return failed("validation_error", f"cannot be validated: {type(error).__name__}")
    if first is None:
        return SchemaResult(1.0)
    return failed("validation_error", f"{first.json_path}: {first.message}")


def _top(value: Any, levels: int) -> Any:
    """The upper levels of a value, with nothing in the containers below."""
    if isinstance(value, dict):
        return {key: _top(part, levels - 1) for key, part in value.items()} if levels else {}
    if isinstance(value, list):
        return [_top(part, levels - 1) for part in value] if levels else []
    return value


def _is_endless(value: Any, schema: dict[str, Any]) -> bool:
    try:
        _first_error(value, schema)
    except RecursionError:
        return True
    except Exception:
        return False  # it ends, if badly
    return False
