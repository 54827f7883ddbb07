"""The endpoints of one model: how each of them fares, and which one gets the next call.

No tasks, and no I/O but lines in the log. `Attempts` reports when calls begin and end,
`follow_load` reports what the endpoints' metrics say, and the pool sets how many calls the limiter
admits.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial
from typing import Final
from urllib.parse import urlsplit

from yarl import URL

from gymmesh.errors.v1 import errors_pb2 as errors
from gymmesh_model import metrics
from gymmesh_model.config import AdaptConfig, ModelConfig
from gymmesh_model.errors import unreachable
from gymmesh_model.routing.breaker import Breaker
from gymmesh_model.routing.concurrency import AdaptiveWidth
from gymmesh_model.routing.limiter import ConcurrencyLimiter
from gymmesh_model.routing.load import LoadReport, Targets, overloaded
from gymmesh_model.routing.outage import Outage
from gymmesh_model.routing.router import Router
from gymmesh_runtime.errors import MeshError

_log = logging.getLogger("gymmesh.model")

# Where a call has somewhere else to go, an endpoint is given up sooner.
_THRESHOLD_OF_SEVERAL: Final = 5
_TIMEOUT: Final = errors.ERROR_REASON_MODEL_TIMEOUT
# What says that an endpoint is down.
_DOWN: Final = frozenset(
    (errors.ERROR_REASON_MODEL_UNREACHABLE, errors.ERROR_REASON_MODEL_SERVER_ERROR)
)
# A timeout says it, too, if the endpoint answered no call for so many seconds. A shorter one does
# not: the caller may have been in a hurry.
_SILENT_S: Final = 10.0
# One that answers with an error now and then is not down; after so many in a row, it is.
_ERRORS_IN_A_ROW: Final = 3
# An endpoint that gave an answer within so many seconds answers calls.
_SERVES_S: Final = 30.0
# HTTP statuses of servers that have too much to do: 503, and 529 of some gateways.
_OVERLOADED: Final = ("503", "529")


class PoolEndpoint:
    """One endpoint. `base` is its base URL without a slash at the end, or empty.

    in_flight: calls of ours. others: calls of others, as far as its metrics say. answered: when it
    last did, be it to refuse. served: when it last gave an answer. index: its place in the
    configuration, which is its name in metrics.
    """

    def __init__(
        self, model: str, index: int, base: str, breaker: Breaker, width: AdaptiveWidth
    ) -> None:
        self.index = index
        self.base = base
        self._root = base.rsplit("/", 1)[0] if urlsplit(base).path.strip("/") else base
        self._urls: dict[str, str] = {}  # of the few paths that there are
        self.breaker = breaker
        self.outage = Outage()
        self.width = width
        self.in_flight = 0
        self.answered = float("-inf")
        self.served = float("-inf")
        self.others = 0.0
        self.report: LoadReport | None = None
        self.gauge = metrics.MODEL_ENDPOINT_IN_FLIGHT.labels(model, str(index))
        self.down = metrics.MODEL_ENDPOINT_DOWN.labels(model, str(index))
        self.down.set(0)

    @property
    def load(self) -> float:
        return self.in_flight + self.others

    def begin(self) -> None:
        self.in_flight += 1
        self.gauge.inc()

    def end(self) -> None:
        self.in_flight -= 1
        self.gauge.dec()

    def at(self, path: str) -> str:
        """The URL of a path below the base, or, as `/../path`, beside it; whole URLs stay."""
        url = self._urls.get(path)
        if url is None:
            if not path.startswith("/"):
                return path
            beside = path.startswith("/../")
            url = self._urls[path] = self._root + path[3:] if beside else self.base + path
        return url


class Pool:
    """The endpoints of the model `name`, at least one.

    bases: their base URLs. margin: see `Router`. concurrency: calls at all of them together, at
    most; each has its part of it. clock: seconds, monotonic.
    """

    def __init__(
        self,
        name: str,
        bases: Sequence[str] = ("",),
        *,
        margin: float = 8,
        concurrency: int = 64,
        adapt: AdaptConfig | None = None,
        breaker: Callable[[], Breaker] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        adapt = adapt or AdaptConfig()
        size = len(bases)
        cap = concurrency / size
        self.name = name
        self.clock = clock
        # A probe of a machine that is gone takes its call the time of a connection that never
        # comes, so they get rarer where a call has somewhere else to go.
        impatient = partial(Breaker, threshold=_THRESHOLD_OF_SEVERAL, growth=2.0)
        make = breaker or (Breaker if size == 1 else impatient)

        def width() -> AdaptiveWidth:
            # A large width would take too many round trips to come back by ones.
            step, floor = max(1.0, cap / 50), adapt.min_concurrency / size
            return AdaptiveWidth(cap=cap, floor=floor, backoff=adapt.backoff, step=step)

        self.endpoints = tuple(
            PoolEndpoint(name, index, base, make(), width()) for index, base in enumerate(bases)
        )
        self._only = self.endpoints[0] if size == 1 else None
        self._router = Router([identity(base) for base in bases], margin)
        self._targets = Targets(adapt.queue_target_s, adapt.kv_target)
        self._limiter: ConcurrencyLimiter | None = None
        self._limit = metrics.MODEL_CONCURRENCY_LIMIT.labels(name)
        self._limit.set(concurrency)

    @staticmethod
    def of(name: str, config: ModelConfig) -> Pool:
        return Pool(
            name,
            config.bases or ("",),
            margin=config.route_margin,
            concurrency=config.max_concurrency,
            adapt=config.adapt,
        )

    def govern(self, limiter: ConcurrencyLimiter) -> None:
        """From now on sets the limiter's places to what the endpoints can take."""
        self._limiter = limiter
        self._resize()

    def unlisted(self, urls: Iterable[str]) -> list[str]:
        """The origins of endpoints that no URL has (scheme, host and port), each once."""
        listed = {origin(url) for url in urls}
        called = (origin(one.base) for one in self.endpoints if one.base)
        return [one for one in dict.fromkeys(called) if one not in listed]

    def home(self, key: str) -> PoolEndpoint:
        """The endpoint where the calls of the rollout `key` belong at present."""
        return self.endpoints[self._router.home(key)]

    def pick(self, key: str, tried: Collection[int] = ()) -> PoolEndpoint | None:
        """The endpoint for a call of the rollout `key`; None when none may be called now.

        tried: the indices of those that have failed this very call. A circuit that lets a probe
        through counts the call as one.
        """
        only = self._only
        if only is not None:
            if tried or (only.breaker.is_open and only.breaker.admit(self.clock()) is not None):
                return None
            return only
        now = self.clock()
        barred = self._barred(now, tried)
        place = self._router.choose(key, [one.load for one in self.endpoints], barred)
        if place is None:
            return None
        if key and place != (home := self._router.home(key)):
            cause = "down" if home in barred else "busy"
            metrics.MODEL_REROUTES.labels(self.name, cause).inc()
        chosen = self.endpoints[place]
        chosen.breaker.admit(now)
        return chosen

    def has_more(self, tried: Collection[int]) -> bool:
        """Whether an endpoint may be called that is not among the tried."""
        if len(tried) == len(self.endpoints):
            return False
        return len(self._barred(self.clock(), tried)) < len(self.endpoints)

    def left_alone(self) -> MeshError:
        """MODEL_UNREACHABLE for a call that no circuit lets through."""
        now = self.clock()
        error = unreachable(
            self.name,
            "too many calls failed in a row, so the model service now sends this endpoint only "
            "single calls as probes",
        )
        error.retry_after_s = min(one.breaker.wait(now) for one in self.endpoints)
        return error

    def answered(self, endpoint: PoolEndpoint, started: float, key: str) -> None:
        """A call of the rollout `key`, begun at `started`, got its answer."""
        self._alive(endpoint)
        endpoint.served = endpoint.answered
        if self._only is None:
            self._router.answered(key, endpoint.index)
        limiter = self._limiter
        waiting = limiter is not None and limiter.waiting > 0
        if endpoint.width.succeeded(started, waiting, endpoint.answered):
            self._resize()

    def failed(self, endpoint: PoolEndpoint, started: float, error: MeshError) -> None:
        """A call, begun at `started`, failed."""
        # Whether it waited in vain at an endpoint that hangs.
        silent = (
            error.reason == _TIMEOUT
            and endpoint.answered < started
            and self.clock() - started >= _SILENT_S
        )
        # One that says why it gave no answer is there.
        answered = "finish_reason" in error.metadata
        if (error.reason in _DOWN and not answered) or silent:
            endpoint.breaker.failed(self.clock())
            endpoint.down.set(1 if endpoint.breaker.is_open else 0)
            self._log_outage(endpoint, error)
        elif error.reason != _TIMEOUT:
            self._alive(endpoint)
        if is_refusal(error) and endpoint.width.refused(started, endpoint.in_flight, self.clock()):
            self._resize()

    def is_full(self, endpoint: PoolEndpoint, error: MeshError) -> bool:
        """Whether `error` says that the endpoint has enough to do, and it does answer others."""
        return is_refusal(error) and self.clock() - endpoint.served < _SERVES_S

    async def room(self, timeout: float) -> None:
        """Waits until a call that holds a place may be sent again. Raises MeshError."""
        if self._limiter is not None:
            await self._limiter.again(timeout)

    def reported(
        self, endpoint: PoolEndpoint, report: LoadReport | None, asked: float, in_flight: int
    ) -> None:
        """An endpoint's metrics; None if they could not be read.

        asked: when they were requested; in_flight: the number of our calls at the endpoint then.
        """
        before, endpoint.report = endpoint.report, report
        if report is None:
            endpoint.others = 0.0
            endpoint.width.hold(False)
            return
        endpoint.others = max(0.0, report.busy - in_flight)
        metrics.MODEL_ENDPOINT_KV_CACHE.labels(self.name, str(endpoint.index)).set(report.kv_usage)
        endpoint.width.hold(report.kv_usage >= self._targets.kv_usage)
        full = overloaded(report, before, self._targets)
        if full and endpoint.width.overloaded(asked, self.clock()):
            self._resize()

    def _barred(self, now: float, tried: Collection[int]) -> list[int]:
        """Those that get no call now. One that has as many as it takes gets none as long as another
        may get it.
        """
        barred = [
            one.index for one in self.endpoints if one.index in tried or one.breaker.wait(now) > 0.0
        ]
        full = [
            one.index
            for one in self.endpoints
            if one.width.width < one.width.cap
            and one.in_flight >= max(1, int(one.width.width))
            and one.index not in barred
        ]
        return barred + full if len(barred) + len(full) < len(self.endpoints) else barred

    def _alive(self, endpoint: PoolEndpoint) -> None:
        endpoint.answered = self.clock()
        breaker = endpoint.breaker
        if not breaker.failures:
            return
        if breaker.answered():
            endpoint.down.set(0)
        lasted = endpoint.outage.answered(endpoint.answered)
        if lasted is not None:
            where = f" at {identity(endpoint.base)}" if endpoint.base else ""
            # What is urgent is shown on a terminal, too.
            _log.warning(
                "the endpoint of model '%s'%s answers again after %.1f s",
                self.name,
                where,
                lasted,
                extra={"urgent": True},
            )

    def _log_outage(self, endpoint: PoolEndpoint, error: MeshError) -> None:
        """Say that an endpoint is down, once for each time that it is."""
        outage = endpoint.outage
        failed = error.reason == errors.ERROR_REASON_MODEL_SERVER_ERROR
        sure = not failed or endpoint.breaker.failures >= _ERRORS_IN_A_ROW
        if outage.failed(self.clock(), sure=sure):
            where = "" if "url" in error.metadata else f" ({identity(endpoint.base)})"
            # Lines that are the same are shown once.
            again = f" (outage {outage.number})" if outage.number > 1 else ""
            _log.warning("%s%s%s", error.message, where, again, extra={"urgent": True})

    def _resize(self) -> None:
        # A hair more, so that parts that make up a whole number do.
        places = max(1, int(sum(one.width.width for one in self.endpoints) + 1e-6))
        if self._limiter is not None and places != self._limiter.limit:
            self._limiter.resize(places)
            self._limit.set(places)


def is_refusal(error: MeshError) -> bool:
    """Whether an endpoint refused the call for having too much to do."""
    rated = error.reason == errors.ERROR_REASON_MODEL_RATE_LIMITED
    return rated or error.metadata.get("http_status") in _OVERLOADED


def identity(base: str) -> str:
    """What names an endpoint: its address without a user's name and password."""
    parts = urlsplit(base)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def origin(url: str) -> str:
    """A URL's scheme, host and port, without a user; one spelling for this machine.

    Returns the URL as it is if it has no host.
    """
    try:
        found = URL(url).origin()
    except ValueError:
        return url
    return str(found.with_host("127.0.0.1") if found.host == "localhost" else found)
