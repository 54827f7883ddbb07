"""verifiers as a contender: python -m … URL, by the Python of its own environment.

One process: its episodes, its interception servers, its traces as JSON lines on disk.
"""

# What it imports lies in another environment.
# mypy: disable-error-code="import-not-found,misc,untyped-decorator"

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.scale.rollout_bench import talk


async def serve(url: str, package: Path, *, plays_alone: bool) -> None:
    """Serves the bench until its input ends.

    Args:
        url: the model.
        package: the module with the task set and the harness; verifiers knows it by its name.
        plays_alone: whether a rollout needs nothing of the bench, so that one can run beforehand.
    """
    say = talk.take_stdout()
    sys.path.insert(0, str(package.parent))
    import verifiers
    import verifiers.v1 as vf

    os.environ["BENCH_KEY"] = "none"
    name = package.stem.replace("_", "-")
    config = vf.SingleAgentEnvConfig.model_validate(
        {
            "taskset": {"id": name},
            "agent": {"harness": {"id": name}, "runtime": {"type": "subprocess"}},
        }
    )
    environment = vf.load_environment(config)
    client = vf.EvalClientConfig(base_url=url, api_key_var="BENCH_KEY")
    context = vf.ModelContext(model="scripted", client=client)
    (task,) = list(environment.taskset)
    with tempfile.TemporaryDirectory() as folder:
        file = (Path(folder) / "traces.jsonl").open("a")
        async with environment.serving():

            async def one() -> None:
                (slot,) = environment.slots(task)
                episode: Any = await environment.run_slot(slot, context)
                (trace,) = episode.traces
                if not episode.ok or trace.reward != 1.0:
                    raise RuntimeError(f"a rollout failed: {episode.errors or trace.errors}")
                file.write(json.dumps(episode.model_dump(mode="json")) + "\n")
                file.flush()

            async def run(rollouts: int, in_flight: int) -> None:
                await talk.spread(rollouts, in_flight, one)

            if plays_alone:
                await one()
            await talk.answer(say, {"version": verifiers.__version__}, run)


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1], Path(__file__).with_name("bench_adder.py"), plays_alone=True))
