"""A folder for the Hugging Face Hub and `datasets`: data by configuration and split, and a card
(README.md) that describes the files.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Final, TypeAlias

import yaml

from gymmesh_data.exports.format import Format, TokenPlace
from gymmesh_data.exports.formats import FORMATS
from gymmesh_data.exports.formats.table import table_row
from gymmesh_data.exports.summary import ExportOptions, ExportSummary
from gymmesh_data.rollout import Json
from gymmesh_data.selection import Selection

HUB: Final = "hf"
HUB_ABOUT: Final = "a folder for the Hugging Face Hub: rollouts, sft, dpo, and a card"

# configuration: the format of its files, and what they are, for the card. All are JSON lines:
# `datasets` reads the files of a folder by one loader, and only JSON keeps the arguments of tool
# calls as each row has them.
CONFIGS: Final[Mapping[str, tuple[Format, str]]] = {
    "rollouts": (
        Format("rollouts", "", of_rollout=table_row, tokens=TokenPlace.SAMPLES),
        "every rollout, with its exact tokens",
    ),
    "sft": (FORMATS["sft"], "demonstrations for supervised fine-tuning"),
    "dpo": (FORMATS["dpo"], "preference pairs"),
}
_WHOLE: Final = "rollouts"
# A rollout worth imitating has at least this reward, unless said otherwise.
_DEMONSTRATION: Final = 1.0
DATASETS: Final = "4.7"
"""The first version of `datasets` that keeps the arguments of each tool call as they are."""
_SIZES: Final = ((10**3, "n<1K"), (10**4, "1K<n<10K"), (10**5, "10K<n<100K"), (10**6, "100K<n<1M"))


Files: TypeAlias = Mapping[tuple[str, str], ExportSummary]
"""The results of a folder's files, by configuration and split."""


def path_of(config: str, split: str) -> str:
    """The path of a file within the folder, with slashes."""
    return f"{config}/{split}.jsonl"


def selection_of(form: Format, options: ExportOptions) -> Selection:
    """The rollouts that a configuration of the folder contains."""
    chosen = options.selection
    if not form.demonstrations:
        return chosen
    least = _DEMONSTRATION if chosen.min_reward is None else chosen.min_reward
    return replace(chosen, min_reward=least, distinct=True)


def card(name: str, made: Files, options: ExportOptions) -> str:
    """The text of README.md: contents, environments, models, thresholds, and what was skipped.

    `made`: all files of the folder, those without records included.
    """
    files = {key: one for key, one in made.items() if one.records}
    data: dict[str, list[Json]] = {}
    for config, split in files:
        data.setdefault(config, []).append({"split": split, "path": path_of(config, split)})
    configs: list[Json] = [{"config_name": name, "data_files": of} for name, of in data.items()]
    if configs:
        configs[0]["default"] = True
    largest = max((one.records for one in files.values()), default=0)
    size = next((word for most, word in _SIZES if largest < most), "n>1M")
    head = {
        "pretty_name": name,
        "task_categories": ["text-generation"],
        "tags": ["agent-rollouts", "reinforcement-learning", "gymmesh"],
        "size_categories": [size],
        "configs": configs,
    }
    front = yaml.safe_dump(head, sort_keys=False, allow_unicode=True)
    rows = "\n".join(
        f"| {config} | {split} | {one.records} | {CONFIGS[config][1]} | {_rule(config, options)} |"
        for (config, split), one in files.items()
    )
    told = [
        _named("Environments", made, "environments"),
        _named("Models", made, "models"),
        _list("Skipped", files, "left_out"),
        _list("Not exported", files, "losses"),
        _list("Changed", files, "changed"),
    ]
    return (
        f"---\n{front}---\n\n# {_plain(name)}\n\nVerified agent rollouts, exported by gymmesh.\n\n"
        "| configuration | split | records | content | selection |\n|---|---|---|---|---|\n"
        f"{rows}\n\n{''.join(told)}"
        f"Load this folder with `datasets` {DATASETS} or later: earlier versions give every tool "
        "call the argument names of all other tools, with nulls.\n\n"
        "```python\nfrom datasets import load_dataset\n\n"
        f'load_dataset("PATH", "{next(iter(data), "rollouts")}")\n```\n'
    )


def _rule(config: str, options: ExportOptions) -> str:
    """Which rollouts, or pairs, a configuration has."""
    form = CONFIGS[config][0]
    chosen, rules = selection_of(form, options), []
    if chosen.min_reward is not None:
        rules.append(f"reward at least {chosen.min_reward:g}")
    if chosen.per_task is not None:
        rules.append(f"the best {chosen.per_task} of each task")
    if chosen.distinct:
        rules.append("no duplicates")
    if chosen.whole:
        rules.append("no rollouts cut short by a limit")
    if form.of_pair is not None:
        margin = f"at least {options.pairs.margin:g}" if options.pairs.margin else "above 0"
        rules.append(f"reward difference {margin}, at most {options.pairs.per_task} per task")
    return ", ".join(rules) or "all completed rollouts"


def _named(title: str, made: Files, key: str) -> str:
    """A line with the names and counts of the rollouts, which each configuration reads again."""
    counts = sum(
        (getattr(one, key) for (config, _), one in made.items() if config == _WHOLE), Counter[str]()
    )
    if not counts:
        return ""
    shown = [f"{_plain(name)} (rollouts: {count})" for name, count in sorted(counts.items())]
    return f"{title}: {', '.join(shown)}.\n\n"


def _list(title: str, files: Files, key: str) -> str:
    told = [
        f"- {config}, {split}: {what}: {count}"
        for (config, split), one in files.items()
        for what, count in sorted(getattr(one, key).items())
    ]
    return f"{title}:\n\n" + "\n".join(told) + "\n\n" if told else ""


def _plain(text: str) -> str:
    """Names come from rollouts: on one line, and no markup."""
    return "".join(one for one in text if one.isalnum() or one in " .-_/")
