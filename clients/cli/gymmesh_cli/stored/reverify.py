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


@click.command("reverify")
@rollouts_argument
@click.option("--output", "-o", type=FILE, help="Where the rows with the new verdicts go.")
@click.option(
    "--dry-run", is_flag=True, help="Judge and compare, and write nothing; no --output is needed."
)
@mesh_options
@click.option(
    "--resource",
    "resources",
    multiple=True,
    metavar="HOST:PORT",
    help="Judge by the resource service at this address instead of one inside the command; again "
    "for each of several. Or by all that a registry has: discovery://HOST:PORT, "
    "consul://HOST:PORT, kubernetes://NAMESPACE.",
)
@security_options
@environments_option
@click.option(
    "--tasks",
    "tasks_file",
    type=FILE,
    help="Take the tasks of this file, by their ids: expected answers that were put right, say.",
)
@click.option(
    "--verifier",
    default="",
    metavar="FILE.py:NAME",
    help="Judge by this function or class instead of the configuration's environments.",
)
@click.option(
    "--on-difference",
    type=click.Choice(["skip", "judge"]),
    default="skip",
    show_default=True,
    help="What becomes of a rollout whose tools answer something else when its calls are replayed.",
)
@click.option("--limit", type=click.IntRange(min=1), help="Judge only the first rollouts.")
@click.option(
    "--concurrency",
    type=click.IntRange(1, 10_000),
    default=16,
    show_default=True,
    help="Verdicts side by side.",
)
@timeout_option(120.0, "one verdict")
@click.option("--overwrite", is_flag=True, help="Replace an output that is there already.")
@click.option(
    "--resume", is_flag=True, help="Go on after an interruption; what failed is judged anew, too."
)
@json_option
def reverify(dry_run: bool, **asked: Any) -> int:
    """Judge stored rollouts again, without inference, and compare the verdicts.

    \b
      gym-cli reverify rollouts.jsonl --output judged.jsonl
      gym-cli reverify rollouts.jsonl --config mesh.yaml --dry-run
      gym-cli reverify rollouts.jsonl --verifier stricter.py:judge --dry-run
      gym-cli reverify rollouts.jsonl -o judged.jsonl --resource 127.0.0.1:9310

    ROLLOUTS is what was given to `gym-cli collect --output`, or any file of such rows; it is only
    read. Each row goes to the output with its new verdict; the old one stays in it, under
    verification.previous. What could not be judged goes to NAME.failures.jsonl with its cause, and
    is never a reward of 0.

    Exit code 0 when every rollout was judged, 3 when some could not be, 1 when none was, 130 after
    Ctrl-C, which lets verdicts under way end.
    """
    from gymmesh_cli.stored.reverifying import ReverifyCommand, reverify_rollouts

    command = ReverifyCommand(**asked)
    if (command.output is None) != dry_run:
        raise click.UsageError("give --output, or --dry-run to compare verdicts alone")
    if command.overwrite and command.resume:
        raise click.UsageError("--overwrite and --resume exclude each other")
    if dry_run and (command.overwrite or command.resume):
        raise click.UsageError("--dry-run writes nothing, so there is nothing to replace or resume")
    if command.resources and command.verifier:
        raise click.UsageError("--verifier judges inside the command, and --resource elsewhere")
    if command.resources:
        command.mesh.refuse_model_flags()
    else:
        command.security.refuse("--resource")
    return reverify_rollouts(command)
