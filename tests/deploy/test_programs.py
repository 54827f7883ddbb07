"""Programs as agents, as the chart starts them: from a sandbox to the gateway of their agent."""

from __future__ import annotations

import json
import shutil
from contextlib import AsyncExitStack
from pathlib import Path

import yaml

from tests.deploy.chart import Chart
from tests.deploy.processes import GYM_CLI, Pods, run, running
from tests.support.cli import rows_of
from tests.support.optional import require

PROGRAM = """
import json, sys, urllib.request
body = json.dumps({"model": "policy", "messages": [{"role": "user", "content": "2 + 2?"}]})
headers = {"Authorization": "Bearer " + sys.argv[2], "Content-Type": "application/json"}
asked = urllib.request.Request(sys.argv[1] + "/v1/chat/completions", body.encode(), headers)
answer = json.load(urllib.request.urlopen(asked))["choices"][0]["message"]["content"]
open("answer", "w").write(answer + "\\n")
"""
TASK = {
    "task_id": "sum",
    "responses_create_params": {"input": "What is 2 + 2? Write it to the file answer."},
    "checks": [{"run": "grep -qx 4 answer"}],
}


def _values(folder: Path) -> Path:
    """What the smallest values lack: an agent that is a program, and sandboxes for it."""
    options = {"command": ["python3", "-c", PROGRAM, "{url}", "{key}"], "timeout_s": 60}
    boxes = {"places": 2, "adapts": False, "options": {"folder": str(folder / "boxes")}}
    values = {
        "agents": {"coder": {"config": {"use": "program", "options": options}, "gateway": True}},
        "environments": {
            "bench": {"config": {"use": "workspace", "sandboxes": {"sandbox": "boxes"}}}
        },
        "sandboxes": {"boxes": {"config": boxes}},
        "defaults": {"agent": "coder", "environment": "bench"},
    }
    path = folder / "programs.yaml"
    path.write_text(yaml.safe_dump(values))
    return path


async def test_a_program_in_a_sandbox_calls_the_model_at_the_gateway_of_its_agents_pod(
    chart: Chart, tmp_path: Path
) -> None:
    require(shutil.which("bwrap"), "bubblewrap", "install the Debian package bubblewrap")
    folder = tmp_path / "gymmesh"
    folder.mkdir()
    pods = Pods(chart, folder, f"--values={_values(tmp_path)}")
    # Each pod's own address stands for all addresses of a pod.
    mesh = folder / "mesh.yaml"
    assert "listen: 0.0.0.0:9402" in mesh.read_text()
    gateway = f"{pods.host('-agent-coder')}:9402"
    mesh.write_text(mesh.read_text().replace("0.0.0.0:9402", gateway))
    (tmp_path / "tasks.jsonl").write_text(json.dumps(TASK) + "\n")
    output = tmp_path / "rollouts.jsonl"
    async with AsyncExitStack() as stack:
        for service in pods.services:
            await stack.enter_async_context(running(pods.command(service), folder))
        target = f"discovery://{pods.host('-discovery')}:9400/coder"
        paths = (f"--input={tmp_path / 'tasks.jsonl'}", f"--output={output}")
        code, said = await run(*GYM_CLI, "collect", f"--agent={target}", *paths)
    assert code == 0, said
    (row,) = rows_of(output)
    assert row["reward"] == 1.0, row
    assert row["stop_reason"] == "PROGRAM_EXITED"
    assert len(row["calls"]) == 1
