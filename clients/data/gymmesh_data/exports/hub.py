"""A folder as the Hugging Face Hub and `datasets` read it: data by configuration and split, and a
card (README.md) that tells what is where.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, TypeAlias

import yaml

from gymmesh_data.exports.format import Format, TokenPlace
from gymmesh_data.exports.formats import FORMATS
from gymmesh_data.exports.summary import ExportSummary
from gymmesh_data.exports.table import table_row
from gymmesh_data.rollout import Json

# configuration: the format of its files, and what they are, for the card. All are JSON lines:
# `datasets` reads the files of a folder by one loader, and only JSON keeps the arguments of tool
# calls as each row has them.
CONFIGS: Final[Mapping[str, tuple[Format, str]]] = {
    "rollouts": (
        Format(of_rollout=table_row, tokens=TokenPlace.BESIDE),
        "every rollout, with its exact tokens",
    ),
    "sft": (FORMATS["sft"], "demonstrations for supervised fine-tuning"),
    "dpo": (FORMATS["dpo"], "preference pairs"),
}
_SIZES: Final = ((10**3, "n<1K"), (10**4, "1K<n<10K"), (10**5, "10K<n<100K"), (10**6, "100K<n<1M"))


Files: TypeAlias = Mapping[tuple[str, str], ExportSummary]
"""What came of the files of a folder, by configuration and split."""


def path_of(config: str, split: str) -> str:
    """Where a file of the folder is within it, with slashes."""
    return f"{config}/{split}.jsonl"


def card(name: str, files: Files, environments: Sequence[str]) -> str:
    """The text of README.md.

    Args:
        files: all that have records.
        environments: whose rollouts these are, for people.
    """
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
        f"| {config} | {split} | {one.records} | {CONFIGS[config][1]} |"
        for (config, split), one in files.items()
    )
    losses = _losses(files)
    return (
        f"---\n{front}---\n\n# {_plain(name)}\n\nVerified agent rollouts"
        f"{' of ' + ', '.join(map(_plain, environments)) if environments else ''}, exported by "
        "gymmesh.\n\n| configuration | split | records | what they are |\n|---|---|---|---|\n"
        f"{rows}\n{losses}\n"
        "```python\nfrom datasets import load_dataset\n\n"
        f'load_dataset("PATH", "{next(iter(data), "rollouts")}")\n```\n'
    )


def _losses(files: Files) -> str:
    told = [
        f"- {config}, {split}: {count} {what}"
        for (config, split), one in files.items()
        for what, count in sorted(one.losses.items())
    ]
    return "\nNot carried:\n\n" + "\n".join(told) + "\n" if told else ""


def _plain(text: str) -> str:
    """Names come from rollouts: on one line, and no markup."""
    return "".join(one for one in text if one.isalnum() or one in " .-_/")
