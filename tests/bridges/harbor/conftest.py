"""Podman, for Harbor's own runner and for the Docker API, and what that runner says of each task.

All that Podman keeps is in a temporary folder, and gone with it: others of the machine may run. The
image is made of Debian's packages by tools/bridges/harbor.sh.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from tests.bridges.harbor import tasks

# Machines in machines have hybrid cgroups, which crun refuses, and lower limits than usual. Locks
# in shared memory are those of all Podmans of the machine.
_CONTAINERS: Final = """
[engine]
runtime = "runc"
lock_type = "file"
tmp_dir = "{folder}/libpod"
[network]
network_config_dir = "{folder}/networks"
[containers]
default_ulimits = ["nofile=4096:4096", "nproc=4096:4096"]
"""
_STORAGE: Final = """
[storage]
driver = "overlay"
graphroot = "{folder}/graph"
runroot = "{folder}/run"
"""
_START_S: Final = 300.0
#: What Harbor raises where tests leave no reward.
_FAULTS: Final = (
    "RewardFileNotFoundError",
    "RewardFileEmptyError",
    "VerifierOutputParseError",
    "VerifierTimeoutError",
)


@dataclass(frozen=True)
class Podman:
    """A daemon of its own. socket: its Docker API. image: an archive of the tasks' image. built:
    archives of built images, by task.
    """

    folder: Path
    env: Mapping[str, str]
    image: Path
    built: Mapping[str, Path]

    @property
    def socket(self) -> str:
        return f"unix://{self.folder}/podman.sock"


@dataclass(frozen=True)
class OwnVerdict:
    """What Harbor's runner says. rewards: None: it has none."""

    rewards: Mapping[str, float] | None
    error: str


@pytest.fixture(scope="session")
def podman(bridge_python: Path, task_folder: Path) -> Iterator[Podman]:
    with tempfile.TemporaryDirectory(prefix="gymmesh-harbor-", dir="/tmp") as name:
        folder = Path(name)
        env = {
            **os.environ,
            **tasks.VARIABLES,
            "PATH": f"{bridge_python.parent}{os.pathsep}{os.environ['PATH']}",
            "BUILDAH_ISOLATION": "chroot",
        }
        for variable, content in (
            ("CONTAINERS_CONF", _CONTAINERS.format(folder=folder)),
            ("CONTAINERS_STORAGE_CONF", _STORAGE.format(folder=folder)),
        ):
            file = folder / f"{variable}.toml"
            file.write_text(content)
            env[variable] = str(file)

        def podman(*words: str) -> None:
            subprocess.run(["podman", *words], env=env, check=True, stdout=subprocess.DEVNULL)

        log = (folder / "service.log").open("wb")
        service: subprocess.Popen[bytes] | None = None
        try:
            podman("import", "--quiet", str(bridge_python.parents[1] / "image.tar"), tasks.IMAGE)
            # bubblewrap takes archives that say what the image is.
            image = folder / "image.tar"
            podman("save", "--quiet", "--format", "oci-archive", "-o", str(image), tasks.IMAGE)
            built = {}
            for task, part in tasks.BUILT.items():
                tag = f"localhost/gymmesh/{task}:1"
                podman("build", "--quiet", "--tag", tag, str(task_folder / task / part))
                built[task] = folder / f"{task}.tar"
                podman("save", "--quiet", "--format", "oci-archive", "-o", str(built[task]), tag)
            made = Podman(folder, env, image, built)
            words = ["podman", "system", "service", "--time", "0", made.socket]
            service = subprocess.Popen(words, env=env, stdout=log, stderr=log)
            _await(folder / "podman.sock", service)
            yield made
        finally:
            if service is not None:
                service.terminate()
                service.wait(_START_S)
            log.close()
            podman("rm", "--all", "--force", "--time", "0")
            _reset(env)


def _reset(env: Mapping[str, str]) -> None:
    """Take Podman's storage away, which is a mount. Clean-ups of containers that just ended still
    write to it, so that a first try may find a folder that isn't empty.
    """
    deadline = time.monotonic() + _START_S
    words = ["podman", "system", "reset", "--force"]
    while True:
        done = subprocess.run(words, env=env, check=False, capture_output=True, text=True)
        if done.returncode == 0:
            return
        assert time.monotonic() < deadline, done.stderr
        time.sleep(1.0)


def _await(socket: Path, service: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + _START_S
    while not socket.exists():
        assert service.poll() is None, "podman's service has ended"
        assert time.monotonic() < deadline, "podman's service does not answer"
        time.sleep(0.1)


@pytest.fixture(scope="session")
def task_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with all tasks."""
    place = tmp_path_factory.mktemp("tasks")
    tasks.write_tasks(place)
    return place


@pytest.fixture(scope="session")
def own_verdicts(
    request: pytest.FixtureRequest, bridge_python: Path, podman: Podman, task_folder: Path
) -> Mapping[tuple[str, str], OwnVerdict]:
    """What Harbor's runner says, by agent and task, of those that the tests of this run ask for. A
    trial takes ten seconds and more, so what it said of the same files is kept beside the runner.
    """
    runner = Path(__file__).with_name("own_runner.py")
    kept = bridge_python.parents[1] / "verdicts"
    kept.mkdir(exist_ok=True)
    ran = Path(__file__).parents[3] / "tools/bridges/harbor.lock.txt"
    files = {
        (agent, name): kept / f"{_digest(ran, runner, task_folder / name)}-{agent}.json"
        for agent, name in _asked_for(request.session.items)
    }
    missing = {f"{agent}={task_folder / name}": file for (agent, name), file in files.items()
               if not file.exists()}  # fmt: skip
    log = podman.folder / "runner.log"
    with log.open("wb") as errors:
        words = [str(bridge_python), str(runner), str(podman.folder / "trials"), *missing]
        with subprocess.Popen(
            words, env=podman.env, stdout=subprocess.PIPE, stderr=errors
        ) as process:
            assert process.stdout is not None
            for line in process.stdout:
                said = json.loads(line)
                if said["error"] and not said["error"].startswith(_FAULTS):
                    continue  # no verdict: the machine, or Podman, was too slow
                files[said["agent"], said["task"]].write_bytes(line)
    assert all(file.exists() for file in files.values()), log.read_text()[-4000:]
    verdicts = {key: json.loads(file.read_bytes()) for key, file in files.items()}
    return {key: OwnVerdict(said["rewards"], said["error"]) for key, said in verdicts.items()}


def _asked_for(items: list[pytest.Item]) -> list[tuple[str, str]]:
    """Agents and tasks of parametrized tests; all where a test has no parameters."""
    trials = [
        (str(item.callspec.params["agent"]), str(item.callspec.params["name"]))
        for item in items
        if isinstance(item, pytest.Function) and item.get_closest_marker("parametrize")
    ]
    if len(trials) == len(items):
        return list(dict.fromkeys(trials))
    return [(agent, name) for agent in ("oracle", "nop") for name in tasks.NAMES]


def _digest(*sources: Path) -> str:
    """Of files, and of all that is in folders."""
    found = hashlib.sha256()
    for source in sources:
        for path in sorted(source.rglob("*")) if source.is_dir() else [source]:
            if path.is_file():
                name = path.relative_to(source).as_posix()
                found.update(f"{name}\0".encode() + path.read_bytes() + b"\0")
    return found.hexdigest()[:24]
