"""Draws the curve that train.py writes; needs matplotlib.

python examples/grpo/plot.py curve.jsonl curve.svg
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from pathlib import Path
from statistics import fmean
from typing import Any

from matplotlib import pyplot


def draw(lines: list[dict[str, Any]], target: Path) -> None:
    """The mean reward of each seed, and of all, over staleness."""
    by_seed: dict[int, list[dict[str, Any]]] = defaultdict(list)
    by_step: dict[int, list[float]] = defaultdict(list)
    for line in lines:
        by_seed[line["seed"]].append(line)
        if line["reward"] is not None:
            by_step[line["step"]].append(line["reward"])
    figure, (reward, staleness) = pyplot.subplots(
        2, 1, sharex=True, figsize=(7, 4.6), height_ratios=[3, 1], layout="tight"
    )
    for seed, found in by_seed.items():
        steps = [line["step"] for line in found]
        reward.plot(steps, [line["reward"] for line in found], alpha=0.4, label=f"seed {seed}")
        staleness.plot(steps, [line["staleness"] for line in found], alpha=0.4)
    reward.plot(list(by_step), [fmean(one) for one in by_step.values()], "k", label="mean")
    reward.set(ylabel="mean reward", ylim=(0, 1))
    reward.legend(loc="lower right")
    staleness.set(ylabel="staleness", xlabel="optimizer step")
    for axes in (reward, staleness):
        axes.grid(alpha=0.25)
    figure.savefig(target, metadata={"Date": None})


if __name__ == "__main__":
    source, made = map(Path, sys.argv[1:])
    draw([json.loads(line) for line in source.read_text().splitlines()], made)
