"""The same work through the embedded mesh and the collector, rows on disk."""

from __future__ import annotations

import resource
import sys
import tempfile
import time
from pathlib import Path

import orjson

from gymmesh.rollout.v1 import rollout_pb2
from gymmesh_cli.session import connector
from gymmesh_client import CollectOptions, Collector, OutputFiles, RunIdentity, prepare
from gymmesh_mesh import MeshConfig, embedded
from gymmesh_mesh.config import Defaults
from gymmesh_model.config import ModelConfig
from gymmesh_resource.config import EnvironmentConfig
from gymmesh_responses import params_from_json
from gymmesh_runtime.loop import run

HERE = Path(__file__).parent


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def _task() -> rollout_pb2.Task:
    params = {"input": [{"role": "user", "content": "What is 2 + 3?"}]}
    return rollout_pb2.Task(
        task_id="sum",
        environment="adder",
        agent="tool_loop",
        params=params_from_json(params),
        payload_json=b'{"wanted": "5"}',
    )


async def main(url: str, count: int, concurrency: int) -> None:
    """Prints CPU milliseconds per rollout and rollouts per second."""
    config = MeshConfig(
        models={
            "policy": ModelConfig(
                backend="responses",
                url=url.removesuffix("/responses"),
                model="fake",
                max_concurrency=max(concurrency, 64),
            )
        },
        environments={"adder": EnvironmentConfig(use=f"{HERE / 'adder.py'}:Adder")},
        defaults=Defaults(environment="adder"),
    )
    with tempfile.TemporaryDirectory() as folder:
        async with embedded(config) as mesh:
            for repeats in (20, count):  # the first to warm up
                files = OutputFiles(Path(folder) / f"{repeats}.jsonl")
                output = prepare(files, RunIdentity("", ""), overwrite=False, resume=False)
                options = CollectOptions(repeats=repeats, concurrency=concurrency)
                collector = Collector(connector(mesh), output, options)
                cpu, wall = _cpu_s(), time.perf_counter()
                tally = await collector.run([_task()])
                cpu, wall = _cpu_s() - cpu, time.perf_counter() - wall
                assert tally.completed == repeats, tally
    print(orjson.dumps({"cpu_ms": cpu / count * 1e3, "per_s": count / wall}).decode())


if __name__ == "__main__":
    run(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
