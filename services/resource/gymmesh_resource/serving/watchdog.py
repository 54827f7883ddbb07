"""Names the method of an environment that blocks the event loop, while it does.

    watch(environment, name)   called by the service when it opens; returns what ends it

A step of a method is timed when it ends (see `step_timer`). Until then nothing in the loop can run:
so a thread checks now and then whether the loop has turned, and if not, what it is doing.
"""

from __future__ import annotations

import asyncio
import inspect
import sys
import threading
import time
from collections.abc import Callable, Iterator
from types import CodeType, FrameType
from typing import Final
from weakref import WeakKeyDictionary

from gymmesh_resource.environment import Environment
from gymmesh_runtime.telemetry.stalls import NOTICED_S, log_stall, note_stall, stalls_within
from gymmesh_runtime.text import shown_place

_BEAT_S: Final = 0.25
_LOOK_S: Final = 0.5


def watch(environment: object, name: str) -> Callable[[], None]:
    """Watch the running loop for an environment's async methods; the result ends that."""
    loop = asyncio.get_running_loop()
    watchdog = _of_loop.get(loop)
    if watchdog is None:
        watchdog = _of_loop[loop] = _Watchdog(loop)
    watchdog.add(environment, name)

    def end() -> None:
        if watchdog.remove(environment):
            _of_loop.pop(loop, None)

    return end


class _Watchdog:
    """The thread that looks at one loop. Made in the loop's own thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._loop_thread = threading.get_ident()
        self._owners: dict[int, str] = {}
        self._codes: dict[CodeType, str] = {}
        self._modules: dict[str, str] = {}
        # What was seen at the last look: the owner, the method and its place.
        self._seen: tuple[str, str, str] | None = None
        self._turned = time.monotonic()
        self._timer = loop.call_later(_BEAT_S, self._turn)
        self._over = threading.Event()
        threading.Thread(target=self._main, name="gymmesh-watchdog", daemon=True).start()

    def add(self, environment: object, name: str) -> None:
        self._owners[id(environment)] = name
        for kind in type(environment).__mro__[:-1]:
            if kind is Environment:
                continue
            self._modules.setdefault(kind.__module__, name)
            for value in vars(kind).values():
                function = inspect.unwrap(value) if callable(value) else None
                if inspect.iscoroutinefunction(function):
                    self._codes[function.__code__] = name

    def remove(self, environment: object) -> bool:
        """Whether there is none left, so that the thread ends."""
        self._owners.pop(id(environment), None)
        if self._owners:
            return False
        self._over.set()
        self._timer.cancel()
        return True

    def _turn(self) -> None:
        """The loop has turned: what blocked it is over."""
        now = time.monotonic()
        seconds, seen = now - self._turned, self._seen
        self._turned, self._seen = now, None
        if seen is not None and not stalls_within(_LOOK_S):
            note_stall(*seen, seconds)  # a task of the method's own, whose steps are not timed
        self._timer = self._loop.call_later(_BEAT_S, self._turn)

    def _main(self) -> None:
        while not self._over.wait(_LOOK_S):
            if self._loop.is_closed():
                return
            late = time.monotonic() - self._turned
            if late < NOTICED_S:
                continue
            found = self._blocking()
            # A loop that gets no processor is late too: the same method must be seen twice.
            if found is not None and self._seen == found:
                log_stall(found[1], found[2], late)
            self._seen = found

    def _blocking(self) -> tuple[str, str, str] | None:
        """The environment's method that the loop is in, if any: its owner, name and place."""
        helper: tuple[str, str, str] | None = None
        for frame in _callers(sys._current_frames().get(self._loop_thread)):
            code = frame.f_code
            owner = self._codes.get(code)
            if owner is not None:
                return owner, code.co_qualname, shown_place(code.co_filename, code.co_firstlineno)
            owner = self._modules.get(str(frame.f_globals.get("__name__")))
            if owner is not None and helper is None and code.co_flags & inspect.CO_COROUTINE:
                place = shown_place(code.co_filename, code.co_firstlineno)
                helper = (owner, code.co_qualname, place)
        return helper


def _callers(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back


_of_loop: WeakKeyDictionary[asyncio.AbstractEventLoop, _Watchdog] = WeakKeyDictionary()
