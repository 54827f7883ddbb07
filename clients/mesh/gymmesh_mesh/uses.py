"""The environment of a place, such as `desk.py`, as the key `use` of a configuration names it."""

from __future__ import annotations

from gymmesh_resource.errors import DefinitionError
from gymmesh_resource.registry import uses_of
from gymmesh_runtime.config import ConfigError


def name_of(use: str) -> str:
    """The name of the environment of a class or function: `desk` for `desk.py:Desk`."""
    name = use.rpartition(":")[2]
    return name.removesuffix("Environment").lower() or name.lower()


def one_use(place: str) -> str:
    """The value of `use` for the only environment of a place (see `authoring.placing`). Raises
    ConfigError if the place has no environment, or several.
    """
    try:
        uses = uses_of(place)
    except DefinitionError as error:
        raise ConfigError(str(error)) from None
    if len(uses) > 1:
        raise ConfigError(f"{place} has {len(uses)} environments; choose one: {', '.join(uses)}")
    return uses[0]
