"""The tracker's process, seen from the collector.

Messages are lines of JSON: commands (see process.py), and their results. Errors of a tracker never
raise here, and nothing waits except `end`, for a limited time. Messages that the process does not
accept in time are dropped and counted.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Callable, Sequence
from typing import Any, Final

from gymmesh_data.track.names import TrackerRun
from gymmesh_responses import CodecError, dumps, loads
from gymmesh_runtime.text import mask_secrets
from gymmesh_runtime.timers import cancel_and_wait

_MOST_WAITING: Final = 4 * 1024 * 1024
_LONGEST_LINE: Final = 1024 * 1024
_STOP_S: Final = 5.0
#: Seconds that a tracker may take at the end.
END_S: Final = 60.0


class TrackerLink:
    """A tracker's process.

    Args:
        tracker: one of `TRACKERS`.
        warn: called once, with a sentence, at the first problem.
        without: what happens without the tracker, for the sentence.
        command: a command to run instead of this package's process.

    Attributes:
        sent: the number of messages after the first.
        lost: the number of messages that are known to be lost.
    """

    def __init__(
        self,
        tracker: str,
        warn: Callable[[str], None],
        *,
        without: str = "the run continues without the tracker",
        command: Sequence[str] = (),
    ) -> None:
        self.tracker = tracker
        self.sent = 0
        self.lost = 0
        self._warn = warn
        self._without = without
        self._warned = False
        # -P: a file called like the library, in the working directory, is not meant.
        own = (sys.executable, "-P", "-m", "gymmesh_data.track.process", tracker)
        self._command = tuple(command) or own
        self._process: asyncio.subprocess.Process | None = None
        self._reading: asyncio.Task[None] | None = None
        self._broken = False
        self._cut_short = asyncio.Event()

    async def begin(self, run: TrackerRun, on_begun: Callable[[dict[str, Any]], None]) -> None:
        """Start the process and begin the run at the tracker, without waiting.

        `on_begun` is called with the run's `id`, `url` and `project` at the tracker.
        """
        try:
            # A session of its own: Ctrl-C is for the collector.
            self._process = await asyncio.create_subprocess_exec(
                *self._command,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.DEVNULL,
                start_new_session=True,
                limit=_LONGEST_LINE,
            )
        except OSError as error:
            self._give_up(f"can't start the tracker's process: {error.strerror or error}")
            return
        self._reading = asyncio.create_task(self._read(self._process, on_begun))
        self._write({"do": "begin", **run.to_dict()})

    def measures(self, step: int, values: dict[str, float]) -> None:
        """Log measures."""
        self._send({"do": "measures", "step": step, "values": values})

    def table(self, step: int, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
        """Log a table of samples."""
        self._send({"do": "table", "step": step, "columns": list(columns), "rows": list(rows)})

    @property
    def loss(self) -> str:
        """A sentence on lost messages; empty if no message is known to be lost."""
        return f"{self.lost} of {self.sent} messages were lost" if self.lost else ""

    def cut_short(self) -> None:
        """Stop waiting for the tracker at the end."""
        self._cut_short.set()

    async def end(self, config: dict[str, Any], *, finished: bool, seconds: float = END_S) -> None:
        """End the run at the tracker with its current configuration, within the time limit.

        Args:
            finished: whether every rollout has an outcome.
        """
        process, reading = self._process, self._reading
        if process is None or reading is None:
            return
        self._send({"do": "end", "config": config, "finished": finished})
        if process.stdin is not None:
            process.stdin.close()
        cut = asyncio.create_task(self._cut_short.wait())
        try:
            await asyncio.wait(
                [reading, cut],
                timeout=0.0 if self._broken else seconds,
                return_when=asyncio.FIRST_COMPLETED,
            )
            if not reading.done() and not self._broken:
                self._give_up("the last messages were not sent in time")
        finally:
            # The process may have said all and not be over yet; a broken one gets no time.
            await _stopped(process, gently=reading.done() and not self._broken)
            await cancel_and_wait(reading, cut)

    def _send(self, message: dict[str, Any]) -> None:
        self.sent += 1
        self.lost += not self._write(message)

    def _write(self, message: dict[str, Any]) -> bool:
        process = self._process
        if self._broken or process is None or process.stdin is None:
            return False
        pipe = process.stdin
        line = dumps(message) + b"\n"
        if pipe.is_closing():
            return False
        if pipe.transport.get_write_buffer_size() + len(line) > _MOST_WAITING:
            self._say("the tracker is too slow; messages are dropped while the queue is full")
            return False
        pipe.write(line)
        return True

    async def _read(
        self, process: asyncio.subprocess.Process, on_begun: Callable[[dict[str, Any]], None]
    ) -> None:
        """Take what the process says, until it says no more."""
        assert process.stdout is not None
        ended = False
        # ValueError: a line that is too long.
        with contextlib.suppress(OSError, ValueError):
            while line := await process.stdout.readline():
                said = _said(line)
                begun = said.get("begun")
                if isinstance(begun, dict):
                    on_begun(begun)
                if "failed" in said:
                    self.lost += 1
                    self._say(str(said["failed"]))
                if "refused" in said:
                    self.lost = self.sent
                    self._give_up(str(said["refused"]))
                ended = ended or "ended" in said
        if not ended and not self._broken:
            self._give_up("the tracker's process ended unexpectedly")

    def _give_up(self, why: str) -> None:
        self._broken = True
        self._say(why)

    def _say(self, why: str) -> None:
        if not self._warned:
            self._warned = True
            self._warn(mask_secrets(f"{self.tracker}: {why}; {self._without}"))


def _said(line: bytes) -> dict[str, Any]:
    try:
        said = loads(line)
    except CodecError:
        return {}
    return said if isinstance(said, dict) else {}


async def _stopped(process: asyncio.subprocess.Process, *, gently: bool) -> None:
    """End a process, with all that it started; gently: it may do so by itself first."""
    for number in (*([None] if gently else []), signal.SIGTERM, signal.SIGKILL):
        if process.returncode is not None:
            return
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if number is not None:
                os.killpg(process.pid, number)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(process.wait(), _STOP_S)
