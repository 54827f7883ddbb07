"""The nemo_gym environment: a NeMo Gym resources server, reached over its HTTP API."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._late import late_class

if TYPE_CHECKING:
    from .environment import NemoGymEnvironment as NemoGymEnvironment

__all__ = ["NemoGymEnvironment"]

__getattr__ = late_class(__name__, "NemoGymEnvironment")
