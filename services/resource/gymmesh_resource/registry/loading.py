"""Finds an environment's class by its name or place, and makes the object from its options."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Mapping
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec

from gymmesh_runtime.config.errors import nearest
from gymmesh_runtime.text.authors_code import described
from gymmesh_runtime.text.faults import place_of

from ..environment import Environment
from ..errors import FILE_MODULE, DefinitionError
from ..tools import arguments_type

GROUP = "gymmesh.environments"


def environment_names() -> list[str]:
    """The names that installed packages offer in the entry point group, sorted."""
    return sorted({point.name for point in entry_points(group=GROUP)})


def environment_class(use: str) -> type[Environment[Any]]:
    """The class for a name, `package.module:Class` or `folder/file.py:Class`.

    Modules are found as by `python -m`: the working directory counts. Raises `DefinitionError`.
    """
    found = _by_place(use) if ":" in use else _by_name(use)
    if not (isinstance(found, type) and issubclass(found, Environment)):
        raise DefinitionError(f"{use!r} is not a subclass of gymmesh_resource.Environment.")
    return found


def make_environment(use: str, options: Mapping[str, Any]) -> Environment[Any]:
    """The environment, its options checked against the parameters of its `__init__`.

    Raises `DefinitionError`, in one sentence that names the option.
    """
    kind = environment_class(use)
    if problem := missing_extra(kind, use):
        raise DefinitionError(problem)
    own_init = kind.__init__ is not object.__init__
    accepted = arguments_type(kind.__init__, f"{kind.__name__}.__init__", {}) if own_init else None
    names = accepted.__struct_fields__ if accepted else ()
    for name in options:
        if name not in names:
            raise DefinitionError(
                f"The environment {use!r} has no option {name!r}; {nearest(name, names)}"
            )
    if accepted is None:
        return kind()
    try:
        checked = msgspec.convert(dict(options), accepted)
    except msgspec.ValidationError as error:
        message = str(error).replace(" - at `$.", " in the option `")
        raise DefinitionError(f"The options of the environment {use!r}: {message}.") from None
    try:
        return kind(**{name: getattr(checked, name) for name in names})
    except (ValueError, OSError) as error:
        raise DefinitionError(f"The environment {use!r} cannot be made: {error}") from None
    except BaseException as error:
        at = f" at {place}" if (place := place_of(error)) else ""
        raise DefinitionError(
            f"The environment {use!r} cannot be made: {described(error)}{at}"
        ) from error


def missing_extra(kind: type[Environment[Any]], use: str) -> str:
    """A sentence on the libraries that a class lacks and what to install; empty if none."""
    return kind.extra.problem(f"the environment {use!r}") if kind.extra else ""


def _by_name(use: str) -> object:
    for point in entry_points(group=GROUP, name=use):
        try:
            return point.load()
        except (ImportError, AttributeError) as error:
            raise DefinitionError(
                f"The environment {use!r} is installed as {point.value} but cannot be loaded: "
                f"{error}."
            ) from None
    raise DefinitionError(
        f"There is no environment {use!r}; {nearest(use, environment_names())} "
        "(A class of your own is written package.module:Class.)"
    )


def _by_place(use: str) -> object:
    place, _, name = use.rpartition(":")
    module = load_file(place, use) if place.endswith(".py") else _module(place, use)
    if not hasattr(module, name):
        offered = [key for key, value in vars(module).items() if _is_environment(value)]
        raise DefinitionError(
            f"{use!r}: {place} has no {name!r}; its environments: {', '.join(offered) or 'none'}."
        )
    found: object = getattr(module, name)
    return found


def _module(place: str, use: str) -> ModuleType:
    # A console script does not look in the working directory by itself; -m does.
    here = str(Path.cwd())
    if here not in sys.path and "" not in sys.path:
        sys.path.append(here)
    importlib.invalidate_caches()
    try:
        return importlib.import_module(place)
    except BaseException as error:
        raise DefinitionError(_not_loaded(use, place, error)) from error


def load_file(place: str, use: str) -> ModuleType:
    """The module of a Python file, imported once. `use`: what errors name.

    Raises `DefinitionError`.
    """
    path = Path(place).resolve()
    name = f"{FILE_MODULE}{path.stem}_{abs(hash(str(path))):x}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None or not path.is_file():
        raise DefinitionError(f"{use!r}: there is no file {place}, seen from {Path.cwd()}.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException as error:
        del sys.modules[name]
        raise DefinitionError(_not_loaded(use, place, error)) from error
    return module


def _not_loaded(use: str, place: str, error: BaseException) -> str:
    return f"{use!r}: {place} cannot be imported: {described(error)}."


def _is_environment(value: object) -> bool:
    return isinstance(value, type) and issubclass(value, Environment) and value is not Environment
