"""gym-cli export."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from gymmesh_cli.exits import DONE, NOTHING_DONE, speaks_plainly
from gymmesh_cli.options import json_option
from gymmesh_cli.terminal import echo, echo_json, one_line

if TYPE_CHECKING:
    from gymmesh_data import ExportOptions, ExportSummary

_FORMATS: Final = ("messages", "sft", "tokens", "dpo", "openai", "openai-dpo")
# A rollout worth imitating has at least this reward, unless said otherwise.
_DEMONSTRATION: Final = 1.0


@click.command("export", short_help="Write rollouts in the format of a trainer.")
@click.argument(
    "inputs",
    metavar="ROLLOUTS…",
    nargs=-1,
    required=True,
    type=click.Path(path_type=Path, dir_okay=False),
)
@click.option("--format", "-f", "name", required=True, type=click.Choice(_FORMATS))
@click.option(
    "--output",
    "-o",
    required=True,
    type=click.Path(path_type=Path, dir_okay=False),
    help="The file to write: JSON lines.",
)
@click.option(
    "--min-reward",
    type=float,
    metavar="R",
    help="Leave out rollouts with a lower reward, or none. For sft and openai 1, if not given.",
)
@click.option(
    "--environment",
    "environments",
    multiple=True,
    metavar="NAME",
    help="Only rollouts of this environment; may be given several times.",
)
@click.option("--whole", is_flag=True, help="Leave out rollouts that were cut short by a limit.")
@click.option(
    "--best", type=click.IntRange(min=1), metavar="N", help="At most the N best of each task."
)
@click.option(
    "--distinct/--repeated",
    default=None,
    help="Leave out rollouts whose messages are the same as another's. On for sft and openai.",
)
@click.option("--no-reasoning", is_flag=True, help="Leave out reasoning.")
@click.option("--no-tokens", is_flag=True, help="messages: leave out token ids.")
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
@click.option("--overwrite", is_flag=True, help="Replace a file that is there already.")
@click.option("--resume", is_flag=True, help="Go on with an export that was interrupted.")
@json_option
@speaks_plainly
def export(
    inputs: tuple[Path, ...],
    name: str,
    output: Path,
    overwrite: bool,
    resume: bool,
    as_json: bool,
    **chosen: Any,
) -> int:
    """Write rollouts in the format of a trainer, as JSON lines.

    \b
      gym-cli export rollouts.jsonl --format sft --output demonstrations.jsonl
      gym-cli export rollouts.jsonl --format dpo --margin 0.5 --output pairs.jsonl
      gym-cli export night-*.jsonl --format messages --output all.jsonl

    ROLLOUTS is what was given to `gym-cli collect --output`, also while the run goes on, or any
    file of such rows. Failed rollouts are left out. What a format has no place for is said in the
    end.

    \b
    Formats:
      messages    every rollout: prompt, messages, tools, reward, metadata, token ids
      sft         demonstrations for TRL: messages, tools
      tokens      training samples: input_ids, labels, mask, logprobs, reward
      dpo         preference pairs for TRL: prompt, chosen, rejected, tools
      openai      demonstrations for OpenAI's fine-tuning
      openai-dpo  preference pairs for OpenAI's fine-tuning

    Exit code 0 when something was written, 1 when nothing was left to write.
    """
    from gymmesh_data import export as write

    options = _options(name, **chosen)
    summary = write(inputs, output, name, options, overwrite=overwrite, resume=resume)
    if as_json:
        echo_json(summary.to_dict())
    else:
        _say(summary, output)
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
) -> ExportOptions:
    """The options of the command, with the defaults that the format has."""
    from gymmesh_data import FORMATS, ExportOptions, PairRules, Selection

    demonstrations = FORMATS[name].demonstrations
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
    )


def _say(summary: ExportSummary, output: Path) -> None:
    lines = [
        f"rollouts      {summary.rollouts} read",
        f"records       {summary.records} in {output}",
    ]
    lines += [f"left out      {count} {why}" for why, count in sorted(summary.left_out.items())]
    lines += [f"not carried   {count} {what}" for what, count in sorted(summary.losses.items())]
    echo("\n".join(map(one_line, lines)))
