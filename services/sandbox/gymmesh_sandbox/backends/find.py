"""Finds a backend by its name."""

from __future__ import annotations

import difflib
import importlib
from importlib.metadata import entry_points
from typing import Any, Final

from gymmesh_runtime.config import ConfigError
from gymmesh_sandbox.backends.base import SandboxBackend

GROUP: Final = "gymmesh.sandboxes"
# Also where the package is used from its sources and not installed.
_BUILT_IN: Final = {
    "bubblewrap": "gymmesh_sandbox.backends.bubblewrap:BubblewrapBackend",
    "docker": "gymmesh_sandbox.backends.docker:DockerBackend",
    "kubernetes": "gymmesh_sandbox.backends.kubernetes:KubernetesBackend",
}


def find_backend(use: str) -> type[SandboxBackend]:
    """The class that `use` names: an entry point of the group `gymmesh.sandboxes`, or
    `package.module:Class`.

    Raises ValueError if there is no such class, if it is not a SandboxBackend, or if a library is
    missing.
    """
    found = _load(use) if ":" in use else _load_named(use)
    if not (isinstance(found, type) and issubclass(found, SandboxBackend)):
        raise ValueError(
            f"backend: {use!r} is not a subclass of gymmesh_sandbox.backends.SandboxBackend"
        )
    return found


def _load_named(use: str) -> Any:
    for point in entry_points(group=GROUP, name=use):
        return _load(point.value)
    if use in _BUILT_IN:
        return _load(_BUILT_IN[use])
    known = sorted({*_BUILT_IN, *entry_points(group=GROUP).names})
    near = difflib.get_close_matches(use, known, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"known backends: {', '.join(known)}."
    raise ValueError(
        f"backend: there is no backend {use!r}; {hint} Give a class of your own as 'module:Class'"
    )


def _load(path: str) -> Any:
    module, _, name = path.partition(":")
    try:
        return getattr(importlib.import_module(module), name)
    except ConfigError:  # it says itself what it lacks
        raise
    except (ImportError, AttributeError, ValueError) as error:
        raise ValueError(f"backend: {path!r} cannot be imported: {error}") from None
