"""Runs one call against a model's endpoints, again where that is safe, within one time limit.

Asking for an answer again is safe as long as none has been handed to the caller: sampling has
no side effect. So every failure to get an answer may be retried, unless the same request
would fail again (refused, out of quota, not an answer) or the time is up (timeout).
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final, TypeVar

from gymmesh.errors.v1 import errors_pb2 as errors
from gymmesh_model import metrics
from gymmesh_model.backends.calls import RetryLog
from gymmesh_model.errors import timed_out
from gymmesh_model.routing import Pool, PoolEndpoint, RetryBudget
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
# How often a full endpoint is asked again beside the retries of a call.
_MOST_REFUSALS: Final = 20
_FULL_BACKOFFS: Final = 2


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
        backoff = rng.uniform(0.0, min(self.cap_s, self.base_s * 2.0**retries_done))
        delay = backoff if error.retry_after_s is None else error.retry_after_s + backoff / 4
        return delay if delay < remaining_s else None


@dataclass(slots=True)
class _Tries:
    """Of one call. all: how many failed. faults: those that count as retries. refusals: those that
    do not, as the endpoint was full. tried: the endpoints that failed it since the last pause.
    """

    all: int = 0
    faults: int = 0
    refusals: int = 0
    tried: set[int] = field(default_factory=set)


class Attempts:
    """The retry loop of one model.

    pool: its endpoints. base_s: see `RetryPolicy`. budget: by default a new one.

    Another endpoint is tried at once, the same one after a pause. Both are retries: a request
    that brings down its endpoint must not be handed round without a bound. A refusal of an endpoint
    that answers other calls (429, 503) is none: the call waits where it is, and is sent again up to
    20 times within its time. How many are sent at a time is what refusals decide on.
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
        log: RetryLog | None = None,
    ) -> T:
        """What `once` returns for one of the endpoints, tried anew after failures that may pass.

        timeout: seconds for it all. begun: whether a part of the answer has been handed to the
        caller, after which another try would contradict it. key: the rollout that the call is
        for. log: where retries are noted. Raises MeshError with a MODEL_* reason; after retries it
        is the last failure, whose metadata then has `attempts`.
        """
        pool = self._pool
        clock = pool.clock
        started = first = clock()
        deadline = started + timeout
        tries: _Tries | None = None  # most calls need none, and thousands wait here
        self._budget.called()
        while True:
            endpoint = pool.pick(key, () if tries is None else tries.tried)
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
            if tries is None:
                tries = _Tries()
            delay = None if begun() else self._delay(tries, endpoint, error, deadline - clock())
            tries.all += 1
            if delay is None:
                if tries.all > 1:
                    error.metadata["attempts"] = str(tries.all)
                raise error
            metrics.MODEL_RETRIES.labels(pool.name, error.reason_name).inc()
            if delay > 0.0:
                await asyncio.sleep(delay)
                await pool.room(max(0.0, deadline - clock()))
            started = clock()
            if log is not None:
                log.note(error, started - first)

    def _delay(
        self, tries: _Tries, endpoint: PoolEndpoint | None, error: MeshError, remaining: float
    ) -> float | None:
        """Seconds until the next try, 0 for one elsewhere; None for none at all."""
        pool, policy = self._pool, self._policy
        if endpoint is not None:
            tries.tried.add(endpoint.index)
        is_full = endpoint is not None and pool.is_full(endpoint, error)
        waits = is_full and policy.max_retries > 0 and tries.refusals < _MOST_REFUSALS
        if not waits and not policy.allows(tries.faults, error):
            return None
        if tries.tried and pool.has_more(tries.tried) and remaining > 0.0:
            delay: float | None = 0.0
        else:
            tries.tried.clear()
            # A full endpoint has a place again soon, and a call that waits for it holds one here.
            backoffs = min(tries.all, _FULL_BACKOFFS) if waits else tries.all
            delay = policy.delay(backoffs, error, remaining, self._rng)
        if delay is None:
            return None
        if waits:
            tries.refusals += 1
            return delay
        tries.faults += 1
        return delay if self._budget.take() else None
