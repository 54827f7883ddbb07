"""gym-cli reverify: its options. What it does is in `reverifying`, imported when it runs."""

from __future__ import annotations

from typing import Any

import click

from gymmesh_cli.options import (
    FILE,
    environments_option,
    json_option,
    mesh_options,
    rollouts_argument,
    security_options,
    timeout_option,
)
from gymmesh_cli.terminal import GroupedCommand, OptionGroup, option


@click.command("reverify", cls=GroupedCommand)
@rollouts_argument
@option(
    "--output",
    "-o",
    group=OptionGroup.OUTPUT,
    type=FILE,
    help=("Write the rows with the new verdicts to this file."),
)
@option(
    "--dry-run",
    group=OptionGroup.OUTPUT,
    is_flag=True,
    help=("Score and compare, but write nothing. No --output is needed."),
)
@mesh_options
@option(
    "--resource",
    "resources",
    group=OptionGroup.MODELS,
    multiple=True,
    metavar="HOST:PORT",
    help=(
        "Score with the resource service at this address instead of a service inside the "
        "command. Repeatable. To use all instances in a registry, pass "
        "discovery://HOST:PORT, consul://HOST:PORT or kubernetes://NAMESPACE."
    ),
)
@security_options
@environments_option
@option(
    "--tasks",
    "tasks_file",
    group=OptionGroup.TASKS,
    type=FILE,
    help=(
        "Use the tasks of this file instead of the tasks in the rows, for example with "
        "corrected expected answers. The command finds the task of a rollout by id."
    ),
)
@option(
    "--verifier",
    group=OptionGroup.MODELS,
    default="",
    metavar="FILE.py:NAME",
    help="Score with this function or class instead of the configuration's environments.",
)
@option(
    "--on-difference",
    group=OptionGroup.RUNNING,
    type=click.Choice(["skip", "judge"]),
    default="skip",
    show_default=True,
    help=(
        "If a verdict needs the state of the session, the command replays the rollout's "
        "tool calls. If an output then differs from the stored output: skip the rollout, "
        "or judge the rollout anyway."
    ),
)
@option(
    "--limit",
    group=OptionGroup.SELECT,
    type=click.IntRange(min=1),
    help=("Score only the first N rollouts."),
)
@option(
    "--concurrency",
    group=OptionGroup.RUNNING,
    type=click.IntRange(1, 10_000),
    default=16,
    show_default=True,
    help="Maximum number of verdicts that run at a time.",
)
@timeout_option(120.0, "one verdict")
@option("--overwrite", group=OptionGroup.OUTPUT, is_flag=True, help="Replace an existing output.")
@option(
    "--resume",
    group=OptionGroup.OUTPUT,
    is_flag=True,
    help=(
        "Resume an interrupted `gym-cli reverify`: keep the new verdicts, and score the "
        "missing and failed rollouts."
    ),
)
@json_option
def reverify(dry_run: bool, **asked: Any) -> int:
    """Rescore stored rollouts without calls of the policy model, and compare the new verdicts with
    the old verdicts.

    \b
      gym-cli reverify rollouts.jsonl --output judged.jsonl
      gym-cli reverify rollouts.jsonl --config mesh.yaml --dry-run
      gym-cli reverify rollouts.jsonl --verifier stricter.py:judge --dry-run
      gym-cli reverify rollouts.jsonl -o judged.jsonl --resource 127.0.0.1:9310

    ROLLOUTS is the --output of `gym-cli collect`, or another file with rows of rollouts. The
    command does not change ROLLOUTS. Each row of the output has the new verdict, and the old
    verdict in verification.previous. NAME.failures.jsonl has the rollouts whose verifier failed,
    with the causes. The command counts rollouts that it skips, such as rollouts without a kept
    state. Neither counts as a reward of 0.

    Exit code 0: all selected rollouts were scored. 3: the verifier failed for some rollouts, or
    some rollouts were skipped or had failed in the run. 1: no rollout was scored. 130: interrupted
    with Ctrl-C (verdicts that had started are finished).
    """
    from gymmesh_cli.stored.reverifying import ReverifyCommand, reverify_rollouts

    command = ReverifyCommand(**asked)
    if (command.output is None) != dry_run:
        raise click.UsageError(
            "add --output FILE, or --dry-run to compare verdicts without writing rows"
        )
    if command.overwrite and command.resume:
        raise click.UsageError("--overwrite and --resume can't be combined")
    if dry_run and (command.overwrite or command.resume):
        raise click.UsageError("--dry-run writes nothing; remove --overwrite and --resume")
    if command.resources and command.verifier:
        raise click.UsageError(
            "--verifier scores inside this command, --resource scores in a remote "
            "service. Remove one of the two options"
        )
    if command.resources:
        command.mesh.refuse_model_flags()
    else:
        command.security.refuse("--resource")
    return reverify_rollouts(command)
