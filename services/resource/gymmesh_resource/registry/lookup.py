"""From what an author points at to environments: a name, a class, a file, a package's folder."""

from __future__ import annotations

import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..environment import Environment
from ..errors import DefinitionError
from .loading import GROUP, environment_class, load_file, missing_extra


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
    """What a class says of itself, without making an environment of it."""
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
    """What `use:` would say for each environment of a place: an installed environment's name, a
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
            f"{folder} has no pyproject.toml that names its environments."
        ) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise DefinitionError(f"{file} cannot be read: {error}.") from None
    points = project.get("entry-points", {}).get(GROUP, {})
    if not points:
        raise DefinitionError(f'{file} names no environments under entry-points."{GROUP}".')
    for root in (folder, folder / "src"):
        if root.is_dir() and str(root.resolve()) not in sys.path:
            sys.path.insert(0, str(root.resolve()))
    uses = [str(value) for value in points.values()]
    for use in uses:
        environment_class(use)
    return uses


def _in_file(path: Path) -> list[str]:
    module = load_file(str(path), str(path))
    names = [
        name
        for name, value in vars(module).items()
        if isinstance(value, type)
        and issubclass(value, Environment)
        and value.__module__ == module.__name__
    ]
    if not names:
        raise DefinitionError(f"{path} has no subclass of gymmesh_resource.Environment.")
    return [f"{path}:{name}" for name in names]
