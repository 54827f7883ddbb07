"""The facts that a backend's class declares, and how a class is found by name.

The configuration, the call runner and the rooms above the service read these facts. No other code
refers to a backend by its name.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import ClassVar, Final

from gymmesh_runtime.config import nearest

_HOME: Final = "gymmesh_model.backends"


class BackendFacts:
    """The facts of a backend, as class attributes. The defaults fit an endpoint with one URL.

    Attributes:
        kind: its name in configurations; the module of that name in this folder defines it. Empty:
            used only by programs, or by `module:Class` in a configuration.
        names_model: whether `model` of the configuration replaces the model of each request.
        calls_endpoint: whether it calls a URL at all.
        needs_url: whether a configuration must give that URL.
        default_url: the URL for a configuration without one; empty: no default.
        several_urls: whether it distributes calls among several URLs.
        needs_model: what `model` must name; empty: `model` is optional.
        needs_path: what `path` must name; empty: `path` is optional.
        starts_vllm: whether it starts vLLM itself with `serve` or `engine`, instead of a URL.
        has_metrics: whether its endpoints have Prometheus metrics of their load.
        computes_here: whether it computes answers on this machine, so that one instance is enough.
        is_recorded: whether its answers exist before the request.
    """

    kind: ClassVar[str] = ""
    names_model: ClassVar[bool] = True
    calls_endpoint: ClassVar[bool] = True
    needs_url: ClassVar[bool] = True
    default_url: ClassVar[str] = ""
    several_urls: ClassVar[bool] = False
    needs_model: ClassVar[str] = ""
    needs_path: ClassVar[str] = ""
    starts_vllm: ClassVar[bool] = False
    has_metrics: ClassVar[bool] = False
    computes_here: ClassVar[bool] = False
    is_recorded: ClassVar[bool] = False

    @classmethod
    def auth_headers(cls, api_key: str) -> Mapping[str, str]:
        """The headers that carry the key."""
        return {"Authorization": f"Bearer {api_key}"}

    @classmethod
    async def fetch_weights(cls, model: str | None) -> Path | None:
        """Fetches the weights that `model` names; returns their file, None: it has none.

        Raises ValueError with one sentence.
        """
        return None


def backend_class(name: str) -> type[BackendFacts]:
    """The class of a backend: by its `kind`, or by `module:Class`.

    Raises:
        ValueError: no such backend, or not a backend; the message names the nearest one.
    """
    if ":" in name:
        return _imported(name)
    if name in {module.name for module in _modules()} and (found := _kinds_in(name)):
        return found[name]
    raise ValueError(
        f"there is no backend {name!r} (name a class of your own as 'module:Class'); "
        + nearest(name, ("auto", *backend_kinds()))
    )


def backend_kinds(
    suits: Callable[[type[BackendFacts]], bool] = lambda _: True,
) -> list[str]:
    """The kinds of all backends in this folder of which `suits` is true. Imports all of them."""
    kinds = {kind: one for module in _modules() for kind, one in _kinds_in(module.name).items()}
    return sorted(kind for kind, one in kinds.items() if suits(one))


def _imported(place: str) -> type[BackendFacts]:
    module, _, attribute = place.partition(":")
    try:
        found: object = vars(importlib.import_module(module))[attribute]
    except (ImportError, KeyError) as error:
        raise ValueError(f"backend {place!r} cannot be imported: {error}") from None
    if isinstance(found, type) and issubclass(found, BackendFacts):
        return found
    raise ValueError(f"backend {place!r} is not a subclass of gymmesh_model.backends.base.Backend")


def _modules() -> list[pkgutil.ModuleInfo]:
    return list(pkgutil.iter_modules(importlib.import_module(_HOME).__path__))


def _kinds_in(module: str) -> dict[str, type[BackendFacts]]:
    """The backends of a module whose kind is the module's name: one at most."""
    found = vars(importlib.import_module(f"{_HOME}.{module}")).values()
    classes = (one for one in found if isinstance(one, type) and issubclass(one, BackendFacts))
    return {one.kind: one for one in classes if one.kind == module}
