"""Progress on stderr: lines that are redrawn on a terminal; otherwise a line from time to time."""

from __future__ import annotations

import asyncio
import shutil
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Final

from gymmesh_cli.terminal import one_line
from gymmesh_client import Figures

_BAR_EVERY_S: Final = 0.2
_LINE_EVERY_S: Final = 5.0


class Progress:
    """Shows the progress of a run.

    Args:
        total: the number of requested rollouts.
    """

    def __init__(self, total: int) -> None:
        self._total = total
        self._tty = sys.stderr.isatty()
        self._lines = 0
        self._away: Mapping[str, str] = {}  # services of the last line, with their errors

    @asynccontextmanager
    async def shown(self, figures: Callable[[], Figures]) -> AsyncIterator[None]:
        """Shows the figures while the context is open, and once at the end."""
        showing = asyncio.create_task(self._keep_showing(figures))
        try:
            yield
        finally:
            showing.cancel()
            self._show(figures())

    async def _keep_showing(self, figures: Callable[[], Figures]) -> None:
        while True:
            if self._tty:
                self._show(figures())
            await asyncio.sleep(_BAR_EVERY_S if self._tty else _LINE_EVERY_S)
            if not self._tty:
                self._show(figures())

    def _show(self, figures: Figures) -> None:
        if not self._tty:
            figures = self._without_known_errors(figures)
        lines = [one_line(line) for line in progress_lines(figures, self._total)]
        if self._tty:
            width = shutil.get_terminal_size().columns - 1
            done = figures.tally.completed + figures.tally.failed
            lines[0] = f"{_bar(done / self._total if self._total else 1.0, 14)} {lines[0]}"
            up = f"\x1b[{self._lines}F" if self._lines else ""
            sys.stderr.write(up + "\x1b[0J" + "".join(f"{line[:width]}\n" for line in lines))
            self._lines = len(lines)
        else:
            sys.stderr.write("  ".join(lines) + "\n")
        sys.stderr.flush()

    def _without_known_errors(self, figures: Figures) -> Figures:
        """The figures, without the errors of unreachable services that the last line had."""
        known, self._away = self._away, figures.away
        away = {
            name: "" if known.get(name) == error else error for name, error in figures.away.items()
        }
        return replace(figures, away=away)


def progress_lines(figures: Figures, total: int) -> list[str]:
    """The progress of a run, its rollouts in flight, and its current problems."""
    tally = figures.tally
    mean = "–" if tally.mean_reward is None else f"{tally.mean_reward:.3f}"
    lines = [
        f"{tally.completed + tally.failed}/{total}  {figures.rollouts_per_s:.1f} rollouts/s  "
        f"{figures.tokens_per_s:.0f} tokens/s  mean reward {mean}  failed {tally.failed}"
        f"{_left(figures, total)}",
        _stages(figures),
    ]
    trouble = _trouble(figures)
    if trouble:
        lines.append(trouble)
    return lines


def _stages(figures: Figures) -> str:
    width = f"at most {figures.concurrency}"
    if figures.width < figures.concurrency:
        width = f"at most {figures.width} now, {figures.concurrency} requested"
    parts = [f"in flight {figures.in_flight} ({width})"]
    for count, name in (
        (figures.queued, "queued at agents"),
        (figures.ending, "being written"),
        (figures.retrying, "waiting for a retry"),
        (figures.groups, "groups for the trainer"),
    ):
        if count:
            parts.append(f"{name} {count}")
    tally = figures.tally
    if tally.model_calls and tally.model_queue_us:
        wait_ms = tally.model_queue_us / tally.model_calls / 1000
        parts.append(f"model queue {wait_ms:.0f} ms")
    return "  ".join(parts)


def _trouble(figures: Figures) -> str:
    parts = []
    if figures.state == "paused":
        parts.append("paused; resume with: gym-cli runs resume")
    elif figures.state == "draining":
        parts.append(_draining(figures))
    if figures.held:
        parts.append("no new groups: the trainer has not acknowledged the finished groups")
    if figures.away:
        away = (f"{name} ({error})" if error else name for name, error in figures.away.items())
        parts.append(f"waiting for {', '.join(away)}")
    tally = figures.tally
    if tally.put_back:
        parts.append(f"put back {tally.put_back}")
    for name, counts in (
        ("failed", tally.causes),
        ("retried", tally.retries),
        ("model calls retried", tally.model_retries),
    ):
        if counts:
            worst = ", ".join(f"{cause} {count}" for cause, count in counts.most_common(3))
            parts.append(f"{name}: {worst}")
    return "  ".join(parts)


def _draining(figures: Figures) -> str:
    """Who ends the run, and what the next Ctrl-C does."""
    if figures.why == "cancelled":
        return "ending (after gym-cli runs cancel)"
    if figures.interrupted:
        return "draining (after Ctrl-C); Ctrl-C again cancels the rollouts in flight at once"
    why = "after gym-cli runs drain" if figures.why == "drained" else figures.why
    return f"draining ({why}); Ctrl-C cancels the rollouts in flight after --grace seconds"


def _left(figures: Figures, total: int) -> str:
    seconds = figures.seconds_left(total)
    if not seconds or figures.state != "running":
        return ""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"  {hours}:{minutes:02d}:{rest:02d} left"


def _bar(part: float, width: int) -> str:
    full = min(width, int(part * width))
    return "█" * full + "░" * (width - full)
