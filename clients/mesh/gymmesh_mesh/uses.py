"""The environment of a place, such as `desk.py`, in the words of a configuration's `use`."""

from __future__ import annotations

from gymmesh_resource.errors import DefinitionError
from gymmesh_resource.registry import uses_of
from gymmesh_runtime.config import ConfigError


def name_of(use: str) -> str:
    """What the environment of a class or function is called: `desk` for `desk.py:Desk`."""
    name = use.rpartition(":")[2]
    return name.removesuffix("Environment").lower() or name.lower()


def one_use(place: str) -> str:
    """What `use:` says for the one environment of a place, as `authoring.placing` describes places.
    Raises ConfigError where there is none, or several.
    """
    try:
        uses = uses_of(place)
    except DefinitionError as error:
        raise ConfigError(str(error)) from None
    if len(uses) > 1:
        raise ConfigError(f"{place} has {len(uses)} environments; choose one: {', '.join(uses)}")
    return uses[0]
