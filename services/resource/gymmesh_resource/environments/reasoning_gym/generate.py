"""Makes task rows of reasoning-gym's datasets: `python -m …reasoning_gym.generate --help`."""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, redirect_stdout
from pathlib import Path
from typing import Any

from gymmesh_runtime.extras import Extra
from gymmesh_runtime.text import one_line

IS_FACE = True  # see tools/import_faces.py

_INSTRUCTION = "Think first, then give the final answer alone between <answer> and </answer>."
# Seeds of the library's generators are 32-bit numbers.
REASONING_GYM = Extra("reasoning-gym", ("reasoning_gym",))
_SEEDS = 2**32


class GenerateError(ValueError):
    """The request cannot be generated; one sentence."""


def generate_rows(
    datasets: Sequence[str],
    count: int,
    seed: int,
    *,
    config: Mapping[str, Any] | None = None,
    answer_tags: bool = False,
) -> Iterator[dict[str, Any]]:
    """`count` task rows, taken from the datasets in turn; the same again for the same seed.

    `datasets`: names, or nothing for all. `config`: settings of the datasets' own generators.
    `answer_tags`: begin with a message that asks for the answer between tags.
    Raises `GenerateError`, ConfigError where the library is missing. Imports it, which takes
    seconds.
    """
    REASONING_GYM.require("reasoning_gym")
    names = list(datasets) or sorted(_known())
    if unknown := [name for name in names if name not in _known()]:
        raise GenerateError(f"There is no dataset {unknown[0]!r} in reasoning-gym.")
    if count < 1:
        raise GenerateError(f"The count must be at least 1, not {count}.")
    # The datasets of one call differ in their seeds, or like ones would share their entries.
    chance = random.Random(seed)
    sources = [
        _dataset(name, 1 + (count - 1) // len(names), chance.randrange(_SEEDS), config or {})
        for name in names[:count]
    ]
    for number in range(count):
        which = number % len(names)
        yield _row(names[which], sources[which], number // len(names), seed, answer_tags)


def _known() -> frozenset[str]:
    from gymmesh_resource.environments.reasoning_gym.scoring import dataset_names

    return dataset_names()


def _dataset(name: str, size: int, seed: int, config: Mapping[str, Any]) -> Any:
    import reasoning_gym

    try:
        return reasoning_gym.create_dataset(name, **{**config, "seed": seed, "size": size})
    except (TypeError, ValueError, AssertionError) as error:
        raise GenerateError(f"The dataset {name!r} rejects its settings: {error}") from None


def _row(name: str, source: Any, index: int, seed: int, answer_tags: bool) -> dict[str, Any]:
    try:
        entry = json.loads(json.dumps(source[index]))
    except Exception as error:  # generators raise all kinds
        raise GenerateError(f"The dataset {name!r} cannot make entry {index}: {error}") from None
    messages = [{"role": "user", "content": entry["question"]}]
    if answer_tags:
        messages.insert(0, {"role": "system", "content": _INSTRUCTION})
    return {
        "task_id": f"{name}-{seed}-{index}",
        "responses_create_params": {"input": messages},
        "question": entry["question"],
        "answer": entry["answer"],
        "metadata": entry["metadata"],
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Write rows as JSONL; the exit status is 2 for what cannot be generated."""
    parser = argparse.ArgumentParser(
        prog="python -m gymmesh_resource.environments.reasoning_gym.generate",
        description="Write task rows of reasoning-gym's datasets as JSONL.",
    )
    parser.add_argument(
        "--dataset",
        action="append",
        default=[],
        help="name of a dataset; repeat the option for more datasets; default: all datasets",
    )
    parser.add_argument(
        "--count", type=int, default=100, help="number of rows in total; default: 100"
    )
    parser.add_argument(
        "--seed",
        type=int,
        default=0,
        help="seed of the generators: the same seed makes the same rows; default: 0",
    )
    parser.add_argument(
        "--config", default="{}", help="settings of the generators, as a JSON object"
    )
    parser.add_argument("--answer-tags", action="store_true", help="ask for <answer> tags")
    parser.add_argument("--output", type=Path, help="the output file; default: standard output")
    options = parser.parse_args(arguments)
    try:
        config = json.loads(options.config)
        if not isinstance(config, dict):
            raise GenerateError("--config must be a JSON object.")
        rows = generate_rows(
            options.dataset,
            options.count,
            options.seed,
            config=config,
            answer_tags=options.answer_tags,
        )
        write_rows(rows, options.output)
    except (GenerateError, ValueError, OSError) as error:
        sys.stderr.write(f"error: {one_line(str(error))}\n")
        return 2
    return 0


def write_rows(rows: Iterator[dict[str, Any]], output: Path | None) -> None:
    """Write rows as JSONL to a file, or to standard output. Raises OSError, `GenerateError`."""
    with ExitStack() as stack:
        file = sys.stdout
        if output is not None:
            file = stack.enter_context(output.open("w", encoding="utf-8"))
        # Some generators print while they work.
        stack.enter_context(redirect_stdout(sys.stderr))
        for row in rows:
            file.write(json.dumps(row, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    sys.exit(main())
