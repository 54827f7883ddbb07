"""Rewards of task folders, by their solutions and by nothing, as Harbor's own runner gives them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Final, Literal

import pytest

from gymmesh.errors.v1 import errors_pb2
from gymmesh.rollout.v1 import rollout_pb2
from gymmesh_mesh.compose import open_here
from gymmesh_resource.config import EnvironmentConfig
from gymmesh_resource.environments.harbor import HarborEnvironment
from gymmesh_resource.environments.harbor.folders import filled_in
from gymmesh_resource.environments.harbor.solution import solution_calls
from gymmesh_resource.environments.harbor.task_toml import read_harbor
from gymmesh_resource.service import ResourceService
from gymmesh_runtime.errors import MeshError
from gymmesh_runtime.peers import PeerDirectory
from gymmesh_sandbox.config import SandboxConfig
from gymmesh_sandbox.service import SandboxService
from tests.bridges.harbor import tasks
from tests.bridges.harbor.conftest import OwnVerdict, Podman
from tests.unit.resource.served import Served, task

# The first test waits for Harbor's runner, which has ten seconds and more for each of 88 trials.
pytestmark = pytest.mark.timeout(3600)
Backend = Literal["bubblewrap", "docker"]
AGENTS: Final = ("oracle", "nop")
FAULTS: Final = (
    errors_pb2.ERROR_REASON_VERIFIER_FAULT,
    errors_pb2.ERROR_REASON_VERIFIER_TIMEOUT,
)


@asynccontextmanager
async def served(podman: Podman, folder: Path, place: Path, backend: Backend) -> (
    AsyncIterator[Served]
):  # fmt: skip
    """The environment over a sandbox service with this backend."""
    images: dict[str, str] = {}
    options: dict[str, Any]
    if backend == "docker":
        options = {
            "url": podman.socket,
            "default_image": tasks.IMAGE,
            "ulimits": {"nofile": 4096, "nproc": 4096},
            "build_network": "host",
        }
    else:
        images = {tasks.IMAGE: "base"}
        for name, part in tasks.BUILT.items():
            images[name if part == "environment" else f"{name}/{part}"] = name
        archives = {"base": podman.image, **podman.built}
        options = {
            "folder": str(place),
            "images": {name: str(path) for name, path in archives.items()},
        }
    environment = HarborEnvironment(
        tasks=str(folder),
        images=images,
        network="none",
        variables=tasks.VARIABLES,
        shell_timeout_s=60.0,
        keep_running=tasks.KEEPING,
        storage_limit=backend == "bubblewrap",
    )
    directory = PeerDirectory()
    async with AsyncExitStack() as stack:
        stack.push_async_callback(directory.close)
        config = SandboxConfig(backend=backend, adapts=False, places=4, options=options)
        await open_here(SandboxService(config, "sandbox", "sandbox-0"), directory, stack)
        settings = EnvironmentConfig(
            use="harbor",
            tool_timeout_s=90,
            turn_timeout_s=300,
            verify_timeout_s=300,
            sandboxes={"sandbox": "sandbox"},
        )
        service = ResourceService(settings, "e", "e-0", environment=environment)
        await service.open(directory)
        stack.push_async_callback(service.close)
        yield Served(service, directory)


async def played(resource: Served, folder: Path, agent: str) -> rollout_pb2.Verification:
    """The verdict on each step's solution, or on no work at all."""
    of, read = task(harbor=folder.name), read_harbor(folder)
    session = (await resource.create(of)).session_id
    try:
        for number, step in enumerate(read.steps, start=1):
            if agent == "oracle":
                env = filled_in(read.solution_env, tasks.VARIABLES, "solution.env")
                for name, arguments in solution_calls(step, env):
                    await resource.call(session, name, arguments)
            if number < len(read.steps) and (await resource.turn(session)).done:
                break
        return await resource.verify(session, of)
    finally:
        await resource.close(session)


@pytest.mark.parametrize("backend", ["bubblewrap", "docker"])
@pytest.mark.parametrize("agent", AGENTS)
@pytest.mark.parametrize("name", tasks.NAMES)
async def test_the_reward_is_that_of_harbors_own_runner(
    podman: Podman,
    own_verdicts: Mapping[tuple[str, str], OwnVerdict],
    task_folder: Path,
    tmp_path_factory: pytest.TempPathFactory,
    name: str,
    agent: str,
    backend: Backend,
) -> None:
    own = own_verdicts[agent, name]
    # Images are unpacked once.
    place = tmp_path_factory.getbasetemp() / "sandboxes"
    async with served(podman, task_folder, place, backend) as resource:
        if own.error:
            # Harbor leaves a step without a reward out of the mean; here nothing is made of it.
            with pytest.raises(MeshError) as raised:
                await played(resource, task_folder / name, agent)
            assert raised.value.reason in FAULTS, own.error
            return
        verdict = await played(resource, task_folder / name, agent)
    assert own.rewards is not None
    assert verdict.reward == pytest.approx(own.rewards["reward"])
    components = {one.name: one.value for one in verdict.components}
    assert components == pytest.approx(dict(own.rewards))


def test_the_tasks_tell_work_from_nothing(
    own_verdicts: Mapping[tuple[str, str], OwnVerdict],
) -> None:
    told = [
        name
        for name in tasks.NAMES
        if own_verdicts["oracle", name].rewards != own_verdicts["nop", name].rewards
    ]
    assert len(told) >= 25, {key: one.error for key, one in own_verdicts.items() if one.error}
