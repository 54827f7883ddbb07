"""Waits for places, by the decisions of `admission`."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from typing import Final

from gymmesh_runtime.errors import MeshError
from gymmesh_sandbox import metrics
from gymmesh_sandbox.admission import Admission, PlaceAnswer, Pressure
from gymmesh_sandbox.errors import sandbox_limit

_LOOK_S: Final = 1.0


class PlacesTaken:
    """Whether a call has its places, or still waits for them."""

    taken = False


class Places:
    """The places of one service.

    Args:
        admission: decides which call gets a place.
        service: the service's name, for the metrics.
        pressure: returns how much of the machine is free; None: the width does not change.
    """

    def __init__(
        self, admission: Admission, service: str, pressure: Callable[[], Pressure] | None
    ) -> None:
        self._admission = admission
        self._pressure = pressure
        self._numbers = itertools.count()
        self._waiters: dict[int, asyncio.Future[None]] = {}
        self._refusal: MeshError | None = None
        self._places = metrics.SANDBOXES_PLACES.labels(service)
        self._waiting = metrics.SANDBOXES_WAITING.labels(service)
        self._note()

    @property
    def now(self) -> int:
        """How many places exist now."""
        return self._admission.width.now

    @property
    def taken(self) -> int:
        """How many places are taken."""
        return self._admission.taken

    @property
    def waiting(self) -> int:
        """How many calls wait."""
        return self._admission.waiting

    async def take(self, places: int, wait_s: float) -> None:
        """Takes places, all at once, and waits for them. Raises SANDBOX_LIMIT."""
        if self._refusal is not None:
            raise self._refusal
        number = next(self._numbers)
        answer = self._admission.ask(number, places)
        if answer is PlaceAnswer.REFUSED:
            raise self._full(places)
        if answer is PlaceAnswer.ADMITTED:
            return
        self._note()
        waiter = self._waiters[number] = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.timeout(wait_s):
                await waiter
        except BaseException as error:
            if not self._admission.leave(number):
                self.release(places)  # they came at the last moment
            if isinstance(error, TimeoutError):
                raise self._full(places) from None
            raise
        finally:
            del self._waiters[number]
            self._note()

    def release(self, places: int = 1) -> None:
        """Frees places."""
        self._admission.release(places)
        self._admit()

    def refuse(self, error: MeshError) -> None:
        """Rejects all waiting calls and all later calls."""
        self._refusal = error
        for waiter in self._waiters.values():
            if not waiter.done():
                waiter.set_exception(error)

    async def follow(self) -> None:
        """Adapts the width to the machine, until cancelled."""
        while self._pressure is not None:
            self._admission.width.update(self._pressure(), self._admission.taken)
            self._admit()
            await asyncio.sleep(_LOOK_S)

    def _admit(self) -> None:
        for number in self._admission.admit():
            waiter = self._waiters[number]
            if not waiter.done():
                waiter.set_result(None)
        self._note()

    def _full(self, places: int) -> MeshError:
        width = self._admission.width
        return sandbox_limit(
            f"No place for a sandbox is free (places: {width.now}); retry later.",
            width.now,
            self._admission.retry_after_s(),
        )

    def _note(self) -> None:
        self._places.set(self._admission.width.now)
        self._waiting.set(self._admission.waiting)
