"""The math environment: a calculator as a tool, and a verifier that compares answers."""

from typing import TYPE_CHECKING

from gymmesh_resource.environments._lazy_class import lazy_class

if TYPE_CHECKING:
    from gymmesh_resource.environments.math.environment import MathEnvironment as MathEnvironment

__all__ = ["MathEnvironment"]

__getattr__ = lazy_class(__name__, "MathEnvironment")
