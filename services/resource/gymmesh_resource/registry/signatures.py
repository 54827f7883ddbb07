"""Checks that an author's methods accept the arguments that the service passes."""

from __future__ import annotations

import inspect
from typing import Any

from gymmesh_resource.environment import Environment
from gymmesh_resource.errors import DefinitionError
from gymmesh_runtime.text import shown_place


def check_signatures(environment: Environment[Any]) -> None:
    """Raise DefinitionError for a method whose parameters differ from the base class. The error
    names the method's place in the author's file.
    """
    for name, base in vars(Environment).items():
        if name.startswith("_") or not inspect.isfunction(base):
            continue
        method = getattr(environment, name)
        if getattr(type(environment), name) is base:
            continue
        expected = list(inspect.signature(base).parameters)[1:]
        try:
            signature = inspect.signature(method)
        except (TypeError, ValueError):  # nothing to compare
            continue
        try:
            signature.bind(*expected)
        except TypeError:
            raise DefinitionError(_wrong(method, name, expected)) from None


def _wrong(method: Any, name: str, expected: list[str]) -> str:
    inner = inspect.unwrap(method)
    code = inner.__code__ if inspect.isfunction(inner) or inspect.ismethod(inner) else None
    place = f"{shown_place(code.co_filename, code.co_firstlineno)}: " if code else ""
    written = ", ".join(("self", *inspect.signature(method).parameters))
    return (
        f"{place}{inner.__qualname__}({written}) must be written "
        f"{name}({', '.join(('self', *expected))})."
    )
