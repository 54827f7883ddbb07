"""A run's summary as text for people. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from gymmesh_client.means import SCALE
from gymmesh_client.summary.run_summary import RunSummary
from gymmesh_client.summary.tally import Tally, mixed_versions
from gymmesh_runtime.text import one_line

_MAX_BARS: Final = 10
_MOST_CAUSES: Final = 12
_MOST_GROUP_FAULTS: Final = 3


def render(summary: RunSummary, again: str = "") -> str:
    """The summary as a few lines of text; `again`: the command that resumes the run."""
    tally, mean = summary.tally, summary.tally.mean_reward
    kept = f" ({tally.kept} of them kept from an earlier run)" if tally.kept else ""
    retried = f", {tally.retried} retried" if tally.retried else ""
    failed = f" ({tally.kept_failed} of them in an earlier run)" if tally.kept_failed else ""
    lines = [
        f"rollouts      {tally.completed} completed{kept}, {tally.failed} "
        f"failed{failed}{retried}, of {summary.requested} requested",
        f"speed         {summary.rollouts_per_s:.2f} rollouts/s over {summary.wall_s:.1f} s",
        f"mean reward   {'none: no rollout has a reward' if mean is None else f'{mean:.3f}'}",
    ]
    for k, chance in summary.pass_at.items():
        over = summary.pass_at_tasks.get(k, summary.tasks)
        partly = f" over {over} of {summary.tasks} tasks" if over < summary.tasks else ""
        lines.append(f"{f'pass@{k}':<13} {chance:.3f}{partly}")
    lines += bars("rewards", histogram(tally.rewards))
    lines += [
        f"{'explained' if not place else '':<13} {line}"
        for place, line in enumerate(tally.explained)
    ]
    if tally.unjudged:
        lines.append(f"unjudged      {_counted(tally.unjudged)}")
    lines += _group_lines(tally)
    lines += [f"mixed         verdicts of {one}" for one in mixed_versions(tally.verdicts)]
    for name, count in sorted(tally.states_omitted.items()):
        rollouts = f"{count} rollout{'' if count == 1 else 's'}"
        lines.append(f"not kept      state of {rollouts} of {name}: {tally.state_reasons[name]}")
    if tally.work_elsewhere:
        lines.append(f"check         {tally.work_elsewhere}")
    if tally.failures:
        lines.append(f"failures      {_counted(tally.causes)}")
    if tally.retries:
        lines.append(f"retries       {_counted(tally.retries)}")
    lines += _model_lines(summary)
    lines.append(f"tokens        {tally.input_tokens} in, {tally.output_tokens} out")
    lines.append(f"rows          {summary.output}")
    if tally.failures:
        lines.append(f"failed        {summary.failures_output}")
    if summary.skipped:
        rows = "1 row" if summary.skipped == 1 else f"{summary.skipped} rows"
        lines.append(f"skipped       {rows} of the task file: {summary.skipped_output}")
    if summary.not_finished > 0:
        lines.append(f"not finished  {summary.not_finished}; resume with --resume")
    if again:
        lines.append(f"retry         {again}")
    elif tally.failed:
        lines.append("retry         add --resume --retry failed to the command")
    return "\n".join(map(one_line, lines))


def _group_lines(tally: Tally) -> Iterator[str]:
    """Why rollouts have no reward although their groups ended: the most frequent causes."""
    for why, count in tally.group_faults.most_common(_MOST_GROUP_FAULTS):
        rollouts = f"{count} rollout{'' if count == 1 else 's'}"
        yield f"group faults  {rollouts} without a verdict: {why}"
    if tally.group_faults:
        yield "judge again   correct the verifier, then use gym-cli reverify"


def histogram(rewards: Mapping[float, int]) -> list[tuple[str, int]]:
    """Bars of a reward histogram: one for each value, or ten equal ranges when there are more."""
    if not rewards:
        return []
    if len(rewards) <= _MAX_BARS:
        return [(f"{value:g}", rewards[value]) for value in sorted(rewards)]
    # The difference of two rewards may exceed what a float can hold.
    scale = 1.0 if math.isfinite(max(rewards) - min(rewards)) else SCALE
    low, high = min(rewards) * scale, max(rewards) * scale
    width = (high - low) / _MAX_BARS
    bars = [0] * _MAX_BARS
    for value, count in rewards.items():
        bars[min(int((value * scale - low) / width), _MAX_BARS - 1)] += count
    ends = [(low + place * width) / scale for place in range(_MAX_BARS + 1)]
    return [
        (f"{ends[place]:.3g} … {ends[place + 1]:.3g}", count) for place, count in enumerate(bars)
    ]


def bars(title: str, counts: Sequence[tuple[str, int]]) -> Iterator[str]:
    """A bar chart of counts as lines of text; no lines if there are no counts."""
    most = max((count for _, count in counts), default=0)
    if not most:
        return
    yield title
    wide = max(len(label) for label, _ in counts)
    for label, count in counts:
        bar = "█" * max(1 if count else 0, round(24 * count / most))
        yield f"  {label:>{wide}}  {bar} {count}"


def _model_lines(summary: RunSummary) -> Iterator[str]:
    """How many model calls were at the endpoints, of how many asked for, and what held them up.

    Of completed rollouts: a failed attempt does not say what its failed call had cost.
    """
    tally, had = summary.tally, summary.model_calls_at_a_time
    if not tally.model_retries:
        return
    retries, causes = tally.model_retries.total(), _counted(tally.model_retries)
    if had is not None and tally.model_calls:
        wait = (summary.model_queue_s or 0.0) * 1000
        yield (
            f"model calls   {tally.model_calls} in completed rollouts, {had:g} at once on average, "
            f"at most {summary.concurrency} rollouts in flight; "
            f"mean wait for a slot {wait:.0f} ms; {retries} retries: {causes}"
        )
    else:
        yield f"model calls   {retries} retries in completed rollouts: {causes}"


def _counted(counts: Mapping[str, int]) -> str:
    shown = sorted(sorted(counts.items(), key=lambda one: -one[1])[:_MOST_CAUSES])
    text = ", ".join(f"{count} {name}" for name, count in shown)
    more = len(counts) - len(shown)
    return f"{text} and {more} other causes" if more else text
