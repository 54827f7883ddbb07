"""gym-cli data generate: task files from generators."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import click

from gymmesh_cli.options import FILE


@click.group("generate", short_help="Generate tasks.")
def generate() -> None:
    """Generate tasks for an environment."""


@generate.command(
    "reasoning-gym", short_help="Generate tasks from the datasets of the library reasoning-gym."
)
@click.option(
    "--dataset",
    "-d",
    "datasets",
    multiple=True,
    metavar="NAME",
    help="Name of a dataset of reasoning-gym. Repeatable. Default: all datasets.",
)
@click.option(
    "--count",
    type=click.IntRange(min=1),
    default=100,
    show_default=True,
    help=("Total number of tasks from all datasets."),
)
@click.option(
    "--seed",
    type=int,
    default=0,
    show_default=True,
    help="Seed of the generators. The same seed generates the same tasks.",
)
@click.option(
    "--settings",
    default="{}",
    metavar="JSON",
    help='Settings of the generators of the datasets, such as {"min_numbers": 4}.',
)
@click.option(
    "--answer-tags", is_flag=True, help="Let the prompt ask for the answer between <answer> tags."
)
@click.option(
    "--output", "-o", type=FILE, help="Write the tasks to this file. Default: standard output."
)
@click.option("--overwrite", is_flag=True, help="Replace an existing task file.")
def reasoning_gym(
    datasets: tuple[str, ...],
    count: int,
    seed: int,
    settings: str,
    answer_tags: bool,
    output: Path | None,
    overwrite: bool,
) -> None:
    """Generate tasks from the datasets of the library reasoning-gym, for the environment
    `reasoning_gym`.

    \b
      gym-cli data generate reasoning-gym -d countdown --count 1000 --output puzzles.jsonl

    The command needs the extra `reasoning-gym`. Exit code 2: a dataset or the settings are invalid.
    """
    from gymmesh_client.safe_writes import is_task_file, refuse_foreign, refuse_used, replaced
    from gymmesh_mesh.authoring.environments import generate_reasoning_gym

    make = partial(generate_reasoning_gym, datasets, count, seed, answer_tags=answer_tags)
    asked = _object(settings)
    if output is None:
        make(settings=asked, output=None)
        return
    refuse_used(output, overwrite=overwrite)
    refuse_foreign(output, is_task_file, "a task file")
    output.parent.mkdir(parents=True, exist_ok=True)
    with replaced(output) as draft:
        make(settings=asked, output=draft)


def _object(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except ValueError as error:
        raise click.UsageError(f"--settings is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise click.UsageError("--settings must be a JSON object")
    return value
