"""Runs one call against a model's endpoints, again where that is safe, within one time limit.

Asking for an answer again is safe as long as none has been handed to the caller: sampling has
no side effect. So every failure to get an answer may be retried, unless the same request
would fail again (refused, out of quota, not an answer) or the time is up (timeout).
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, TypeVar

from gymmesh.errors.v1 import errors_pb2 as errors
from gymmesh_model.errors import timed_out
from gymmesh_model.routing import Pool, PoolEndpoint, RetryBudget
from gymmesh_runtime import metrics
from gymmesh_runtime.errors import MeshError
from gymmesh_runtime.timers import Limit

T = TypeVar("T")

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


class Attempts:
    """The retry loop of one model.

    pool: its endpoints. base_s: see `RetryPolicy`. budget: by default a new one.

    Another endpoint is tried at once, the same one after a pause. Both are retries: a request
    that brings down its endpoint must not be handed round without a bound.
    """

    def __init__(
        self,
        pool: Pool,
        max_retries: int,
        *,
        base_s: float = 0.25,
        budget: RetryBudget | None = None,
    ) -> None:
        self._pool = pool
        self._policy = RetryPolicy(max_retries=max_retries, base_s=base_s)
        self._budget = budget or RetryBudget()
        self._rng = random.Random()

    async def run(
        self,
        once: Callable[[PoolEndpoint], Awaitable[T]],
        timeout: float,
        begun: Callable[[], bool] = lambda: False,
        key: str = "",
    ) -> T:
        """What `once` returns for one of the endpoints, tried anew after failures that may pass.

        timeout: seconds for it all. begun: whether a part of the answer has been handed to the
        caller, after which another try would contradict it. key: the rollout that the call is
        for. Raises MeshError with a MODEL_* reason; after retries it is the last failure, whose
        metadata then has `attempts`.
        """
        pool = self._pool
        clock = pool.clock
        started = clock()
        deadline = started + timeout
        tries = 0
        tried: set[int] | None = None  # most calls need none, and thousands wait here
        self._budget.called()
        while True:
            endpoint = pool.pick(key, tried or ())
            if endpoint is None:
                error = pool.left_alone()
            else:
                # Without a `with`, which would add a quarter to the limit's cost.
                limit = Limit(deadline - started)
                endpoint.begin()
                try:
                    answer = await once(endpoint)
                    pool.answered(endpoint, started, key)
                    return answer
                except asyncio.CancelledError:
                    if not limit.alone:
                        raise
                    error = timed_out(pool.name, timeout)
                except TimeoutError:
                    error = timed_out(pool.name, timeout)
                except MeshError as failure:
                    error = failure
                finally:
                    limit.leave()
                    endpoint.end()
                pool.failed(endpoint, started, error)
                tried = {*(tried or ()), endpoint.index}
            tried = tried or set()
            delay = None if begun() else self._delay(tries, error, deadline - clock(), tried)
            tries += 1
            if delay is None or not self._budget.take():
                if tries > 1:
                    error.metadata["attempts"] = str(tries)
                raise error
            metrics.MODEL_RETRIES.labels(pool.name, error.reason_name).inc()
            if delay > 0.0:
                await asyncio.sleep(delay)
            started = clock()

    def _delay(
        self, tries: int, error: MeshError, remaining: float, tried: set[int]
    ) -> float | None:
        """Seconds until the next try, 0 for one elsewhere; None for none at all."""
        elsewhere = bool(tried) and self._pool.has_more(tried)
        if elsewhere and self._policy.allows(tries, error) and remaining > 0.0:
            return 0.0
        tried.clear()
        return self._policy.delay(tries, error, remaining, self._rng)
