"""Signals to processes in a container, and the end of a process with all its descendants."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import Final

from gymmesh_sandbox.backends.image_shell import scripts
from gymmesh_sandbox.backends.image_shell.descendants import Seen, descendants, read_processes
from gymmesh_sandbox.backends.image_shell.shell import HelperShell
from gymmesh_sandbox.errors import sandbox_lost

#: The variable that marks what a process starts with the id of this process.
MARK: Final = "GYMMESH_PROCESS"
_KILL_S: Final = 9.0
_CALM_S: Final = 3.0


@dataclass(frozen=True, slots=True)
class SignalTarget:
    """A process that was started through the API.

    Attributes:
        pid: its number in the container.
        mark: the value of MARK in its environment.
        started: its start, in ticks of the kernel's clock.
    """

    pid: int
    mark: str
    started: int


class Signals:
    """Sends signals in one container.

    Args:
        shell: used only for builtins, so that it works when no process can be started.
        others: the numbers of all processes that were started through the API.
    """

    def __init__(
        self, shell: HelperShell, sandbox_id: str, others: Callable[[], Collection[int]]
    ) -> None:
        self._shell = shell
        self._sandbox_id = sandbox_id
        self._others = others

    async def started(self, pid: int) -> int:
        """When a process started; 0 if it has already ended."""
        for one in await self._list():
            if one.pid == pid:
                return one.started
        return 0

    async def send(self, target: SignalTarget, number: int, *, with_descendants: bool) -> None:
        """Sends a signal to the process, or to the process and its descendants."""
        if not with_descendants:
            await self._send(number, (target.pid,))
        elif number == signal.SIGKILL:
            await self._end(target)
        else:
            await self._send(number, {one.pid for one in await self._doomed(target)})

    async def _end(self, target: SignalTarget) -> None:
        """Ends the process and its descendants, including those that start new processes
        meanwhile.
        """
        try:
            async with asyncio.timeout(_KILL_S):
                try:
                    async with asyncio.timeout(_CALM_S):
                        ended = await self._end_calmly(target)
                except TimeoutError:
                    ended = False
                if not ended:
                    await self._end_storm(target)
        except TimeoutError:
            raise sandbox_lost(
                self._sandbox_id, "the sandbox's processes did not end after SIGKILL"
            ) from None

    async def _end_calmly(self, target: SignalTarget) -> bool:
        """Ends the processes one by one; returns whether all of them were on the first list.

        If new processes are created meanwhile, a process that starts while a list is made may be on
        no list.
        """
        halt = f"{scripts.STOP_DESCENDANTS}halt {target.pid} {target.started}\n:"
        await self._shell.run(halt.encode())
        first = {one.pid for one in await self._doomed(target)}
        alone = True
        while doomed := await self._doomed(target):
            alone = alone and first.issuperset(one.pid for one in doomed)
            running = [one.pid for one in doomed if one.state not in "Tt"]
            # Stopped first: what is ended one by one is replaced as fast.
            if running:
                await self._send(signal.SIGSTOP, running)
            else:
                await self._send(signal.SIGKILL, [one.pid for one in doomed])
                await asyncio.sleep(0.01)
        return alone

    async def _end_storm(self, target: SignalTarget) -> None:
        """Stops everything in the container at once, because new processes are created faster
        than they are listed.
        """
        try:
            while True:
                await self._shell.run(b"kill -STOP -1\n:")
                doomed = await self._doomed(target)
                if not doomed:
                    return
                await self._send(signal.SIGKILL, [one.pid for one in doomed])
        finally:
            await asyncio.shield(self._shell.run(b"kill -CONT -1\n:"))

    async def _doomed(self, target: SignalTarget) -> list[Seen]:
        found = await self._list()
        others = [one for one in self._others() if one != target.pid]
        sure, unsure = descendants(found, target.pid, target.started, others)
        if unsure:
            sure |= unsure - await self._marked_otherwise(unsure, target.mark)
        return [one for one in found if one.pid in sure and not one.ended]

    async def _marked_otherwise(self, pids: Iterable[int], mark: str) -> set[int]:
        """The processes whose environment says that another process started them."""
        script = b"".join(
            scripts.call(b"mark", (b"%d" % pid, f"{MARK}={mark}".encode(), MARK.encode() + b"="))
            for pid in pids
        )
        said = await self._shell.run(scripts.READ_MARK.encode() + script)
        return {int(word) for word in said.split()}

    async def _list(self) -> list[Seen]:
        return read_processes(await self._shell.run(scripts.LIST_PROCESSES.encode()))

    async def _send(self, number: int, pids: Iterable[int]) -> None:
        listed = b" ".join(b"%d" % pid for pid in pids)
        if listed:
            await self._shell.run(b"kill -%d %s\n:" % (number, listed))
