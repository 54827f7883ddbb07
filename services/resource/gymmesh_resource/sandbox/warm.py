"""Programs started ahead of a request, each for one use.

The pool holds programs of the kinds that the last requests wanted, and fills up in the background:
one start at a time, and only while there is a processor to spare.

Invariant: a spare is in the pool, or was given to one request. This request ends the spare, which
never returns to the pool.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import shutil
import tempfile
import time
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass

from gymmesh_resource.sandbox.process import Process
from gymmesh_resource.sandbox.program import Limits, Program, SandboxError

_LOGGER = logging.getLogger("gymmesh.resource")
# In memory, and below folders that every user may pass through, as temporary ones need not be.
_LATE_PLACE = "/dev/shm"
_CLOSE_S = 10.0
_BECOME_S = 5.0


@dataclass(frozen=True, slots=True)
class ProgramKind:
    """The common properties of all programs that a spare can become.

    `files` exist from the start; those named by `late` arrive with the program.
    """

    argv: tuple[str, ...]
    files: tuple[tuple[str, bytes], ...]
    late: tuple[str, ...]
    limits: Limits


def kind_of(program: Program, limits: Limits) -> ProgramKind | None:
    """The kind of spare that can become this program; None when none can."""
    if not program.waiting:
        return None
    if program.waiting == program.argv:
        return ProgramKind(program.argv, tuple(sorted(program.files.items())), (), limits)
    return ProgramKind(program.waiting, (), tuple(sorted(program.files)), limits)


def write_all(descriptor: int, content: bytes) -> None:
    """Write to a file. Raises OSError."""
    view = memoryview(content)
    while view:
        view = view[os.write(descriptor, view) :]


class LateFiles:
    """Files that are shown to a program before they are written.

    They have a name on this machine only until `unlink`, and nothing in them before `write`.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self.paths: dict[str, str] = {}
        self._descriptors: dict[str, int] = {}
        self._folder = ""
        if names:
            place = _LATE_PLACE if os.access(_LATE_PLACE, os.W_OK | os.X_OK) else None
            self._folder = tempfile.mkdtemp(prefix=f"gymmesh-late-{os.getpid()}-", dir=place)
            os.chmod(self._folder, 0o711)
        for name in names:
            self.paths[name] = path = os.path.join(self._folder, name)
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
            self._descriptors[name] = descriptor = os.open(path, flags, 0o444)
            os.fchmod(descriptor, 0o444)

    def unlink(self) -> None:
        """Remove their names; a program that sees the files keeps them."""
        if self._folder:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = ""

    def write(self, program: Program) -> None:
        """Fill them with those of the program. Raises OSError."""
        for name, descriptor in self._descriptors.items():
            write_all(descriptor, program.files[name])

    def close(self) -> None:
        """Close them; harmless when called twice."""
        self.unlink()
        for descriptor in self._descriptors.values():
            os.close(descriptor)
        self._descriptors.clear()


@dataclass(slots=True)
class Spare:
    """A program that waits. `surroundings`: what ends it and frees all that it holds."""

    kind: ProgramKind
    process: Process
    files: LateFiles
    surroundings: AsyncExitStack

    async def hand_over(self, program: Program) -> bool:
        """Become the program; False when it did not, and will not."""
        self.process.begin()
        if not self.kind.late:
            return True
        try:
            self.files.write(program)
            await self.process.write(b"\n")
            async with asyncio.timeout(_BECOME_S):
                await self.process.read_exactly(2)
        except (OSError, EOFError, TimeoutError):
            return False
        return True


class WarmPool:
    """At most `size` spares, for the kinds that the last `size` requests were of.

    `start` starts one and raises SandboxError; `may_start` says whether to start one now.
    All are ended when there was no request for `idle_s` seconds.
    """

    def __init__(
        self,
        size: int,
        idle_s: float,
        *,
        start: Callable[[ProgramKind], Awaitable[Spare]],
        may_start: Callable[[], bool],
    ) -> None:
        self._size = size
        self._idle_s = idle_s
        self._start = start
        self._may_start = may_start
        self._asked: deque[ProgramKind] = deque(maxlen=size)
        self._asked_at = 0.0
        self._ready: dict[ProgramKind, deque[Spare]] = {}
        self._dead: list[Spare] = []
        self._changed = asyncio.Event()
        self._keeper: asyncio.Task[None] | None = None

    def waiting(self, kind: ProgramKind) -> int:
        return len(self._ready.get(kind, ()))

    def open(self) -> None:
        self._keeper = asyncio.get_running_loop().create_task(self._keep())

    def take(self, kind: ProgramKind) -> Spare | None:
        """A spare of this kind, the caller's from now on; None when there is none."""
        self._asked.append(kind)
        self._asked_at = time.monotonic()
        self._changed.set()
        spares = self._ready.get(kind)
        while spares:
            spare = spares.popleft()
            if spare.process.alive:
                return spare
            self._dead.append(spare)
        return None

    def wake(self) -> None:
        """It may be a time to start one now."""
        self._changed.set()

    async def close(self) -> None:
        """End all spares; harmless when called twice."""
        if self._keeper is not None:
            self._keeper.cancel()
            await asyncio.wait((self._keeper,), timeout=_CLOSE_S)
            self._keeper = None
        self._asked.clear()
        await self._end_surplus()

    async def _keep(self) -> None:
        while True:
            self._changed.clear()
            idle_left = self._asked_at + self._idle_s - time.monotonic()
            if idle_left <= 0:
                self._asked.clear()
            await self._end_surplus()
            kind = self._lacking()
            if kind is not None and self._may_start():
                await self._add(kind)
                continue
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(idle_left if self._asked else None):
                    await self._changed.wait()

    async def _add(self, kind: ProgramKind) -> None:
        try:
            spare = await self._start(kind)
        except SandboxError as error:
            # The next request fails if it is still so; until then nothing is tried.
            _LOGGER.warning("the sandbox could not start a program in advance: %s", error)
            self._asked.clear()
        else:
            self._ready.setdefault(kind, deque()).append(spare)

    def _lacking(self) -> ProgramKind | None:
        """Of the kinds with too few spares, the one that was requested last."""
        wanted = Counter(self._asked)
        for kind in reversed(self._asked):
            if self.waiting(kind) < wanted[kind]:
                return kind
        return None

    async def _end_surplus(self) -> None:
        """End spares that are dead, and those beyond what the last requests wanted."""
        wanted = Counter(self._asked)
        surplus, self._dead = self._dead, []
        for kind, spares in list(self._ready.items()):
            while len(spares) > wanted[kind]:
                surplus.append(spares.pop())
            if not spares:
                del self._ready[kind]
        ended = await asyncio.gather(
            *(spare.surroundings.aclose() for spare in surplus), return_exceptions=True
        )
        for error in ended:
            if isinstance(error, Exception):
                _LOGGER.warning(
                    "a program that was started in advance ended with an error: %s", error
                )
