"""The math environment: a calculator as a tool, and a verifier that compares answers."""

from typing import TYPE_CHECKING

from gymmesh_resource.environments._late import late_class

if TYPE_CHECKING:
    from gymmesh_resource.environments.math.environment import MathEnvironment as MathEnvironment

__all__ = ["MathEnvironment"]

__getattr__ = late_class(__name__, "MathEnvironment")
