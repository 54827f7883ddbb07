"""Options of a run that several collectors do together."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import click

from gymmesh_cli.options.groups import grouped

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
            "--shard is a part of a run that others collect, too: give each of them the same "
            "--run-id, a name that no other run has"
        )
    if "tasks" in output.accept:
        raise click.UsageError(
            "--accept-change tasks: with other tasks a shard would hold what other shards hold, or "
            "leave out what nobody does; collect all shards anew"
        )
    return shard


def _run_id(context: click.Context, parameter: click.Parameter, value: str) -> str:
    from gymmesh_client.log_records import is_run_id

    if value and not (is_run_id(value) and len(value) <= _LONGEST_ID):
        raise click.BadParameter(
            f"{value!r} must be a letter or digit, then letters, digits, '_', '-' and '.', at most "
            f"{_LONGEST_ID} in all"
        )
    return value


shard_options = grouped(
    "shard",
    _shard_of,
    click.option(
        "--run-id",
        default="",
        metavar="NAME",
        callback=_run_id,
        help="The run's id, of which those of its rollouts are made; no other run may have it. By "
        "default one is made up.",
    ),
    click.option(
        "--shard",
        metavar="INDEX/COUNT",
        callback=_parsed,
        help="Collect only this part of the tasks, such as 0/4, the first of four: every COUNT-th "
        "task of the file, with all its repeats. Needs --run-id, and an --output of its own.",
    ),
)
