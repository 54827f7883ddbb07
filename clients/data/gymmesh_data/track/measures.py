"""A run's figures for a tracker: names and numbers. Pure.

`…/recent` is over the rollouts that ended since the last measures; all other names are over the
whole run.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import msgspec

from gymmesh_client.means import mean_of
from gymmesh_client.summary import SOLVED
from gymmesh_responses import CodecError, loads

if TYPE_CHECKING:
    from gymmesh_client import Figures, RunSummary

# Of the names that a run brings itself, such as reasons of failures.
_MOST_NAMES: Final = 40
_LONGEST_NAME: Final = 80
# Of these the greatest is measured, too.
_WITH_MOST: Final = ("length/output_tokens", "length/model_calls", "staleness/recent")
_NOT_IN_NAMES: Final = re.compile(r"[^A-Za-z0-9_.-]+")


class _OutputUsage(msgspec.Struct):
    output_tokens: int | None = None


class _MeasuredResponse(msgspec.Struct):
    usage: _OutputUsage | None = None


class _Metadata(msgspec.Struct):
    steps_taken: int | None = None
    weights_versions: list[int] = []


class RowFigures(msgspec.Struct):
    """The measured keys of a completed rollout's row; all other keys are skipped."""

    reward: float | None = None
    response: _MeasuredResponse | None = None
    metadata: _Metadata | None = None


_ROWS: Final = msgspec.json.Decoder(RowFigures)


def figures_of(row: bytes) -> RowFigures | None:
    """The figures of a row, a line of JSON; None if the row has a different form."""
    with suppress(msgspec.MsgspecError):
        return _ROWS.decode(row)
    # What a model wrote may be no text elsewhere: a lone surrogate.
    with suppress(msgspec.MsgspecError, CodecError):
        return msgspec.convert(loads(row), RowFigures)
    return None


class Recent:
    """The rollouts that ended since the last time.

    A rollout's staleness is the difference between two weights versions: the newest that any
    rollout of the run had used when this rollout ended, and the oldest that this rollout used.
    """

    def __init__(self) -> None:
        self._newest = 0
        self._numbers: defaultdict[str, list[float]] = defaultdict(list)
        #: Rows of which the figures could not be read.
        self.unread = 0

    def add(self, row: RowFigures | None) -> None:
        """Count a rollout."""
        if row is None:
            self.unread += 1
            return
        numbers = self._numbers
        if row.reward is not None:
            numbers["reward/recent"].append(row.reward)
            numbers["pass_rate/recent"].append(row.reward >= SOLVED)
        usage = row.response.usage if row.response else None
        if usage is not None and usage.output_tokens is not None:
            numbers["length/output_tokens"].append(usage.output_tokens)
        about = row.metadata or _Metadata()
        if about.steps_taken is not None:
            numbers["length/model_calls"].append(about.steps_taken)
        if about.weights_versions:
            self._newest = max(self._newest, *about.weights_versions)
            numbers["staleness/recent"].append(self._newest - min(about.weights_versions))

    def take(self) -> dict[str, float]:
        """Return the measures and start a new period."""
        found: dict[str, float] = {}
        for name, numbers in self._numbers.items():
            mean = mean_of((one, 1) for one in numbers)
            if mean is None:
                continue
            found[name] = mean
            if name in _WITH_MOST:
                found[f"{name}_max"] = max(numbers)
        self._numbers.clear()
        return found


def measures_of(figures: Figures, groups: Mapping[str, int] | None = None) -> dict[str, float]:
    """The measures of an active run. `groups`: counts of the groups for a trainer; None where
    there are none.
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
    kinds = ("failures", "causes", "retries", "stop_reasons", "unjudged")
    found |= counted({kind: getattr(tally, kind) for kind in kinds})
    found |= {f"groups/{name}": count for name, count in (groups or {}).items()}
    return found


def measures_at_end(summary: RunSummary) -> dict[str, float]:
    """The measures known only at the end of a run: pass@k, and its duration in seconds."""
    found: dict[str, float] = {f"pass_at/{k}": chance for k, chance in summary.pass_at.items()}
    found["rollouts/not_finished"] = summary.not_finished
    found["time/wall_s"] = summary.wall_s
    return found


def counted(kinds: Mapping[str, Mapping[str, int]]) -> dict[str, float]:
    """The counts by name, the most frequent names of each kind."""
    return {
        f"{kind}/{plain_name(name)}": count
        for kind, counts in kinds.items()
        for name, count in most_of(counts.items())
    }


def most_of(counts: Iterable[tuple[str, int]]) -> list[tuple[str, int]]:
    """The most frequent names, because services may use any number of names."""
    return sorted(counts, key=lambda one: (-one[1], one[0]))[:_MOST_NAMES]


def plain_name(name: Any) -> str:
    """A name that every tracker accepts: letters, digits, `_`, `.` and `-`."""
    return _NOT_IN_NAMES.sub("_", str(name))[:_LONGEST_NAME] or "_"
