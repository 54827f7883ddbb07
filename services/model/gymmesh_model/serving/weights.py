"""Which weights generate: what a trainer announces, followed through each call."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from gymmesh.model.v1 import tokens_pb2
from gymmesh_model import metrics
from gymmesh_model.backends.calls import CallWeights, WeightsInForce
from gymmesh_runtime.errors import field_invalid


class WeightsClock:
    """The current weights of a model, and those that each running call has seen.

    current: what calls are begun with: as announced, or as the whole endpoint has it.
    """

    def __init__(self, model: str) -> None:
        self._model = model
        self.current: WeightsInForce | None = None
        self._reported: int | None = None  # the newest version that an answer reported
        #: Called after each change of the version.
        self.changed: Callable[[], None] = lambda: None
        self._calls: dict[int, CallWeights] = {}  # by the object's id
        self._loading: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None

    @property
    def version(self) -> int | None:
        """The newest version; None: none is known. A call may be answered by an older one."""
        announced = None if self.current is None else self.current.version
        known = [one for one in (announced, self._reported) if one is not None]
        return max(known, default=None)

    @property
    def adapter(self) -> str:
        """The adapter that generates; empty: none."""
        return "" if self.current is None else self.current.adapter

    @property
    def adapters_in_use(self) -> list[str]:
        """The adapters that running calls have named, sorted."""
        return sorted({call.adapter for call in self._calls.values()} - {""})

    @property
    def calls_in_flight(self) -> int:
        """The calls that the endpoint may be answering: those that do not wait for weights."""
        return sum(not call.waits for call in self._calls.values())

    def set(self, version: int, adapter: str = "") -> int | None:
        """Takes new weights and returns the version before, None when there was none.

        Calls that wait for them go on. Raises FIELD_INVALID as `check`.
        """
        previous = self.version
        self.check(version, adapter)
        self._take(WeightsInForce(version, adapter))
        self.go_on()
        return previous

    def check(self, version: int, adapter: str) -> None:
        """Raises FIELD_INVALID for a version lower than the newest one, and for the newest one
        with another adapter: a version names its adapter.
        """
        newest = self.version
        if newest is None or version > newest:
            return
        if version < newest:
            raise field_invalid("version", f"is {version}, but version {newest} is already loaded")
        if adapter != self.adapter:
            said = f"the adapter '{self.adapter}'" if self.adapter else "no adapter"
            raise field_invalid(
                "adapter", f"is '{adapter}', but version {version} is already loaded with {said}"
            )

    def follow(self, version: int) -> None:
        """Takes a version that the whole endpoint has; one lower than the current one says nothing
        new, since the trainer may have announced the next before the endpoint shows it. While an
        adapter generates, what the endpoint has is of the weights below it.
        """
        if self.adapter or self.is_loading():
            return
        if self.current is None or version > self.current.version:
            self._take(WeightsInForce(version))

    def reported(self, version: int) -> None:
        """Takes a version that one answer reports. It is the newest one from now on, but other
        calls are not said to have it: another server may still have the version before.
        """
        if self.adapter or self.is_loading():
            return
        if self.version is None or version > self.version:
            self._reported = version
            self._tell()

    def _take(self, new: WeightsInForce) -> None:
        if new == self.current:
            return
        self.current = new
        for call in self._calls.values():
            call.follow(new)
        self._tell()

    def _tell(self) -> None:
        metrics.MODEL_WEIGHTS_VERSION.labels(self._model).set(self.version or 0)
        self.changed()

    # -- weights that are being loaded --------------------------------------------------------

    def is_loading(self) -> bool:
        """Whether calls wait for weights that are being loaded."""
        return self._loading is not None

    def wait_for(self, seconds: float) -> None:
        """Has calls wait until `go_on`, `seconds` at most. Again: the time begins anew."""
        loop = asyncio.get_running_loop()
        if self._loading is None:
            self._loading = loop.create_future()
        if self._timer is not None:
            self._timer.cancel()
        self._timer = loop.call_later(seconds, self.go_on)

    def go_on(self) -> None:
        """No weights are being loaded any more."""
        loading, self._loading = self._loading, None
        if loading is not None and not loading.done():
            loading.set_result(None)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    async def loaded(self) -> None:
        """Returns once no weights are being loaded."""
        while self._loading is not None:
            await asyncio.shield(self._loading)

    # -- calls --------------------------------------------------------------------------------

    def begin(self) -> CallWeights:
        """A call begins; it is followed until `end`."""
        call = CallWeights(self._now, self.is_loading, self.loaded)
        call.start()
        self._calls[id(call)] = call
        return call

    def end(self, call: CallWeights) -> None:
        """A call is over."""
        self._calls.pop(id(call), None)

    def _now(self) -> WeightsInForce | None:
        return self.current


def spans(seen: Sequence[WeightsInForce], output_tokens: int) -> list[tokens_pb2.WeightsSpan]:
    """The spans of a call whose swaps happened at tokens that the backend cannot tell.

    The later versions begin at the end: the whole answer counts as the oldest weights', so that
    no token passes for fresher than it may be.
    """
    return [
        tokens_pb2.WeightsSpan(
            version=one.version, first_token=output_tokens if index else 0, adapter=one.adapter
        )
        for index, one in enumerate(seen)
    ]
