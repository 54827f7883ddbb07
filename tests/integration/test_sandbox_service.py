"""A sandbox service as a process, and in the process of an embedded mesh."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path
from typing import Any

import pytest

from gymmesh.errors.v1 import errors_pb2
from gymmesh.sandbox.v1 import sandbox_pb2
from gymmesh_mesh import MeshConfig, embedded
from gymmesh_mesh.service_descriptions import describe_services
from gymmesh_model.config import ModelConfig
from gymmesh_runtime.config import ConfigError
from gymmesh_runtime.errors import MeshError
from gymmesh_runtime.peers import PeerDirectory
from gymmesh_sandbox.config import SandboxConfig
from gymmesh_sandbox.service import SANDBOX_SERVICE, SandboxService
from tests.support.sandboxes import TIMEOUT, Box, new_id
from tests.support.served import Served, serve

_BACKEND = "tests.support.directory_sandboxes:DirectoryBackend"


async def _serve(folder: Path) -> Served:
    config = folder / "mesh.yaml"
    config.write_text(
        f"""
sandboxes:
  boxes:
    backend: {_BACKEND}
    options: {{folder: {folder / "boxes"}}}
    adapts: false
mesh: {{drain_s: 0.5}}
"""
    )
    return await serve("sandbox", "boxes", "--config", config, log=folder / "log")


async def _create(served: Served, directory: PeerDirectory) -> Box:
    peer: Any = directory.plain_peer(served.said["address"], SANDBOX_SERVICE)
    request = sandbox_pb2.CreateSandboxRequest(request_id=new_id())
    return Box(peer, await peer.CreateSandbox(request, timeout=TIMEOUT))


def _left(folder: Path) -> list[str]:
    return sorted(one.name for one in (folder / "boxes" / "sandboxes").iterdir())


async def test_a_killed_service_leaves_nothing_once_it_is_started_again(tmp_path: Path) -> None:
    directory = PeerDirectory()
    served = await _serve(tmp_path)
    try:
        box = await _create(served, directory)
        assert (await box.exec("echo", "hello")).stdout == b"hello\n"
        served.process.send_signal(signal.SIGKILL)
        await served.process.wait()
        assert len(_left(tmp_path)) == 1
        served = await _serve(tmp_path)
        assert _left(tmp_path) == []
        peer: Any = directory.plain_peer(served.said["address"], SANDBOX_SERVICE)
        with pytest.raises(MeshError) as refused:  # the lease is dead
            await Box(peer, box.created).exec("true")
        assert refused.value.reason == errors_pb2.ERROR_REASON_SANDBOX_NOT_FOUND
    finally:
        await directory.close()
        await served.kill()


async def test_a_service_that_goes_down_ends_its_sandboxes(tmp_path: Path) -> None:
    directory = PeerDirectory()
    served = await _serve(tmp_path)
    try:
        box = await _create(served, directory)
        process = await box.start(shell="exec sleep 600")
        listening = asyncio.create_task(box.wait(process))
        assert await served.goes_down(TIMEOUT) == 0
        with pytest.raises(MeshError):
            await listening
        assert _left(tmp_path) == []
        assert box.created.grant.lease.hex() not in served.log.read_text()
    finally:
        await directory.close()
        await served.kill()


async def test_in_a_mesh_of_one_process(tmp_path: Path) -> None:
    config = MeshConfig(
        models={"policy": ModelConfig(backend="chat", url="http://127.0.0.1:9/v1", model="m")},
        sandboxes={
            "boxes": SandboxConfig(
                backend=_BACKEND, options={"folder": str(tmp_path)}, adapts=False
            )
        },
    )
    async with embedded(config) as mesh:
        instance = await mesh.directory.pick(SANDBOX_SERVICE, "boxes")
        assert instance.meta["capacity"] == "64"
        peer = mesh.directory.peer(instance)
        request = sandbox_pb2.CreateSandboxRequest(request_id=new_id())
        box = Box(peer, await peer.CreateSandbox(request, timeout=TIMEOUT))
        assert box.created.grant.sandbox.instance_id == instance.id
        assert box.created.grant.sandbox.service == "boxes"
        assert (await box.exec("echo", "hello")).stdout == b"hello\n"
        about = await describe_services(mesh.directory)
        assert about["sandboxes"]["boxes"][0]["backend"] == "directory"


def test_a_backend_that_lacks_a_library_names_it_in_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "lacking_backend.py").write_text(
        "from gymmesh_runtime.extras import Extra\n"
        "Extra('boats', ('no_such_library',)).require('the backend', path='backend')\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ConfigError) as refused:
        SandboxService(SandboxConfig(backend="lacking_backend:Backend"), "boxes", "sandbox-boxes-0")
    assert str(refused.value) == (
        "sandboxes.boxes: backend: the backend needs no_such_library: pip install 'gymmesh[boats]'"
    )


@pytest.mark.parametrize(
    ("config", "sentence"),
    [
        ({"backend": "dokcer"}, "did you mean 'docker'?"),
        ({"backend": "nowhere.at:All"}, "cannot be imported"),
        ({"backend": "gymmesh_sandbox.timers:Clock"}, "is not a subclass"),
        ({"backend": _BACKEND}, "options.folder: is missing"),
    ],
)
def test_a_backend_that_cannot_be_used_is_one_sentence(
    config: dict[str, str], sentence: str
) -> None:
    with pytest.raises(ConfigError, match=r"sandboxes\.boxes") as refused:
        SandboxService(SandboxConfig(**config), "boxes", "sandbox-boxes-0")  # type: ignore[arg-type]  # strings
    assert sentence in str(refused.value)
