"""Harbor's local containers, by Podman and podman-compose; run by the Python of its own.

Its storage is in a temporary folder; the image is the one that `make test-sandboxes` has made.
"""

# What it imports lies in another environment.
# mypy: disable-error-code="import-not-found"

from __future__ import annotations

import asyncio
import itertools
import os
import sys
import tempfile
from importlib import metadata
from pathlib import Path
from typing import Any

from tests.scale.rollout_bench import talk
from tests.scale.sandbox_bench import work

_ARCHIVE = Path(__file__).parents[3] / ".cache" / "sandboxes" / "bookworm.tar"
_IMAGE = "localhost/local/py:1"
# Machines in machines have hybrid cgroups, which crun refuses, and lower limits than usual.
_CONTAINERS = """
[engine]
runtime = "runc"
[containers]
default_ulimits = ["nofile=4096:4096", "nproc=4096:4096"]
"""
_STORAGE = """
[storage]
driver = "overlay"
graphroot = "{folder}/graph"
runroot = "{folder}/run"
"""


class Containers:
    """See Sandboxes."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._numbers = itertools.count()

    async def make(self) -> Any:
        from harbor.environments.podman import PodmanEnvironment
        from harbor.models.task.config import EnvironmentConfig
        from harbor.models.trial.paths import TrialPaths

        name = f"bench{os.getpid()}-{next(self._numbers)}"
        trial = self._folder / name
        (trial / "environment").mkdir(parents=True)
        environment = PodmanEnvironment(
            environment_dir=trial / "environment",
            environment_name="bench",
            session_id=name,
            trial_paths=TrialPaths(trial),
            task_env_config=EnvironmentConfig(docker_image=_IMAGE),
        )
        await environment.start(force_build=False)
        return environment

    async def run(self, sandbox: Any) -> None:
        result = await sandbox.exec(work.PROGRAM)
        if result.return_code:
            raise RuntimeError(f"{work.PROGRAM} ended with {result.return_code}")

    async def end(self, sandbox: Any) -> None:
        await sandbox.stop(delete=True)


async def main() -> None:
    """Serves the bench until its input ends."""
    say = talk.take_stdout()
    if not _ARCHIVE.exists():
        raise SystemExit("there is no image; `make test-sandboxes` makes it")
    os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    with tempfile.TemporaryDirectory(prefix="gymmesh-bench-") as name:
        folder = Path(name)
        for variable, content in (
            ("CONTAINERS_CONF", _CONTAINERS),
            ("CONTAINERS_STORAGE_CONF", _STORAGE.format(folder=folder)),
        ):
            file = folder / f"{variable}.toml"
            file.write_text(content)
            os.environ[variable] = str(file)
        await _podman("import", "--quiet", str(_ARCHIVE), _IMAGE)
        try:
            await work.answer(say, {"version": metadata.version("harbor")}, Containers(folder))
        finally:
            await _podman("rm", "--all", "--force", "--time", "0")
            # Its storage is a mount, which podman takes away with it.
            await _podman("system", "reset", "--force")


async def _podman(*words: str) -> None:
    process = await asyncio.create_subprocess_exec("podman", *words)
    if await process.wait():
        raise RuntimeError(f"podman {words[0]} ended with {process.returncode}")


if __name__ == "__main__":
    asyncio.run(main())
