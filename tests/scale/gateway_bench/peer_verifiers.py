"""verifiers as a contender: python -m … URL DRIVER, by the Python of its own environment.

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

sys.path.insert(0, str(Path(__file__).parent))  # where it finds bench_driven


async def main(url: str, driver: str) -> None:
    """Serves the bench until its input ends."""
    say = talk.take_stdout()
    import verifiers
    import verifiers.v1 as vf

    os.environ["BENCH_KEY"], os.environ["BENCH_DRIVER"] = "none", driver
    config = vf.SingleAgentEnvConfig.model_validate(
        {
            "taskset": {"id": "bench-driven"},
            "agent": {"harness": {"id": "bench-driven"}, "runtime": {"type": "subprocess"}},
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
                if not episode.ok:
                    raise RuntimeError(f"a rollout failed: {episode.errors or trace.errors}")
                file.write(json.dumps(episode.model_dump(mode="json")) + "\n")
                file.flush()

            async def run(rollouts: int, in_flight: int) -> None:
                await talk.spread(rollouts, in_flight, one)

            await talk.answer(say, {"version": verifiers.__version__}, run)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2]))
