"""A mesh whose agent has the bench play its programs: python -m … URL DRIVER LAYOUT.

Every event is delivered, and the row and the journal are on disk, as for any rollout.
"""

from __future__ import annotations

import sys
import tempfile
from functools import partial
from pathlib import Path

import msgspec

from gymmesh.rollout.v1 import rollout_pb2
from gymmesh_agent.config import AgentConfig
from gymmesh_mesh import MeshConfig
from gymmesh_model.config import ModelConfig
from gymmesh_responses import params_from_json
from gymmesh_runtime.serving.loop import run
from tests.scale.rollout_bench import talk
from tests.scale.rollout_bench.ours import collect, configuration, opened

HERE = Path(__file__).parent
AGENT = "driven"


def task() -> rollout_pb2.Task:
    """The one task."""
    params = {"input": [{"role": "user", "content": "Repair the lookup."}]}
    return rollout_pb2.Task(
        task_id="lookup",
        environment="adder",
        agent=AGENT,
        params=params_from_json(params),
        payload_json=b'{"wanted": "lookup"}',
    )


def driven(url: str, driver: str, layout: str) -> MeshConfig:
    """A mesh with the driven agent and a model at `url`."""
    use = f"{HERE / 'driven.py'}:DrivenAgent"
    agent = AgentConfig(use=use, options={"driver": driver}, max_steps=None)
    model = ModelConfig(backend="chat", url=url, model="scripted", max_concurrency=20_000)
    plain = configuration(url, layout)
    return msgspec.structs.replace(plain, agents={AGENT: agent}, models={"policy": model})


async def main(url: str, driver: str, layout: str) -> None:
    """Serves the bench until its input ends."""
    say = talk.take_stdout()
    with tempfile.TemporaryDirectory() as folder:
        async with opened(driven(url, driver, layout)) as mesh:
            await talk.answer(say, {}, partial(collect, mesh, Path(folder), of=task()))


if __name__ == "__main__":
    run(main(sys.argv[1], sys.argv[2], sys.argv[3]))
