"""An environment's methods, as the servicers call them: time and again, each in its time."""

from __future__ import annotations

import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, Final

from gymmesh_runtime.begun import finish

from .host import Host, at_once, bounded, finish_in_time, is_async, never_waits
from .models import Call, Ledger, in_call

__all__ = ["Method"]

# A dict, of which a call takes a copy: to call with another mapping takes several times as long.
_NOTHING_NAMED: Final[Mapping[str, Any]] = {}


class Method:
    """One method, with what does not change from call to call.

    `limit_s`: seconds that a call may take. `asks_models`: whether it may ask models.
    `never_waits`: whether a call is known to end in one step.
    """

    __slots__ = (
        "_asks_models",
        "_call_plain",
        "_limit_s",
        "_method",
        "_owner",
        "_within",
        "function",
        "never_waits",
    )

    def __init__(
        self, host: Host, method: Callable[..., Any], limit_s: float, *, asks_models: bool
    ) -> None:
        self._method = self.function = method
        self._owner = host.name
        self._limit_s = limit_s
        self.never_waits = never_waits(method)
        #: What sees that an async method keeps to its time; None: the method is a plain one.
        self._within = None if not is_async(method) else at_once if self.never_waits else bounded
        self._call_plain = host.call_plain
        self._asks_models = asks_models

    def call(
        self,
        args: Sequence[Any],
        named: Mapping[str, Any] = _NOTHING_NAMED,
        *,
        deadline: float | None = None,
        ledger: Ledger | None = None,
    ) -> Coroutine[Any, Any, Any]:
        """The result; to be awaited. Raises as `Host.call`.

        The method can ask models within its limit, and until `deadline` (monotonic seconds) where
        nobody comes back for the answer later (None: the limit alone). Their usage goes to
        `ledger` (None: to the session's).
        """
        if self._within is None:
            call = self._call_plain(self._method, args, named, self._limit_s)
        else:
            call = self._within(self._method(*args, **named), self._limit_s, self._owner, deadline)
        return self._asking(call, deadline, ledger) if self._asks_models else call

    def call_at_once(
        self,
        args: Sequence[Any],
        named: Mapping[str, Any] = _NOTHING_NAMED,
        deadline: float | None = None,
        ledger: Ledger | None = None,
    ) -> Any:
        """The result of `call`, where the method `never_waits`."""
        if not self._asks_models:
            return finish_in_time(self._method(*args, **named), self._limit_s, self._owner)
        return finish(self.call(args, named, deadline=deadline, ledger=ledger))

    async def _asking(
        self, call: Coroutine[Any, Any, Any], deadline: float | None, ledger: Ledger | None
    ) -> Any:
        end = time.monotonic() + self._limit_s
        token = in_call.set(Call(end if deadline is None else min(end, deadline), ledger))
        try:
            return await call
        finally:
            in_call.reset(token)
