"""Options of a run that several collectors do together."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import click

from gymmesh_cli.options.groups import grouped
from gymmesh_cli.terminal import OptionGroup, option

if TYPE_CHECKING:
    from gymmesh_client.tasks import Shard

# Leaves room for what tells shards apart (`gymmesh_client.control.collector_run`).
_LONGEST_ID: Final = 100


def _parsed(context: click.Context, parameter: click.Parameter, value: str | None) -> Shard | None:
    from gymmesh_client.tasks import Shard

    try:
        return None if value is None else Shard.parse(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


def _shard_of(values: dict[str, Any]) -> Shard | None:
    """The shard; the run's id, which a run without shards has, too, stays an option of its own."""
    shard: Shard | None = values.pop("shard")
    output = values["output"]
    if shard is None:
        return None
    if not values["run_id"] and not output.resume:
        raise click.UsageError(
            "--shard collects a part of a run that several collectors share. Give each collector "
            "the same new --run-id"
        )
    if "tasks" in output.accept:
        raise click.UsageError(
            "--accept-change tasks: after a change of the tasks, shards would overlap or "
            "miss tasks. Collect all shards again"
        )
    return shard


def _run_id(context: click.Context, parameter: click.Parameter, value: str) -> str:
    from gymmesh_client.log_records import is_run_id

    if value and not (is_run_id(value) and len(value) <= _LONGEST_ID):
        raise click.BadParameter(
            f"{value!r} must start with a letter or digit, followed by letters, digits, '_', '-' "
            f"and '.', at most {_LONGEST_ID} characters in all"
        )
    return value


shard_options = grouped(
    "shard",
    _shard_of,
    option(
        "--run-id",
        group=OptionGroup.TASKS,
        default="",
        metavar="NAME",
        callback=_run_id,
        help=(
            "Unique id of the run. The ids of rollouts are derived from the run id. Default: "
            "a generated id."
        ),
    ),
    option(
        "--shard",
        group=OptionGroup.TASKS,
        metavar="INDEX/COUNT",
        callback=_parsed,
        help=(
            "Collect only one shard of the tasks. 0/4 is the first of four shards: every 4th "
            "task, with all repeats. All shards need the same --run-id, and each shard needs "
            "a separate --output."
        ),
    ),
)
