"""The user simulator: a customer played by a second model, and the shop that serves them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._late import late_class

if TYPE_CHECKING:
    from .environment import UserSimulatorEnvironment as UserSimulatorEnvironment

__all__ = ["UserSimulatorEnvironment"]

__getattr__ = late_class(__name__, "UserSimulatorEnvironment")
