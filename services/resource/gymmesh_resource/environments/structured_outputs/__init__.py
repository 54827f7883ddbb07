"""Answers that must fit a JSON Schema, as text in a format or as a tool's arguments."""

from typing import TYPE_CHECKING

from gymmesh_resource.environments._lazy_class import lazy_class

if TYPE_CHECKING:
    from gymmesh_resource.environments.structured_outputs.environment import (
        StructuredOutputsEnvironment as StructuredOutputsEnvironment,
    )

__all__ = ["StructuredOutputsEnvironment"]

__getattr__ = lazy_class(__name__, "StructuredOutputsEnvironment")
