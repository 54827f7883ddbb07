"""When a failed call is sent again: a pure decision.

Asking for an answer again is safe as long as none has been handed to the caller: sampling has
no side effect. So every failure to get an answer may be retried, unless the same request
would fail again (refused, out of quota, not an answer) or the time is up (timeout).
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Final

from gymmesh.errors.v1 import errors_pb2 as errors
from gymmesh_runtime.errors import MeshError

_RETRIED: Final = frozenset(
    (
        errors.ERROR_REASON_MODEL_UNREACHABLE,
        errors.ERROR_REASON_MODEL_RATE_LIMITED,
        errors.ERROR_REASON_MODEL_SERVER_ERROR,
    )
)


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Capped exponential backoff with full jitter.

    max_retries: calls after the first. base_s, cap_s: the backoff before retry k is drawn from
    0 … min(cap_s, base_s * 2**k) seconds.
    """

    max_retries: int = 2
    base_s: float = 0.25
    cap_s: float = 8.0

    def allows(self, retries_done: int, error: MeshError) -> bool:
        """Whether a call that ended with `error` may be sent again at all."""
        return retries_done < self.max_retries and error.reason in _RETRIED

    def delay(
        self, retries_done: int, error: MeshError, remaining_s: float, rng: random.Random
    ) -> float | None:
        """Seconds to wait before the next try, or None to give up with `error`.

        A Retry-After is waited for in full, plus jitter; when it reaches past `remaining_s`
        there is no point in waiting, and the caller learns of it at once.
        """
        if not self.allows(retries_done, error):
            return None
        backoff = rng.uniform(0.0, min(self.cap_s, self.base_s * 2.0**retries_done))
        delay = backoff if error.retry_after_s is None else error.retry_after_s + backoff / 4
        return delay if delay < remaining_s else None
