"""Multiple choice questions with one right letter."""

from typing import TYPE_CHECKING

from gymmesh_resource.environments._late import late_class

if TYPE_CHECKING:
    from gymmesh_resource.environments.mcqa.environment import McqaEnvironment as McqaEnvironment

__all__ = ["McqaEnvironment"]

__getattr__ = late_class(__name__, "McqaEnvironment")
