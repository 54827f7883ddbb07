"""gym-cli collect: its options. What it does is in `collecting`, imported when it runs."""

from __future__ import annotations

from typing import Any, Final

import click

from gymmesh_cli.collect.resuming import RemembersArguments, asked_for
from gymmesh_cli.options import (
    FILE,
    MeshOptions,
    SecurityOptions,
    agent_option,
    json_option,
    mesh_options,
    number_ids_option,
    other_agents_option,
    output_options,
    pace_options,
    place_argument,
    security_options,
    shard_options,
    skip_invalid_option,
    stream_address_options,
    track_options,
)
from gymmesh_cli.terminal import OptionGroup, log_format_option, option


class CollectOptionsCommand(RemembersArguments):
    """A command that needs its tasks in one of several ways."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        rest = super().parse_args(ctx, args)
        given = (
            ctx.params.get(name) for name in ("tasks", "config", "environment_place", "resume")
        )
        if not ctx.resilient_parsing and not any(given):
            raise click.UsageError(
                "No tasks given. Pass a task file with --input, or an environment file with its "
                "own examples, such as desk.py.",
                ctx,
            )
        return rest


_OVERVIEW: Final = """\
Collect verified rollouts for a task file, or for an environment's own examples.

\b
  gym-cli collect desk.py --model-url http://127.0.0.1:8000/v1 --model my-model
  gym-cli collect -i tasks.jsonl -o rollouts.jsonl -n 4 --config mesh.yaml
  gym-cli collect --resume -o rollouts.jsonl

Set API keys and sampling parameters as keys of the configuration:

\b
  --set 'models.policy.api_key=${OPENAI_API_KEY}'
  --set models.policy.params.temperature=0.7
"""


@click.command(cls=CollectOptionsCommand, overview=_OVERVIEW)
@place_argument
@mesh_options
@agent_option
@security_options
@option(
    "--input",
    "-i",
    "tasks",
    group=OptionGroup.TASKS,
    brief="Task file (JSON lines).",
    type=FILE,
    help=(
        "Task file (JSON lines). Rows of NeMo Gym task files work unchanged. Default: "
        "the examples of the environment."
    ),
)
@output_options
@pace_options
@stream_address_options
@option(
    "--limit",
    group=OptionGroup.TASKS,
    brief="Use only the first N tasks.",
    type=click.IntRange(min=1),
    metavar="N",
    help="Use only the first N tasks.",
)
@shard_options
@skip_invalid_option
@number_ids_option
@other_agents_option
@option(
    "--metrics-port",
    group=OptionGroup.MONITORING,
    type=click.IntRange(min=0, max=65535),
    metavar="PORT",
    help=(
        "Serve this process's Prometheus metrics at this port of 127.0.0.1. With 0, the "
        "operating system picks a free port, and the command prints the port on stderr."
    ),
)
@track_options
@option(
    "--no-control",
    group=OptionGroup.MONITORING,
    is_flag=True,
    help="Don't let `gym-cli runs` show and control this run.",
)
@option(
    "--quiet", "-q", group=OptionGroup.MONITORING, is_flag=True, help=("Don't show the progress.")
)
@log_format_option
@json_option
def collect(
    mesh: MeshOptions, agent: tuple[str, ...], security: SecurityOptions, **asked: Any
) -> int:
    """Collect verified rollouts for a task file, or for an environment's own examples.

    \b
    An environment in one file, with its examples:
      gym-cli collect desk.py --model-url http://127.0.0.1:8000/v1 --model my-model
    One task, with the small model that gymmesh downloads:
      echo '{"prompt": "What is 17 * 23?", "expected_answer": "391"}' > tasks.jsonl
      gym-cli collect --input tasks.jsonl --output rollouts.jsonl
    Four rollouts per task, with your own endpoint:
      gym-cli collect -i tasks.jsonl -o rollouts.jsonl -n 4 \\
          --model-url http://127.0.0.1:8000/v1 --model my-model
    With an API key from an environment variable:
      gym-cli collect … --set 'models.policy.api_key=${OPENAI_API_KEY}'
    With a mesh that `gym-cli up` started:
      gym-cli collect -i tasks.jsonl -o rollouts.jsonl --agent 127.0.0.1:9400
    The first of four shards (`gym-cli runs merge` merges the shards):
      gym-cli collect … -o shards/0/rollouts.jsonl --run-id night-7 --shard 0/4
    Resume an interrupted run, or retry failed rollouts (no other option is needed):
      gym-cli collect --resume -o rollouts.jsonl
      gym-cli collect --resume -o rollouts.jsonl --retry failed

    ENVIRONMENT is a file, a class or function such as desk.py:Desk, the folder of a package, an
    environment of --config, or an installed environment. A failed rollout never counts as a reward
    of 0. The file NAME.failures.jsonl has the failed rollouts and the causes. After the first
    Ctrl-C, running rollouts have --grace seconds to finish. A second Ctrl-C stops the run at once.
    `gym-cli runs` shows and controls the run from another terminal.
    """
    from gymmesh_cli.collect.collecting import CollectCommand, collect_tasks
    from gymmesh_cli.shared.session import MeshPlan

    if asked["stream_address"] is not None and not asked["pace"].hand_out:
        raise click.UsageError("--stream-listen serves the groups of --stream; add --stream")
    if asked["no_control"] and asked["pace"].hand_out and asked["stream_address"] is None:
        raise click.UsageError(
            "with --no-control nobody can read the groups of --stream. Remove "
            "--no-control, or add --stream-listen HOST:PORT"
        )
    plan = MeshPlan.of(mesh, agent, security)
    kept = asked_for(mesh, plan.config)
    return collect_tasks(CollectCommand(plan=plan, asked=kept, **asked))
