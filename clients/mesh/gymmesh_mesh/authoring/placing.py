"""An environment that a command names by its place, added to the command's mesh."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from msgspec.structs import replace

from gymmesh_mesh.config import MeshConfig
from gymmesh_mesh.uses import name_of, one_use
from gymmesh_resource.config import EnvironmentConfig
from gymmesh_resource.errors import DefinitionError
from gymmesh_resource.registry import example_rows, make_environment
from gymmesh_runtime.config import ConfigError


def with_environment(config: MeshConfig, place: str) -> MeshConfig:
    """A configuration with the environment of a place, which becomes the default environment. If
    the configuration has an environment of this name, its other keys than `use` still apply.

    Args:
        place: a name of the configuration, an installed environment, a class or a function such as
            `desk.py:Desk`, a file that contains one of these, or the folder of a package.

    Raises ConfigError if the place has no environment or several, or cannot be loaded.
    """
    if place in config.environments:
        return _default(config, place)
    use = one_use(place)
    name = name_of(use)
    said = config.environments.get(name, EnvironmentConfig())
    environments = {**config.environments, name: replace(said, use=use)}
    return _default(replace(config, environments=environments), name)


def rows_of_examples(config: MeshConfig, name: str) -> list[dict[str, Any]]:
    """The rows of an environment's own example tasks. Each row has an id and names the environment.

    Raises ConfigError if the environment has no examples, or cannot be made.
    """
    one = config.environments.get(name)
    if one is None:
        raise ConfigError(f"the configuration has no environment {name!r}", path="defaults")
    try:
        rows = list(_rows(make_environment(one.use, one.options), name))
    except DefinitionError as error:
        raise ConfigError(str(error), path=f"environments.{name}") from None
    if not rows:
        raise ConfigError(
            f"environment {name!r} has no example tasks. Pass a task file with --input, or set "
            "`examples` in its class to a list of task rows"
        )
    return rows


def _rows(environment: Any, name: str) -> Iterator[dict[str, Any]]:
    for number, row in enumerate(example_rows(environment), start=1):
        if not isinstance(row, dict):
            raise DefinitionError(f"Example task {number} of {name!r} is not an object.")
        own = {key: value for key, value in row.items() if key != "environment"}
        yield {"task_id": f"{name}-example-{number}", **own}


def _default(config: MeshConfig, name: str) -> MeshConfig:
    return replace(config, defaults=replace(config.defaults, environment=name))
