"""Whether an answer fits a JSON Schema, strictly.

Invariant: a verdict judges the answer. An invalid schema is `SchemaError`, never a reward.

`judge` is pure, except for its time: a schema's pattern can take very long on an answer. Run it in
a process that can be killed.

Schemas are made strict (see `strictness`): an object must have all properties that its schema names
and no others. Formats are not checked, and nothing is fetched for a `$ref`. Multiples are
calculated exactly: as floats, 1.13 is no multiple of 0.01.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from typing import Any, Final

from gymmesh_resource.environments.structured_outputs import nemo
from gymmesh_resource.environments.structured_outputs.coercion import (
    columns,
    typed_rows,
    typed_tree,
)
from gymmesh_resource.environments.structured_outputs.ecma import PatternError
from gymmesh_resource.environments.structured_outputs.parsing import (
    CsvTable,
    ParseError,
    TextFormat,
    parse,
)
from gymmesh_resource.environments.structured_outputs.references import reference_problem
from gymmesh_resource.environments.structured_outputs.strictness import current, strict
from gymmesh_resource.environments.structured_outputs.xml_root import root_problem

# Characters of an explanation.
MESSAGE: Final = 200
# Levels of an answer that any schema can be applied to, if it says anything about them.
_TOP: Final = 10
# Characters of a column's name in a message.
_NAME: Final = 50
# The type of whatever is written in these formats.
_ROOTS: Final = {"csv": "array", "xml": "object", "toml": "object"}


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


def judge(
    schema: str, format: TextFormat, answer: str, coerce_xml: bool = True, compat: str = ""
) -> SchemaResult:
    """The verdict on an answer that is text in a format.

    `coerce_xml`: whether XML's texts are read as the numbers and booleans of the schema.
    `compat`: the reference whose own verdict it is; empty: the right one. Raises `SchemaError`.
    """
    wanted = _valid(load_schema(schema, format, compat))
    if not answer.strip():
        return SchemaResult(0.0, "empty_response", "the answer has no text")
    try:
        value = parse(answer, format, compat)
    except ParseError as error:
        return failed("parse_error", error)
    if isinstance(value, CsvTable):
        problem = _header_problem(value, wanted)
        if problem is not None:
            return failed("validation_error", problem)
        value = typed_rows(value.rows, wanted)
    elif compat and format == "csv":
        value = nemo.typed_rows(value, wanted)
    elif format == "xml" and coerce_xml:
        value = nemo.typed_tree(value, wanted) if compat else typed_tree(value, wanted, wanted)
    return _validate(value, wanted)


def judge_arguments(schema: str, arguments: str, key: str | None, compat: str = "") -> SchemaResult:
    """The verdict on a tool's arguments, JSON, or on what they have under a key.

    `compat`: as in `judge`. Raises `SchemaError`.
    """
    wanted = _valid(load_schema(schema, "json", compat))
    try:
        value = parse(arguments, "json", compat)
    except ParseError as error:
        return failed("tool_arguments_parse_error", error)
    if key:
        if not isinstance(value, dict) or key not in value:
            return failed("missing_tool_payload_key", f"the arguments do not have the key {key!r}")
        value = value[key]
    return _validate(value, wanted)


def _header_problem(table: CsvTable, schema: dict[str, Any]) -> str | None:
    """What is wrong with a table's header. Its rows, if any, say nothing about a missing column
    that no schema requires of them.
    """
    known = columns(schema)
    if not known:
        return None if table.rows else "the table has no rows"
    for name in table.columns:
        if name not in known:
            return f"the header has {name[:_NAME]!r}, which is not a column of the schema"
    missing = sorted(known.difference(table.columns))
    return f"the header does not have the column {missing[0][:_NAME]!r}" if missing else None


def failed(error: str, message: object) -> SchemaResult:
    """The verdict on an answer that does not fit."""
    return SchemaResult(0.0, error, str(message)[:MESSAGE])


def load_schema(schema: str, format: TextFormat = "json", compat: str = "") -> dict[str, Any]:
    """The schema of a task, strict. Raises `SchemaError` unless the text is JSON, an object, and
    refers to nothing but what is in it; and, without `compat`, has patterns of ECMA 262 and a type
    that answers in the format can have.
    """
    try:
        loaded = json.loads(schema)
    except (ValueError, RecursionError) as error:
        raise SchemaError(f"is not JSON: {error}") from None
    if not isinstance(loaded, dict):
        raise SchemaError("must be a JSON Schema, written as a JSON object")
    try:
        newest = loaded if compat else current(loaded)
        problem = reference_problem(newest)
        if problem is None:
            return nemo.strict(newest) if compat else _fitting(strict(newest), format)
    except PatternError as error:
        problem = f"has an invalid pattern: {error}"
    except RecursionError:
        problem = "is nested too deeply"
    raise SchemaError(problem)


def _fitting(schema: dict[str, Any], format: TextFormat) -> dict[str, Any]:
    """The schema itself. Raises `SchemaError` where no answer in the format can fit it."""
    kind = schema.get("type")
    possible = _ROOTS.get(format)
    if (
        possible
        and kind is not None
        and possible not in (kind if isinstance(kind, list) else [kind])
    ):
        raise SchemaError(
            f"has the type {kind!r}, but a text in the format {format} is always an {possible}"
        )
    if format == "xml" and (problem := root_problem(schema)) is not None:
        raise SchemaError(problem)
    return schema


def _valid(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema itself; before any answer is looked at. Raises `SchemaError`."""
    import jsonschema
    from referencing.jsonschema import DRAFT202012

    try:
        jsonschema.Draft202012Validator.check_schema(schema)
    except (jsonschema.SchemaError, RecursionError) as error:
        problem = getattr(error, "message", "the schema is nested too deeply")
        raise SchemaError(f"is not a valid JSON Schema: {problem[:MESSAGE]}") from None
    waiting: list[Any] = [schema]
    for one in waiting:
        divisor = one.get("multipleOf") if isinstance(one, dict) else None
        if isinstance(divisor, float) and not math.isfinite(divisor):
            raise SchemaError(f"is not a valid JSON Schema: the multipleOf {divisor} is not finite")
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
        raise SchemaError(f"refers to a part that does not exist: {unresolvable.ref!r}") from None
    except re.error as error:
        raise SchemaError(f"has an invalid pattern: {error}") from None
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
