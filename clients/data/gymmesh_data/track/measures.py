"""A run's figures for a tracker: names and numbers. Pure.

`…/recent` is of the rollouts that ended since the last time, all else of the run as a whole.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import msgspec

from gymmesh_client.summary import SOLVED
from gymmesh_responses import CodecError, loads

if TYPE_CHECKING:
    from gymmesh_client import Figures, RunSummary, Tally

# Of the names that a run brings itself, such as reasons of failures.
_MOST_NAMES: Final = 40
_LONGEST_NAME: Final = 80
_NOT_IN_NAMES: Final = re.compile(r"[^A-Za-z0-9_.-]+")


class _OutputUsage(msgspec.Struct):
    output_tokens: int | None = None


class _MeasuredResponse(msgspec.Struct):
    usage: _OutputUsage | None = None


class _Metadata(msgspec.Struct):
    steps_taken: int | None = None
    weights_versions: list[int] = []


class RowFigures(msgspec.Struct):
    """What of a completed rollout's row is measured; all else of it is skipped."""

    reward: float | None = None
    response: _MeasuredResponse | None = None
    metadata: _Metadata | None = None


_ROWS: Final = msgspec.json.Decoder(RowFigures)


def figures_of(row: bytes) -> RowFigures | None:
    """The figures of a row, a line of JSON; None where they are of another kind."""
    with suppress(msgspec.MsgspecError):
        return _ROWS.decode(row)
    # What a model wrote may be no text elsewhere: a lone surrogate.
    with suppress(msgspec.MsgspecError, CodecError):
        return msgspec.convert(loads(row), RowFigures)
    return None


class Spread:
    """The mean and the most of some numbers."""

    __slots__ = ("count", "most", "total")

    def __init__(self) -> None:
        self.count, self.total, self.most = 0, 0.0, -math.inf

    def add(self, value: float) -> None:
        """Count a number."""
        self.count += 1
        self.total += value
        self.most = max(self.most, value)

    def mean(self) -> float:
        """The mean; there must be a number."""
        return self.total / self.count


class Recent:
    """The rollouts that ended since the last time.

    A rollout's staleness is how many versions of the weights its oldest were behind the newest
    that any rollout of the run had been sampled with when it ended.
    """

    def __init__(self) -> None:
        self._newest: int | None = None
        #: Rows of which the figures could not be read.
        self.unread = 0
        self._forget()

    def _forget(self) -> None:
        self._rewards, self._solved = Spread(), Spread()
        self._tokens, self._steps, self._staleness = Spread(), Spread(), Spread()

    def add(self, row: RowFigures | None) -> None:
        """Count a rollout."""
        if row is None:
            self.unread += 1
            return
        if row.reward is not None:
            self._rewards.add(row.reward)
            self._solved.add(row.reward >= SOLVED)
        usage = row.response.usage if row.response else None
        if usage is not None and usage.output_tokens is not None:
            self._tokens.add(usage.output_tokens)
        about = row.metadata or _Metadata()
        if about.steps_taken is not None:
            self._steps.add(about.steps_taken)
        if about.weights_versions:
            newest = max(about.weights_versions)
            self._newest = newest if self._newest is None else max(self._newest, newest)
            self._staleness.add(self._newest - min(about.weights_versions))

    def take(self) -> dict[str, float]:
        """The measures, and begin anew."""
        found: dict[str, float] = {}
        for name, spread, with_most in (
            ("reward/recent", self._rewards, False),
            ("pass_rate/recent", self._solved, False),
            ("length/output_tokens", self._tokens, True),
            ("length/model_calls", self._steps, True),
            ("staleness/recent", self._staleness, True),
        ):
            if spread.count:
                found[name] = spread.mean()
                if with_most:
                    found[f"{name}_max"] = spread.most
        self._forget()
        return found


def measures_of(figures: Figures, groups: Mapping[str, int] | None = None) -> dict[str, float]:
    """The measures of a run that goes on.

    Args:
        groups: counts of the groups for a trainer; None where there are none.
    """
    tally = figures.tally
    found: dict[str, float] = {
        "rollouts/completed": tally.completed,
        "rollouts/failed": tally.failed,
        "rollouts/retried": tally.retried,
        "rollouts/in_flight": figures.in_flight,
        "rollouts/queued": figures.queued,
        "rollouts/per_s": figures.rollouts_per_s,
        "tokens/output_per_s": figures.tokens_per_s,
        "tokens/input": tally.input_tokens,
        "tokens/output": tally.output_tokens,
    }
    if tally.mean_reward is not None:
        judged = sum(tally.rewards.values())
        solved = sum(count for reward, count in tally.rewards.items() if reward >= SOLVED)
        found |= {"reward/mean": tally.mean_reward, "pass_rate/mean": solved / judged}
    if tally.model_calls:
        found["latency/model_queue_s"] = tally.model_queue_us / tally.model_calls / 1e6
    found |= _counted(tally)
    found |= {f"groups/{name}": count for name, count in (groups or {}).items()}
    return found


def measures_at_end(summary: RunSummary) -> dict[str, float]:
    """What only the end of a run tells: pass@k, and the seconds that it took."""
    found: dict[str, float] = {f"pass_at/{k}": chance for k, chance in summary.pass_at.items()}
    found["rollouts/not_finished"] = summary.not_finished
    found["time/wall_s"] = summary.wall_s
    return found


def _counted(tally: Tally) -> dict[str, float]:
    found: dict[str, float] = {}
    for kind, counts in (
        ("failures", tally.failures),
        ("causes", tally.causes),
        ("retries", tally.retries),
        ("stop_reasons", tally.stop_reasons),
        ("unjudged", tally.unjudged),
    ):
        for name, count in most_of(counts.items()):
            found[f"{kind}/{plain_name(name)}"] = count
    return found


def most_of(counts: Iterable[tuple[str, int]]) -> list[tuple[str, int]]:
    """The most frequent ones; what is a service's own to name may have any number of names."""
    return sorted(counts, key=lambda one: (-one[1], one[0]))[:_MOST_NAMES]


def plain_name(name: Any) -> str:
    """A name as every tracker takes it: letters, digits, `_`, `.` and `-`."""
    return _NOT_IN_NAMES.sub("_", str(name))[:_LONGEST_NAME] or "_"
