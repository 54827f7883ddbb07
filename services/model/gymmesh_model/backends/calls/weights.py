"""The weights that one call is made with, kept by whoever knows which generate."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import msgspec


class WeightsInForce(msgspec.Struct, frozen=True):
    """What generates. version: as announced. adapter: its name at the endpoint; empty: none."""

    version: int
    adapter: str = ""


class CallWeights(msgspec.Struct, eq=False):
    """The weights of one call, from each request to the endpoint until its answer.

    A request names the adapter in force when it is sent and keeps it until its answer is there.

    now: returns the weights in force; None: none are known.
    loading: whether calls wait, since new weights are being loaded.
    loaded: returns once none are.
    sent: what the last request was sent with; None: not known.
    seen: `sent`, and the later weights that may have generated a part of its answer, in order.
    waits: whether nothing of the call is at the endpoint, since it waits for new weights.
    """

    now: Callable[[], WeightsInForce | None]
    loading: Callable[[], bool]
    loaded: Callable[[], Awaitable[None]]
    sent: WeightsInForce | None = None
    seen: list[WeightsInForce] = []
    waits: bool = False

    @property
    def adapter(self) -> str:
        """The name that the next request names in place of the model's; empty: the model's."""
        return "" if self.sent is None else self.sent.adapter

    def start(self) -> None:
        """A request is about to be sent, with what is in force now."""
        self.sent = self.now()
        self.seen = [] if self.sent is None else [self.sent]

    def follow(self, new: WeightsInForce) -> None:
        """Other weights are in force. A new adapter leaves requests under way as they are."""
        if self.seen and not new.adapter:
            self.seen.append(WeightsInForce(new.version, self.adapter))

    async def before_request(self, *, again: bool) -> None:
        """To be awaited before each request: waits for weights that are being loaded.

        again: whether the request is written after this. One that is written already keeps the
        adapter that it names.
        """
        if self.loading():
            self.waits = True
            try:
                await self.loaded()
            finally:
                self.waits = False
        if again:
            self.start()

    def explains_abort(self) -> bool:
        """Whether an endpoint aborts an answer because its weights change."""
        return self.loading() or self.now() != self.sent
