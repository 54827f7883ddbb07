"""The code environment: tools that run programs in a sandbox, and a verifier that tests them."""

from typing import TYPE_CHECKING

from gymmesh_resource.environments._lazy_class import lazy_class

if TYPE_CHECKING:
    from gymmesh_resource.environments.code.environment import CodeEnvironment as CodeEnvironment

__all__ = ["CodeEnvironment"]

__getattr__ = lazy_class(__name__, "CodeEnvironment")
