"""Finds environments and creates their objects from options.

An author names an environment by a name, a class, a plain reward function, a file, or a package's
folder.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

import msgspec

from gymmesh_resource.environment import Environment
from gymmesh_resource.errors import FILE_MODULE, DefinitionError
from gymmesh_resource.rewards import function_environment
from gymmesh_resource.tools import arguments_type
from gymmesh_runtime.config import explained, file_spec, named_module, nearest
from gymmesh_runtime.text import place_of
from gymmesh_runtime.text.authors_code import described

GROUP = "gymmesh.environments"
# The folders of the files that were loaded.
_FOLDERS: set[Path] = set()


def environment_names() -> list[str]:
    """The names that installed packages offer in the entry point group, sorted."""
    return sorted({point.name for point in entry_points(group=GROUP)})


def environment_class(use: str) -> type[Environment[Any]]:
    """The class for a name, `package.module:Class` or `folder/file.py:Class`. A plain function
    there becomes the environment that rewards by it.

    Modules are found as by `python -m`: the working directory counts. Raises `DefinitionError`.
    """
    found = named_object(use) if ":" in use else _by_name(use)
    if isinstance(found, type) and issubclass(found, Environment):
        return found
    if callable(found) and not isinstance(found, type):
        return function_environment(found)
    raise DefinitionError(
        f"{use!r} is neither a subclass of gymmesh_resource.Environment nor a reward function."
    )


def make_environment(use: str, options: Mapping[str, Any]) -> Environment[Any]:
    """The environment. Its options are checked against the parameters of its `__init__`.

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
        option, problem = explained(error, accepted)
        which = f"The option `{option}`" if option else "The options"
        raise DefinitionError(
            f"{which} of the environment {use!r} can't be used: {problem}."
        ) from None
    try:
        return kind(**{name: getattr(checked, name) for name in names})
    except (ValueError, OSError) as error:
        raise DefinitionError(f"The environment {use!r} cannot be created: {error}") from None
    except BaseException as error:
        at = f" at {place}" if (place := place_of(error)) else ""
        raise DefinitionError(
            f"The environment {use!r} cannot be created: {described(error)}{at}"
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
        f"There is no environment {use!r}; {nearest(use, environment_names())} (Write a class "
        "of your own as package.module:Class or folder/file.py:Class.)"
    )


def named_object(use: str) -> object:
    """What `package.module:name` or `folder/file.py:name` names. Raises `DefinitionError`."""
    place, _, name = use.rpartition(":")
    if not place or not name:
        raise DefinitionError(
            f"{use!r} must be written package.module:name or folder/file.py:name."
        )
    module = load_file(place, use) if place.endswith(".py") else _module(place, use)
    if not hasattr(module, name):
        offered = _offered(module)
        raise DefinitionError(
            f"{use!r}: {place} has no {name!r}. The environments in {place}: "
            f"{', '.join(offered) or 'none'}."
        )
    found: object = getattr(module, name)
    return found


def _module(place: str, use: str) -> ModuleType:
    try:
        return named_module(place)
    except BaseException as error:
        raise DefinitionError(_not_loaded(use, place, error)) from error


def load_file(place: str, use: str) -> ModuleType:
    """The module of a Python file, imported once; modules beside it can be imported as from a
    script. `use`: what errors name.

    Raises `DefinitionError`.
    """
    path = Path(place).resolve()
    name = f"{FILE_MODULE}{path.stem}_{abs(hash(str(path))):x}"
    if name in sys.modules:
        return sys.modules[name]
    spec = file_spec(name, path)
    if spec is None or spec.loader is None:
        raise DefinitionError(f"{use!r}: there is no file {place} (current folder: {Path.cwd()}).")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        with _importable(path.parent):
            spec.loader.exec_module(module)
    except BaseException as error:
        del sys.modules[name]
        raise DefinitionError(_not_loaded(use, place, error)) from error
    return module


@contextmanager
def _importable(folder: Path) -> Iterator[None]:
    """Modules of a folder come first while a file of it is loaded, and last afterwards, for what
    its functions import later.

    Modules of the same name that files of another folder imported are loaded anew.
    """
    here = str(folder)
    for beside in folder.iterdir():
        known = sys.modules.get(beside.stem)
        origin = Path(getattr(known, "__file__", None) or ".").parent
        if known is not None and origin != folder and origin in _FOLDERS:
            del sys.modules[beside.stem]
    _FOLDERS.add(folder)
    sys.path.insert(0, here)
    importlib.invalidate_caches()
    try:
        yield
    finally:
        sys.path.remove(here)
        if here not in sys.path:
            sys.path.append(here)


def _not_loaded(use: str, place: str, error: BaseException) -> str:
    return f"{use!r}: {place} cannot be imported: {described(error)}."


def _offered(module: ModuleType) -> list[str]:
    """The names of a module's own environments: its classes, else its public functions."""
    own = {
        name: value
        for name, value in vars(module).items()
        if getattr(value, "__module__", None) == module.__name__ and not name.startswith("_")
    }
    classes = [name for name, value in own.items() if _is_environment(value)]
    return classes or [name for name, value in own.items() if isinstance(value, FunctionType)]


def _is_environment(value: object) -> bool:
    return isinstance(value, type) and issubclass(value, Environment) and value is not Environment


@dataclass(frozen=True, slots=True)
class About:
    """An environment's class at a glance; `problem` says why it cannot be used."""

    use: str
    description: str = ""
    version: str = ""
    models: tuple[str, ...] = ()
    multi_turn: bool = False
    problem: str = ""


def about(use: str) -> About:
    """The description of a class, without creating an environment."""
    try:
        kind = environment_class(use)
    except DefinitionError as error:
        return About(use, problem=str(error))
    return About(
        use,
        description=" ".join((kind.__doc__ or "").split()),
        version=kind.version,
        models=tuple(kind.models),
        multi_turn=kind.next_turn is not Environment.next_turn,
        problem=missing_extra(kind, use),
    )


def uses_of(place: str) -> list[str]:
    """The value of `use:` for each environment of a place: an installed environment's name, a
    class, a file with classes, or the folder of a package that offers environments.

    A package's folder becomes importable. Raises `DefinitionError`.
    """
    path = Path(place)
    if path.is_dir():
        return _in_package(path)
    if place.endswith(".py"):
        return _in_file(path)
    environment_class(place)
    return [place]


def _in_package(folder: Path) -> list[str]:
    file = folder / "pyproject.toml"
    try:
        project: dict[str, Any] = tomllib.loads(file.read_text()).get("project", {})
    except OSError:
        raise DefinitionError(
            f"{folder} has no pyproject.toml that lists its environments."
        ) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise DefinitionError(f"{file} cannot be read: {error}.") from None
    points = project.get("entry-points", {}).get(GROUP, {})
    if not points:
        raise DefinitionError(f'{file} lists no environments under entry-points."{GROUP}".')
    for root in (folder, folder / "src"):
        if root.is_dir() and str(root.resolve()) not in sys.path:
            sys.path.insert(0, str(root.resolve()))
    uses = [str(value) for value in points.values()]
    for use in uses:
        environment_class(use)
    return uses


def _in_file(path: Path) -> list[str]:
    module = load_file(str(path), str(path))
    names = _offered(module)
    if not names:
        raise DefinitionError(
            f"{path} has neither a subclass of gymmesh_resource.Environment nor a reward function."
        )
    return [f"{path}:{name}" for name in names]
