"""The conformance suite against a sandbox service on each daemon, as `gym-cli` runs both."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

import pytest
import yaml

from tests.sandboxes.engines import Daemon

# Seventy cases and more, each with a sandbox of its own, on a machine that does much else.
pytestmark = pytest.mark.timeout(1200)
_CLI = (sys.executable, "-m", "gymmesh_cli")
_SERVING_S = 120.0


async def test_conformance(daemon: Daemon, tmp_path: Path) -> None:
    section = {
        "backend": "docker",
        "places": 16,
        "adapts": False,
        "default_resources": {"memory_bytes": 256 << 20, "pids": 128},
        "options": daemon.options,
    }
    config = tmp_path / "mesh.yaml"
    config.write_text(yaml.safe_dump({"sandboxes": {"boxes": section}}))
    profile = tmp_path / "profile.yaml"
    profile.write_text(
        yaml.safe_dump({"python": "python3", "other_user": "nobody", "hostile": True})
    )
    server = await asyncio.create_subprocess_exec(
        *_CLI, "serve", "sandbox", "boxes", "--config", str(config),
        stdout=asyncio.subprocess.PIPE, stderr=(tmp_path / "serve.log").open("wb"),
    )  # fmt: skip
    try:
        assert server.stdout is not None
        async with asyncio.timeout(_SERVING_S):
            line = (await server.stdout.readline()).decode()
        assert " is SERVING at " in line, (tmp_path / "serve.log").read_text()
        address = line.split(" is SERVING at ")[1].split()[0]
        suite = await asyncio.create_subprocess_exec(
            *_CLI, "conformance", "--service", "sandbox", "--target", address,
            "--profile", str(profile), "--json",
            stdout=asyncio.subprocess.PIPE,
        )  # fmt: skip
        said, _ = await suite.communicate()
    finally:
        server.terminate()
        await server.wait()
    results = json.loads(said)
    failed = [one for one in results if one["outcome"] not in ("passed", "skipped")]
    assert not failed, json.dumps(failed, indent=1)
    assert suite.returncode == 0
    assert len(results) > 60
