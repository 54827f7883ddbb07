"""An environment's methods, as the servicers call them: time and again, each in its time."""

from __future__ import annotations

import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

from ..models import Call, Ledger, in_call
from .host import Host, bounded, is_async

__all__ = ["Method"]

_NOTHING_NAMED: Final[Mapping[str, Any]] = MappingProxyType({})


class Method:
    """One method, with what does not change from call to call.

    `limit_s`: seconds that a call may take. `asks_models`: whether it may ask models.
    """

    def __init__(
        self, host: Host, method: Callable[..., Any], limit_s: float, *, asks_models: bool
    ) -> None:
        self.function = method
        self._host = host
        self._limit_s = limit_s
        self._is_async = is_async(method)
        self._asks_models = asks_models

    async def call(
        self,
        args: Sequence[Any],
        named: Mapping[str, Any] = _NOTHING_NAMED,
        *,
        deadline: float | None = None,
        ledger: Ledger | None = None,
    ) -> Any:
        """The result. Raises as `Host.call`.

        The method can ask models within its limit, and until `deadline` (monotonic seconds) where
        nobody comes back for the answer later (None: the limit alone). Their usage goes to
        `ledger` (None: to the session's).
        """
        if not self._asks_models:
            return await self._run(args, named, deadline)
        end = time.monotonic() + self._limit_s
        token = in_call.set(Call(end if deadline is None else min(end, deadline), ledger))
        try:
            return await self._run(args, named, deadline)
        finally:
            in_call.reset(token)

    def _run(
        self, args: Sequence[Any], named: Mapping[str, Any], deadline: float | None
    ) -> Coroutine[Any, Any, Any]:
        if not self._is_async:
            return self._host.call_plain(self.function, args, named, self._limit_s)
        call = self.function(*args, **named)
        return bounded(call, self._limit_s, self._host.name, deadline)
