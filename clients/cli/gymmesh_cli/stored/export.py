"""gym-cli export."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from gymmesh_cli.options import environments_option, json_option, rollouts_argument
from gymmesh_cli.terminal import (
    DONE,
    NOTHING_DONE,
    GroupedCommand,
    OptionGroup,
    echo,
    option,
    report,
    say,
)

if TYPE_CHECKING:
    from gymmesh_data import ExportOptions, ExportSummary

_HUB: Final = "hf"
# A rollout worth imitating has at least this reward, unless said otherwise.
_DEMONSTRATION: Final = 1.0


# The formats are imported when one is named or all are listed: help comes without them.
def _known(ctx: click.Context, param: click.Parameter, value: str) -> str:
    from gymmesh_data import EXPORTS

    name: str = click.Choice(tuple(EXPORTS)).convert(value, param, ctx)
    return name


def _completed(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    from gymmesh_data import EXPORTS

    return [name for name in EXPORTS if name.startswith(incomplete)]


def _list_formats(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    if value and not ctx.resilient_parsing:
        from gymmesh_data import EXPORTS

        width = max(map(len, EXPORTS))
        for name, about in EXPORTS.items():
            echo(f"{name:{width}}  {about}")
        ctx.exit(DONE)


@click.command("export", cls=GroupedCommand)
@rollouts_argument
@option(
    "--format",
    "-f",
    "name",
    group=OptionGroup.OUTPUT,
    required=True,
    callback=_known,
    shell_complete=_completed,
    metavar="FORMAT",
    help="The output format. --formats lists all formats.",
)
@option(
    "--formats",
    group=OptionGroup.OUTPUT,
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_list_formats,
    help="List the formats with their purposes, and exit.",
)
@option(
    "--output",
    "-o",
    group=OptionGroup.OUTPUT,
    required=True,
    type=click.Path(path_type=Path),
    help="Write to this file. With --format hf, write to this folder.",
)
@option(
    "--min-reward",
    group=OptionGroup.SELECT,
    type=float,
    metavar="R",
    help=(
        "Skip rollouts with a reward below R or without a reward. Default: 1 for formats "
        "of demonstrations, such as sft. Other formats have no limit."
    ),
)
@environments_option
@option(
    "--whole",
    group=OptionGroup.SELECT,
    is_flag=True,
    help=(
        "Skip rollouts that a limit of steps, tokens, context or the program's time ended early, "
        "and rollouts whose program ended with an error."
    ),
)
@option(
    "--best",
    group=OptionGroup.SELECT,
    type=click.IntRange(min=1),
    metavar="N",
    help=("Keep at most N rollouts per task: the rollouts with the highest rewards."),
)
@option(
    "--distinct/--repeated",
    group=OptionGroup.SELECT,
    default=None,
    help=(
        "--distinct: skip a rollout with the same messages as an earlier rollout. This "
        "is the default for formats of demonstrations. --repeated: keep repeated "
        "rollouts."
    ),
)
@option(
    "--no-reasoning",
    group=OptionGroup.FORMAT,
    is_flag=True,
    help="Omit the reasoning of the model.",
)
@option(
    "--no-tokens",
    group=OptionGroup.FORMAT,
    is_flag=True,
    help=("Omit token ids from records that also have the text."),
)
@option(
    "--margin",
    group=OptionGroup.FORMAT,
    type=click.FloatRange(min=0),
    default=0.0,
    metavar="R",
    help=(
        "For formats of preference pairs, such as dpo: smallest difference of the two "
        "rewards of a pair."
    ),
)
@option(
    "--pairs",
    group=OptionGroup.FORMAT,
    type=click.IntRange(min=1),
    default=4,
    show_default=True,
    metavar="N",
    help="For formats of preference pairs: maximum number of pairs per task.",
)
@option(
    "--whole-answers",
    group=OptionGroup.FORMAT,
    is_flag=True,
    help=(
        "For formats of preference pairs: each answer of a pair is the rest of the "
        "conversation, including tool results. Default: each answer is the one assistant "
        "message in which the two rollouts first differ."
    ),
)
@option(
    "--agent",
    group=OptionGroup.FORMAT,
    default="",
    metavar="NAME",
    help="With --format verl or nemo-rl: name of the trainer's agent that runs the tasks.",
)
@option(
    "--test",
    group=OptionGroup.FORMAT,
    type=click.FloatRange(0, 1, max_open=True),
    default=0.0,
    metavar="SHARE",
    help="With --format hf: fraction of the tasks that goes into the test split.",
)
@option("--overwrite", group=OptionGroup.OUTPUT, is_flag=True, help="Replace an existing file.")
@option(
    "--resume",
    group=OptionGroup.OUTPUT,
    is_flag=True,
    help=("Resume an interrupted export. With --format hf, the command keeps finished files."),
)
@json_option
def export(
    inputs: tuple[Path, ...],
    name: str,
    output: Path,
    overwrite: bool,
    resume: bool,
    as_json: bool,
    test: float,
    **chosen: Any,
) -> int:
    """Export rollouts to the format of a trainer or of another tool.

    \b
      gym-cli export rollouts.jsonl --format sft --output demonstrations.jsonl
      gym-cli export rollouts.jsonl --format dpo --margin 0.5 --output pairs.jsonl
      gym-cli export night-*.jsonl --format messages --output all.jsonl

    ROLLOUTS is the --output of `gym-cli collect` (the run can still be active), or another file
    with rows of rollouts. The command skips failed rollouts. At the end, the command lists the
    fields that the format can't represent.

    Exit code 0: records were written. 1: there were no records to write.
    """
    from gymmesh_data import export as write
    from gymmesh_data import export_hub

    options = _options(name, **chosen)
    if name == _HUB:
        summary = export_hub(inputs, output, options, test=test, overwrite=overwrite, resume=resume)
    elif test:
        raise click.UsageError("--test needs --format hf")
    else:
        summary = write(inputs, output, name, options, overwrite=overwrite, resume=resume)
    report(as_json, summary.to_dict(), _lines(summary, output))
    return DONE if summary.records else say(_nothing(summary, output), NOTHING_DONE)


def _options(
    name: str,
    *,
    min_reward: float | None,
    environments: tuple[str, ...],
    whole: bool,
    best: int | None,
    distinct: bool | None,
    no_reasoning: bool,
    no_tokens: bool,
    margin: float,
    pairs: int,
    whole_answers: bool,
    agent: str,
) -> ExportOptions:
    """The options of the command, with the defaults that the format has."""
    from gymmesh_data import FORMATS, ExportOptions, PairRules, Selection

    demonstrations = name in FORMATS and FORMATS[name].demonstrations
    if min_reward is None and demonstrations:
        min_reward = _DEMONSTRATION
    selection = Selection(
        min_reward=min_reward,
        environments=frozenset(environments),
        per_task=best,
        distinct=demonstrations if distinct is None else distinct,
        whole=whole,
    )
    return ExportOptions(
        selection=selection,
        pairs=PairRules(margin, pairs, whole_answers),
        reasoning=not no_reasoning,
        tokens=not no_tokens,
        agent=agent,
    )


def _nothing(summary: ExportSummary, output: Path) -> str:
    """Why an export has no record."""
    skipped = ", ".join(f"{why}: {n}" for why, n in sorted(summary.left_out.items()))
    why = f"skipped: {skipped}" if skipped else f"completed rollouts read: {summary.rollouts}"
    return f"{output} has no records ({why})"


def _lines(summary: ExportSummary, output: Path) -> Iterator[str]:
    yield f"rollouts      {summary.rollouts} read"
    yield f"records       {summary.records} in {output}"
    yield from (f"skipped       {why}: {n}" for why, n in sorted(summary.left_out.items()))
    yield from (f"not exported  {what}: {n}" for what, n in sorted(summary.losses.items()))
    yield from (f"changed       {what}: {n}" for what, n in sorted(summary.changed.items()))
