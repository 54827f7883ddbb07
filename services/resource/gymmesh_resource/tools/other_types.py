"""Types of parameters that msgspec does not know: pydantic's models.

pydantic is never imported here: where an author uses it, it is loaded already.
"""

from __future__ import annotations

import sys
from typing import Any


def is_pydantic(kind: object) -> bool:
    """Whether a type is a pydantic model."""
    pydantic = sys.modules.get("pydantic")
    return pydantic is not None and isinstance(kind, type) and issubclass(kind, pydantic.BaseModel)


def schema_of_other(kind: Any) -> dict[str, Any]:
    """The JSON Schema of a type that msgspec does not know. Raises NotImplementedError.

    It is msgspec's `schema_hook`.
    """
    if is_pydantic(kind):
        schema: dict[str, Any] = kind.model_json_schema()
        return schema
    raise NotImplementedError(f"{kind.__name__} has no JSON Schema")


def value_of_other(kind: Any, value: Any) -> Any:
    """A value of a type that msgspec does not know. Raises ValueError in one line.

    It is msgspec's `dec_hook`.
    """
    if not is_pydantic(kind):
        raise NotImplementedError(f"{kind.__name__} cannot be built from JSON")
    try:
        return kind.model_validate(value)
    except ValueError as error:
        raise ValueError(_told(error)) from None


def plain_of_other(value: Any) -> Any:
    """A pydantic model as JSON values, for what tools return. Raises NotImplementedError."""
    if is_pydantic(type(value)):
        return value.model_dump(mode="json")
    raise NotImplementedError(f"Objects of type {type(value).__name__} are not supported")


def _told(error: Any) -> str:
    """pydantic's mistakes, each with its place, as one line."""
    return "; ".join(
        f"{'.'.join(map(str, one['loc']))}: {one['msg']}" if one["loc"] else str(one["msg"])
        for one in error.errors(include_url=False)
    )
