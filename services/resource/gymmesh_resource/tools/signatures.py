"""Derives from a function's signature the type to which its JSON arguments are converted.

Invariant: the JSON Schema shown to the model and the check of its arguments are derived from one
type, so they cannot disagree.
"""

from __future__ import annotations

import datetime
import enum
import inspect
import types
import typing
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from gymmesh_resource.errors import DefinitionError
from gymmesh_resource.tools.other_types import schema_of_other

_UNNAMED = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.VAR_POSITIONAL)
SESSION = "session"
_FORMATS: Final[dict[Any, str]] = {datetime.datetime: "date-time", datetime.time: "time"}
_JSON_TYPES = {str: "string", int: "integer", bool: "boolean", float: "number", type(None): "null"}


def takes_session(function: Callable[..., object]) -> bool:
    """Whether a method asks for its session, by a parameter of that name."""
    return SESSION in inspect.signature(function).parameters


def arguments_type(
    function: Callable[..., object],
    where: str,
    described: Mapping[str, str],
    types_by_name: Mapping[str, Any] | None = None,
) -> type[msgspec.Struct]:
    """A struct with a field for each parameter but `self` and `session`.

    `where` names the function in errors. `described`: descriptions by parameter.
    `types_by_name`: types that replace the annotated ones. Raises `DefinitionError`.
    """
    replaced = dict(types_by_name or {})
    parameters = [
        parameter
        for parameter in inspect.signature(function).parameters.values()
        if parameter.name not in ("self", SESSION)
    ]
    names = [parameter.name for parameter in parameters]
    if stray := sorted(set(replaced) - set(names)):
        raise DefinitionError(
            f"{where} has no parameter {stray[0]!r}, so the type given for {stray[0]!r} can't be "
            "used."
        )
    hints = {**_hints(function, where, [n for n in names if n not in replaced]), **replaced}
    fields: list[tuple[str, Any, Any]] = []
    for parameter in parameters:
        if parameter.kind in (*_UNNAMED, inspect.Parameter.VAR_KEYWORD):
            raise DefinitionError(
                f"{where}: the parameter {parameter.name!r} can't be passed by name. Write each "
                "argument as a named parameter with a type."
            )
        kind = hints[parameter.name]
        if parameter.default is None and not _admits_none(kind):
            kind = typing.Union[kind, None]  # noqa: UP007  # some kinds have no `|`
        kind = _described(kind, described.get(parameter.name))
        fields.append((parameter.name, kind, _default(parameter)))
    try:
        return msgspec.defstruct("Arguments", fields, kw_only=True, forbid_unknown_fields=True)
    except (TypeError, ValueError) as error:
        raise DefinitionError(f"{where}: {error}") from None


def arguments_schema(arguments: type[msgspec.Struct], where: str) -> dict[str, Any]:
    """The JSON Schema (2020-12) of a struct that `arguments_type` made.

    Raises `DefinitionError` for a type that has no JSON form.
    """
    try:
        document = msgspec.json.schema(arguments, schema_hook=schema_of_other)
    except (TypeError, RuntimeError, NotImplementedError) as error:
        reason = str(error).splitlines()[0]
        raise DefinitionError(
            f"{where}: the type of a parameter can't be expressed as JSON Schema ({reason})."
        ) from None
    definitions = document["$defs"]
    # The struct is known by its title too: a type of the author's may have the same name.
    schema: dict[str, Any] = dict(definitions.pop(document["$ref"].rsplit("/", 1)[1]))
    schema.pop("title", None)
    _lift_definitions(schema, definitions)
    if definitions:
        schema["$defs"] = definitions
    written: dict[frozenset[Any], list[Any]] = {}
    for kind in typing.get_type_hints(arguments, include_extras=True).values():
        _note_choices(kind, written, set())
    _write_choices(schema, written)
    close_objects(schema)
    _write_formats(arguments, schema, schema, set())
    return schema


def _lift_definitions(node: Any, definitions: dict[str, Any]) -> None:
    """Move the definitions of inner schemas to the root, which their references name."""
    for part in _parts(node):
        if isinstance(part, dict) and (inner := part.pop("$defs", None)):
            definitions.update(inner)
        _lift_definitions(part, definitions)


def close_objects(node: Any) -> None:
    """Say of each object with known keys that it has no others, unless it says so itself."""
    if isinstance(node, dict) and isinstance(node.get("properties"), dict):
        node.setdefault("additionalProperties", False)
    for part in _parts(node):
        close_objects(part)


def _parts(node: Any) -> list[Any]:
    """The schemas within a schema, or within a list of them; not its values."""
    if isinstance(node, list):
        return node
    if not isinstance(node, dict):
        return []
    return [part for key, part in node.items() if key not in ("default", "enum", "examples")]


def _write_formats(kind: Any, node: Any, root: dict[str, Any], seen: set[int]) -> None:
    """Give each date and time its format, which msgspec leaves out where a zone is optional."""
    if not isinstance(node, dict):
        return
    while "$ref" in node:
        node = root.get("$defs", {}).get(str(node["$ref"]).rpartition("/")[2], {})
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if kind in _FORMATS and node.get("type") == "string":
        node.setdefault("format", _FORMATS[kind])
    elif origin is typing.Annotated:
        _write_formats(inner[0], node, root, seen)
    elif _is_union(kind):
        choices = node.get("anyOf", [node])
        for one in inner:
            for choice in choices if one in _FORMATS or len(choices) == len(inner) else ():
                _write_formats(one, choice, root, seen)
    elif origin is not None:
        for below in (node.get("items"), node.get("additionalProperties")):
            for one in inner:
                _write_formats(one, below, root, seen)
    elif isinstance(kind, type) and hasattr(kind, "__annotations__") and id(kind) not in seen:
        seen.add(id(kind))
        try:
            hints = typing.get_type_hints(kind, include_extras=True)
        except (NameError, TypeError):  # msgspec could read it
            return
        for name, hint in hints.items():
            _write_formats(hint, node.get("properties", {}).get(name), root, seen)


def _note_choices(kind: Any, written: dict[frozenset[Any], list[Any]], seen: set[int]) -> None:
    """Note the values of each `Literal` and `Enum` in a type, in the order of the source."""
    if id(kind) in seen:
        return
    seen.add(id(kind))
    inner: tuple[Any, ...] = typing.get_args(kind)
    if typing.get_origin(kind) is typing.Literal:
        written.setdefault(frozenset(map(_choice, inner)), list(inner))
        return
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        values = [member.value for member in kind]
        written.setdefault(frozenset(map(_choice, values)), values)
        return
    if isinstance(kind, type) and hasattr(kind, "__annotations__"):
        try:
            inner = tuple(typing.get_type_hints(kind, include_extras=True).values())
        except (NameError, TypeError):  # msgspec could read it: only the order stays its own
            return
    for part in inner:
        _note_choices(part, written, seen)


def _write_choices(schema: Any, written: Mapping[frozenset[Any], list[Any]]) -> None:
    """Give each `enum` the order of the source, and its type."""
    if isinstance(schema, list):
        for part in schema:
            _write_choices(part, written)
    if not isinstance(schema, dict):
        return
    for key, part in schema.items():
        if key not in ("default", "enum", "examples"):
            _write_choices(part, written)
    values = schema.get("enum")
    if isinstance(values, list):
        values = schema["enum"] = written.get(frozenset(map(_choice, values)), values)
        names = list(dict.fromkeys(_JSON_TYPES.get(type(value), "") for value in values))
        if "type" not in schema and "" not in names:
            schema["type"] = names[0] if len(names) == 1 else names


def _choice(value: Any) -> tuple[type, Any]:
    # 1 is no True.
    return type(value), value if isinstance(value, str | int | float | None) else repr(value)


def _hints(function: Callable[..., object], where: str, names: list[str]) -> dict[str, Any]:
    """The types of the named parameters; the others' annotations are not even looked at."""
    raw = inspect.get_annotations(inspect.unwrap(function))
    if missing := [name for name in names if name not in raw]:
        raise DefinitionError(f"{where}: the parameter {missing[0]!r} has no type. Add a type.")
    wanted = types.SimpleNamespace(__annotations__={name: raw[name] for name in names})
    scope = getattr(inspect.unwrap(function), "__globals__", {})
    try:
        return typing.get_type_hints(wanted, globalns=scope, include_extras=True)
    except (NameError, TypeError, SyntaxError) as error:
        raise DefinitionError(
            f"{where}: the type of a parameter can't be resolved ({error})."
        ) from None


def _admits_none(kind: Any) -> bool:
    """Whether None is a value of a type."""
    if typing.get_origin(kind) is typing.Annotated:
        return _admits_none(typing.get_args(kind)[0])
    if typing.get_origin(kind) is typing.Literal:
        return None in typing.get_args(kind)
    parts = typing.get_args(kind) if _is_union(kind) else (kind,)
    return any(part in (None, type(None), Any, object) for part in parts)


def _is_union(kind: Any) -> bool:
    return typing.get_origin(kind) in (typing.Union, types.UnionType)


def _described(kind: Any, described: str | None) -> Any:
    """A type with its description: from `Annotated[…, "text"]`, else from the docstring."""
    texts = [part for part in getattr(kind, "__metadata__", ()) if isinstance(part, str)]
    text = texts[0] if texts else described
    return typing.Annotated[kind, msgspec.Meta(description=text)] if text else kind


def _default(parameter: inspect.Parameter) -> Any:
    if parameter.default is inspect.Parameter.empty:
        return msgspec.NODEFAULT
    if isinstance(parameter.default, list | dict | set):
        # One object as the default of every call would carry state from session to session.
        content = parameter.default
        return msgspec.field(default_factory=content.copy)
    return parameter.default
