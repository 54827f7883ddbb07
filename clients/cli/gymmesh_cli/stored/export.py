"""gym-cli export."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from gymmesh_cli.options import environments_option, json_option, rollouts_argument
from gymmesh_cli.terminal import DONE, NOTHING_DONE, echo, report

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


@click.command("export")
@rollouts_argument
@click.option(
    "--format",
    "-f",
    "name",
    required=True,
    callback=_known,
    shell_complete=_completed,
    metavar="FORMAT",
    help="One of the formats that --formats lists.",
)
@click.option(
    "--formats",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_list_formats,
    help="List the formats and what each is for.",
)
@click.option(
    "--output",
    "-o",
    required=True,
    type=click.Path(path_type=Path),
    help="The file to write; for hf a folder.",
)
@click.option(
    "--min-reward",
    type=float,
    metavar="R",
    help="Leave out rollouts with a lower reward, or none. For demonstrations 1, if not given.",
)
@environments_option
@click.option("--whole", is_flag=True, help="Leave out rollouts that were cut short by a limit.")
@click.option(
    "--best", type=click.IntRange(min=1), metavar="N", help="At most the N best of each task."
)
@click.option(
    "--distinct/--repeated",
    default=None,
    help="Leave out rollouts whose messages are the same as another's. On for demonstrations.",
)
@click.option("--no-reasoning", is_flag=True, help="Leave out reasoning.")
@click.option("--no-tokens", is_flag=True, help="Leave out token ids that stand beside text.")
@click.option(
    "--margin",
    type=click.FloatRange(min=0),
    default=0.0,
    metavar="R",
    help="Pairs: the rewards are at least this far apart.",
)
@click.option(
    "--pairs",
    type=click.IntRange(min=1),
    default=4,
    show_default=True,
    metavar="N",
    help="Pairs: at most N of each task.",
)
@click.option(
    "--whole-answers",
    is_flag=True,
    help="Pairs: answers go on to the end, tool results included, not only to the first "
    "difference.",
)
@click.option(
    "--agent",
    default="",
    metavar="NAME",
    help="Tasks for verl and nemo-rl: the agent that runs them there.",
)
@click.option(
    "--test",
    type=click.FloatRange(0, 1, max_open=True),
    default=0.0,
    metavar="SHARE",
    help="hf: this share of the tasks makes the split test.",
)
@click.option("--overwrite", is_flag=True, help="Replace a file that is there already.")
@click.option(
    "--resume",
    is_flag=True,
    help="Go on with an export that was interrupted; of hf, with the files that are not finished.",
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
    """Write rollouts in the format of a trainer or another tool.

    \b
      gym-cli export rollouts.jsonl --format sft --output demonstrations.jsonl
      gym-cli export rollouts.jsonl --format dpo --margin 0.5 --output pairs.jsonl
      gym-cli export night-*.jsonl --format messages --output all.jsonl

    ROLLOUTS is what was given to `gym-cli collect --output`, also while the run goes on, or any
    file of such rows. Failed rollouts are left out. Fields the format can't represent are listed at
    the end.

    Exit code 0 when something was written, 1 when nothing was left to write.
    """
    from gymmesh_data import export as write
    from gymmesh_data import export_hub

    options = _options(name, **chosen)
    if name == _HUB:
        summary = export_hub(inputs, output, options, test=test, overwrite=overwrite, resume=resume)
    elif test:
        raise click.UsageError("--test is for --format hf")
    else:
        summary = write(inputs, output, name, options, overwrite=overwrite, resume=resume)
    report(as_json, summary.to_dict(), _lines(summary, output))
    return DONE if summary.records else NOTHING_DONE


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


def _lines(summary: ExportSummary, output: Path) -> Iterator[str]:
    yield f"rollouts      {summary.rollouts} read"
    yield f"records       {summary.records} in {output}"
    yield from (f"left out      {n} {why}" for why, n in sorted(summary.left_out.items()))
    yield from (f"not carried   {n} {what}" for what, n in sorted(summary.losses.items()))
