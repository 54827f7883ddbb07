"""Multiple choice questions with one right letter."""

from typing import TYPE_CHECKING

from gymmesh_resource.environments._lazy_class import lazy_class

if TYPE_CHECKING:
    from gymmesh_resource.environments.mcqa.environment import McqaEnvironment as McqaEnvironment

__all__ = ["McqaEnvironment"]

__getattr__ = lazy_class(__name__, "McqaEnvironment")
