"""Tools: typed methods of an environment that a model may call."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeVar, overload

import msgspec

from gymmesh.responses.v1 import responses_pb2
from gymmesh_resource.errors import DefinitionError, WrongResult
from gymmesh_resource.tools.docstrings import read_docstring
from gymmesh_resource.tools.image import parts_of
from gymmesh_resource.tools.other_types import plain_of_other
from gymmesh_resource.tools.signatures import arguments_schema, arguments_type, takes_session
from gymmesh_responses import TOOL_NAME_RULE, dumps, is_tool_name, text_to_bytes

F = TypeVar("F", bound=Callable[..., Any])
_MARK = "__gymmesh_tool__"
_STRICT = "__gymmesh_strict__"


@overload
def tool(function: F, /) -> F: ...
@overload
def tool(*, name: str | None = None, strict: bool | None = None) -> Callable[[F], F]: ...
def tool(
    function: F | None = None, /, *, name: str | None = None, strict: bool | None = None
) -> F | Callable[[F], F]:
    """Makes a method a tool: `@tool`, or `@tool(name="…")` for a name other than the method's.

    `strict=True` asks the model's host to enforce the schema while the model writes the arguments.
    The default is the class's `strict_tools`. Strict mode requires every parameter to be required.

    The parameters' types become a JSON Schema without additional keys; parameters without a default
    are required. The docstring's text is the tool's description. Its `Args:` section (or
    `Annotated[str, "…"]`) describes the parameters. A parameter called `session` receives the
    session and is not shown to the model.

    The method may be `async` or plain; a plain method runs in a thread. It returns text, an `Image`
    or a list of images and texts, content parts (`ContentParts`), or any JSON value. Raise
    `ToolError` to tell the model what to do differently. Any other exception is a fault of the
    environment.
    """

    def mark(method: F) -> F:
        setattr(method, _MARK, name or method.__name__)
        setattr(method, _STRICT, strict)
        return method

    return mark if function is None else mark(function)


@dataclass(frozen=True, slots=True)
class Tool:
    """One tool of one environment object: its definition for models, and how to call it."""

    name: str
    call: Callable[..., Any]
    arguments: type[msgspec.Struct]
    schema: Mapping[str, Any]
    wants_session: bool
    message: responses_pb2.Tool


class Toolset(dict[str, Tool]):
    """The tools of an environment by name, in the order of its class."""

    def __init__(
        self, environment: object, types_by_tool: Mapping[str, Mapping[str, Any]] | None = None
    ) -> None:
        """Reads the marked methods. `types_by_tool` replaces parameters' types.

        Raises `DefinitionError`, which names the tool and the correction.
        """
        super().__init__()
        types_by_tool = types_by_tool or {}
        for attribute, name in _marked_methods(type(environment)).items():
            where = f"{type(environment).__name__}.{attribute}"
            if not is_tool_name(name):
                raise DefinitionError(
                    f"{where}: {name!r} is not a valid tool name; endpoints accept "
                    f"{TOOL_NAME_RULE}. Give another name with @tool(name=…)."
                )
            if name in self:
                raise DefinitionError(
                    f"{where}: another tool is also called {name!r}. Rename one of the two tools."
                )
            method = getattr(environment, attribute)
            strict = getattr(method, _STRICT, None)
            if strict is None:
                strict = getattr(environment, "strict_tools", False)
            types_by_name = types_by_tool.get(name, {})
            self[name] = _tool(name, method, where, types_by_name, strict=strict)
        if stray := sorted(types_by_tool.keys() - self.keys()):
            raise DefinitionError(
                f"{type(environment).__name__} has no tool {stray[0]!r}, so the types given for "
                "this tool can't be used."
            )


# Left as they are, so that they are refused: in base64 the model would read something else.
_NO_BASE64: Final = (bytes, bytearray, memoryview)


def answer_of(
    value: Any, function: Callable[..., Any] | None = None
) -> bytes | responses_pb2.ContentParts:
    """A tool's return value, as text for the model; None is empty text, not "null".

    Raises WrongResult for a value that JSON can't represent.
    """
    if isinstance(value, str):
        return text_to_bytes(value)
    if isinstance(value, responses_pb2.ContentParts):
        return value
    if value is None:
        return b""
    try:
        if (parts := parts_of(value)) is not None:
            return parts
        return dumps(
            msgspec.to_builtins(
                value, str_keys=True, builtin_types=_NO_BASE64, enc_hook=plain_of_other
            )
        )
    except (TypeError, ValueError, RecursionError, NotImplementedError) as error:
        raise WrongResult(
            f"returned a value that can't be written as JSON ({error}). Return text, an Image, or "
            "values that JSON can represent",
            function,
        ) from None


def _marked_methods(kind: type) -> dict[str, str]:
    """Tool names by attribute, base classes first; a subclass unmarks one by `name = None`."""
    found: dict[str, str] = {}
    for base in reversed(kind.__mro__):
        for attribute, value in vars(base).items():
            marked = getattr(value, _MARK, None)
            if marked is not None:
                found[attribute] = marked
            elif attribute in found and not callable(value):
                del found[attribute]
    return found


def _tool(
    name: str,
    method: Callable[..., Any],
    where: str,
    types_by_name: Mapping[str, Any],
    *,
    strict: bool,
) -> Tool:
    description, described = read_docstring(inspect.getdoc(method))
    if not description:
        raise DefinitionError(
            f"{where} has no docstring. Write a docstring that tells the model what the tool does."
        )
    arguments = arguments_type(method, where, described, types_by_name)
    schema = arguments_schema(arguments, where)
    if strict and not _can_be_strict(schema):
        raise DefinitionError(
            f"{where} can't be strict. In strict mode every parameter is required and has a type, "
            "and no object accepts additional keys. Remove the defaults of the tool's parameters "
            "(write `str | None` for a parameter that may be omitted), or remove `strict`."
        )
    function = responses_pb2.FunctionTool(
        name=name,
        description=description,
        parameters_json=dumps(schema),
        strict=strict,
    )
    message = responses_pb2.Tool(function=function)
    return Tool(name, method, arguments, schema, takes_session(method), message)


def _can_be_strict(schema: Any) -> bool:
    """Whether OpenAI's strict mode takes it: all keys of objects required, and no others."""
    if isinstance(schema, list):
        return all(map(_can_be_strict, schema))
    if not isinstance(schema, dict):
        return True
    if schema.get("type") == "object":
        properties = schema.get("properties", {})
        closed = schema.get("additionalProperties") is False
        if not closed or set(schema.get("required", ())) != set(properties):
            return False
        return all(map(_can_be_strict, properties.values())) and _can_be_strict(
            list(schema.get("$defs", {}).values())
        )
    if schema == {} or set(schema) == {"description"}:
        return False
    nested = [schema.get(key) for key in ("items", "anyOf", "prefixItems")]
    return all(map(_can_be_strict, [part for part in nested if part is not None]))
