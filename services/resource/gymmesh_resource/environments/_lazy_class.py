"""Packages of environments import their class late."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any


def lazy_class(package: str, name: str) -> Callable[[str], Any]:
    """A `__getattr__` for `package` that imports the class `name` from its module `environment`.

    Late, because worker processes import other modules of these packages, such as `verdict`, and
    need neither gRPC nor the contract's messages for that.
    """

    def get(wanted: str) -> Any:
        if wanted != name:
            raise AttributeError(f"module {package!r} has no attribute {wanted!r}")
        return getattr(importlib.import_module(f"{package}.environment"), name)

    return get
