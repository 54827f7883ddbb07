"""gym-cli collect: its options. What it does is in `collecting`, imported when it runs."""

from __future__ import annotations

from typing import Any

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
    track_options,
)
from gymmesh_cli.terminal import log_format_option


class CollectOptionsCommand(RemembersArguments):
    """A command that must be given its tasks in one of several ways."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        rest = super().parse_args(ctx, args)
        given = (
            ctx.params.get(name) for name in ("tasks", "config", "environment_place", "resume")
        )
        if not ctx.resilient_parsing and not any(given):
            raise click.UsageError(
                "Which tasks? Give a task file with --input, or the file of an environment with "
                "examples of its own, such as desk.py.",
                ctx,
            )
        return rest


@click.command(cls=CollectOptionsCommand)
@place_argument
@mesh_options
@agent_option
@security_options
@click.option(
    "--input",
    "-i",
    "tasks",
    type=FILE,
    help="Tasks as JSON lines; NeMo Gym's task rows are taken as they are. By default the examples "
    "of the environment.",
)
@output_options
@pace_options
@click.option("--limit", type=click.IntRange(min=1), help="Use only the first tasks of the file.")
@shard_options
@skip_invalid_option
@number_ids_option
@other_agents_option
@click.option(
    "--metrics-port",
    type=click.IntRange(min=0, max=65535),
    metavar="PORT",
    help="Serve Prometheus metrics of this process on 127.0.0.1; 0: the system chooses the port, "
    "which is said on stderr.",
)
@track_options
@click.option(
    "--no-control",
    is_flag=True,
    help="Do not let `gym-cli runs` of the same user look at the run and steer it.",
)
@click.option("--quiet", "-q", is_flag=True, help="No progress.")
@log_format_option
@json_option
def collect(
    mesh: MeshOptions, agent: tuple[str, ...], security: SecurityOptions, **asked: Any
) -> int:
    """Collect verified rollouts of a task file, or of an environment's own examples.

    \b
    An environment in one file, with its examples:
      gym-cli collect desk.py --model-url http://127.0.0.1:8000/v1 --model my-model
    A task, and its rollout with the small model that comes with gymmesh:
      echo '{"prompt": "What is 17 * 23?", "expected_answer": "391"}' > tasks.jsonl
      gym-cli collect --input tasks.jsonl --output rollouts.jsonl
    Four rollouts per task, with an endpoint of your own:
      gym-cli collect -i tasks.jsonl -o rollouts.jsonl -n 4 \\
          --model-url http://127.0.0.1:8000/v1 --model my-model
    With an API key, read from the environment:
      gym-cli collect … --set 'models.policy.api_key=${OPENAI_API_KEY}'
    Over gRPC, with a mesh started by `gym-cli up`:
      gym-cli collect -i tasks.jsonl -o rollouts.jsonl --agent 127.0.0.1:9400
    A quarter of the tasks, the first of four shards (`gym-cli runs merge` joins them):
      gym-cli collect … -o shards/0/rollouts.jsonl --run-id night-7 --shard 0/4
    Resume after an interruption, or run again what failed; the output alone is enough:
      gym-cli collect --resume -o rollouts.jsonl
      gym-cli collect --resume -o rollouts.jsonl --retry failed

    A rollout that failed is never a reward of 0: it goes to the failures file with its cause.
    Ctrl-C once lets rollouts in flight end within --grace, twice stops at once; `gym-cli runs`
    looks at the run and steers it from another terminal.
    """
    from gymmesh_cli.collect.collecting import CollectCommand, collect_tasks
    from gymmesh_cli.shared.session import MeshPlan

    plan = MeshPlan.of(mesh, agent, security)
    kept = asked_for(mesh, plan.config)
    return collect_tasks(CollectCommand(plan=plan, asked=kept, **asked))
