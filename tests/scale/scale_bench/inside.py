"""Memory of rollouts that wait for a model without a socket.

    python -m tests.scale.scale_bench.inside ROLLOUTS

Parks so many in one process, the embedded mesh and its collector, in a model call that its backend
holds: more than one process may have connections. Prints KB of 1e3 bytes (PSS) for each.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

import msgspec

from gymmesh.model.v1 import model_pb2
from gymmesh.responses.v1 import responses_pb2
from gymmesh_client import CollectOptions, Collector, OutputFiles, RunIdentity, RunOutput
from gymmesh_mesh import Mesh, embedded
from gymmesh_model import ModelConfig
from gymmesh_model.backends.base import Backend, BackendCall, Features
from gymmesh_responses import response_from_json
from gymmesh_runtime.serving.loop import run
from tests.scale.rollout_bench import usage
from tests.scale.rollout_bench.contender import ROOT
from tests.scale.rollout_bench.ours import configuration, task

ROLLOUTS: Final = 65_536
_BOUND_S: Final = 900


class Holding(Backend):
    """A backend that answers nothing before `go` is set."""

    endpoint_model = "holding"
    calls_endpoint = False
    features = Features()
    capabilities = model_pb2.ModelCapabilities(tools=True, abort=True)
    go = asyncio.Event()
    held = 0

    def __init__(self, name: str, config: Any) -> None:
        pass

    async def create(self, call: BackendCall) -> responses_pb2.Response:
        """The end of the rollout."""
        Holding.held += 1
        await Holding.go.wait()
        content = [{"type": "output_text", "text": "The sum is 5", "annotations": []}]
        said = {"type": "message", "role": "assistant", "status": "completed", "content": content}
        return response_from_json(
            {
                "id": "resp_1",
                "object": "response",
                "status": "completed",
                "output": [said],
                "usage": {"input_tokens": 40, "output_tokens": 12, "total_tokens": 52},
            }
        )


async def _collect(mesh: Mesh, rows: Path, rollouts: int) -> None:
    output = RunOutput.open(OutputFiles(rows), RunIdentity("", ""))
    options = CollectOptions(repeats=rollouts, concurrency=rollouts)

    async def connect(name: str) -> Any:
        return await mesh.agents.connect(name, held=True)

    tally = await Collector(connect, output, options, stored=mesh.agents.stored).run([task()])
    assert tally.completed == rollouts, tally


async def main(rollouts: int) -> None:
    """Prints the figure."""
    plain = configuration("http://127.0.0.1:9", "embedded")
    model = ModelConfig(backend=f"{__name__}:Holding", max_concurrency=2 * rollouts)
    config = msgspec.structs.replace(plain, models={"policy": model})
    with tempfile.TemporaryDirectory() as folder:
        async with embedded(config) as mesh:
            Holding.go.set()
            await _collect(mesh, Path(folder) / "first.jsonl", 200)
            Holding.go.clear()
            Holding.held = 0
            before_mb = usage.pss_mb([os.getpid()])
            going = asyncio.create_task(_collect(mesh, Path(folder) / "rows.jsonl", rollouts))
            while Holding.held < rollouts and not going.done():  # noqa: ASYNC110  # nobody tells
                await asyncio.sleep(0.1)
            parked_mb = usage.pss_mb([os.getpid()])
            Holding.go.set()
            await going
    print(json.dumps({"kb": (parked_mb - before_mb) * 1e3 / rollouts, "mb": parked_mb}))


def measure(rollouts: int = ROLLOUTS) -> dict[str, float]:
    """The figures."""
    command = [sys.executable, "-m", "tests.scale.scale_bench.inside", str(rollouts)]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, timeout=_BOUND_S, check=True)
    figures: dict[str, float] = json.loads(done.stdout)
    return figures


def report(found: dict[str, float], rollouts: int = ROLLOUTS) -> str:
    """Part of the page's section."""
    return (
        f"Part `inside`: {rollouts:,} rollouts waited in one process, for a model in the same "
        f"process. Each rollout took {found['kb']:.1f} KB of memory, all rollouts together "
        f"{found['mb']:.0f} MB."
    )


if __name__ == "__main__":
    # As a module of its own name: the backend is found by it.
    from tests.scale.scale_bench import inside as here

    run(here.main(int(sys.argv[1])))
