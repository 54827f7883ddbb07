"""All metrics that the rooms declare, collected."""

from __future__ import annotations

import importlib
import importlib.util
import pkgutil
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from gymmesh_runtime.telemetry.instruments import Family


def declared() -> dict[str, Family[Any]]:
    """Every metric, by the name of its constant: those of all modules `metrics` of our packages.

    Raises ValueError for two constants of one name.
    """
    found: dict[str, Family[Any]] = {}
    for module in _modules():
        own = vars(importlib.import_module(module))
        metrics = {name: one for name, one in own.items() if isinstance(one, Family)}
        if twice := sorted(found.keys() & metrics.keys()):
            raise ValueError(f"{module}: {twice[0]} is declared elsewhere, too")
        found |= metrics
    return found


def _modules() -> Iterator[str]:
    for package in pkgutil.iter_modules():
        if package.name.startswith("gymmesh_") and package.ispkg:
            spec = importlib.util.find_spec(package.name)
            for folder in (spec and spec.submodule_search_locations) or ():
                for file in sorted(Path(folder).rglob("metrics.py")):
                    inside = file.relative_to(folder).with_suffix("").parts
                    yield ".".join((package.name, *inside))


FAMILIES: Any = SimpleNamespace(**declared())
"""The same, as attributes: a query names a metric as `FAMILIES.ROLLOUTS`."""
