"""Options of a run that several collectors do together."""

from __future__ import annotations

import functools
from collections.abc import Collection
from typing import TYPE_CHECKING, Any, Final, cast

import click

from gymmesh_cli.options.groups import F, with_options

if TYPE_CHECKING:
    from gymmesh_client.tasks import Shard

# Leaves room for what tells shards apart (`gymmesh_client.control.collector_run`).
_LONGEST_ID: Final = 100


class _ShardType(click.ParamType["Shard"]):
    name = "shard"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> Shard:
        from gymmesh_client.tasks import Shard

        try:
            return value if isinstance(value, Shard) else Shard.parse(str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)


def shard_options(command: F) -> F:
    """Add the options; the command takes them as `shard: Shard | None` and `run_id: str`."""

    @functools.wraps(command)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        if kwargs["shard"] is not None and not kwargs["run_id"] and not kwargs["output"].resume:
            raise click.UsageError(
                "--shard is a part of a run that others collect, too: give each of them the same "
                "--run-id, a name that no other run has"
            )
        return command(*args, **kwargs)

    return with_options(cast("F", wrapper), _OPTIONS)


def refuse_other_tasks(shard: Shard | None, accepted: Collection[str]) -> None:
    """Raise UsageError where a shard is to go on with another task file."""
    if shard is not None and "tasks" in accepted:
        raise click.UsageError(
            "--accept-change tasks: with other tasks a shard would hold what other shards hold, or "
            "leave out what nobody does; collect all shards anew"
        )


def _run_id(context: click.Context, parameter: click.Parameter, value: str) -> str:
    from gymmesh_client.journal.format.records import is_run_id

    if value and not (is_run_id(value) and len(value) <= _LONGEST_ID):
        raise click.BadParameter(
            f"{value!r} must be a letter or digit, then letters, digits, '_', '-' and '.', at most "
            f"{_LONGEST_ID} in all"
        )
    return value


_OPTIONS: Final = (
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
        type=_ShardType(),
        metavar="INDEX/COUNT",
        help="Collect only this part of the tasks, such as 0/4, the first of four: every COUNT-th "
        "task of the file, with all its repeats. Needs --run-id, and an --output of its own.",
    ),
)
