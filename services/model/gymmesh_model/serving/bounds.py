"""The bounds of a model's calls: the service keeps them before its backend is called."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from gymmesh_model.config import ModelConfig
from gymmesh_runtime.timers import MAX_TIMEOUT_S


@dataclass(frozen=True, slots=True)
class CallBounds:
    """What one model service admits.

    Attributes:
        concurrency: the most calls at the backend at a time; infinity: any number.
        queue: the most calls that may wait for a place; infinity: any number.
        timeout_s: seconds for one call, waiting and retries included. The caller's deadline holds
            in any case.
    """

    concurrency: float
    queue: float
    timeout_s: float

    @staticmethod
    def of(config: ModelConfig) -> CallBounds:
        """The bounds that a configuration sets."""
        return CallBounds(config.max_concurrency, config.max_queue, config.timeout_s)


UNBOUNDED: Final = CallBounds(math.inf, math.inf, MAX_TIMEOUT_S)
"""For a backend that your program created: the backend has its own bounds, or needs none."""
