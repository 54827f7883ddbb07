"""What becomes of containers when something outside of the service fails."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import aiodocker
import pytest

from gymmesh.sandbox.v1 import files_pb2, sandbox_pb2
from gymmesh_runtime.config import ConfigError
from gymmesh_runtime.errors import MeshError
from gymmesh_sandbox.backends.docker import DockerBackend
from tests.sandboxes.containers import argv, outcome, reason, run, running, shell, spec
from tests.sandboxes.engines import Daemon
from tests.sandboxes.proxy import CutProxy

_PATIENCE_S = 60.0
# Of this run alone: what an earlier one left is not its own.
CUT, UNTOLD, KILLED, CANCELLED, FIFTY = (
    f"{name}-{os.getpid()}" for name in ("cut", "untold", "killed", "cancelled", "fifty")
)


async def containers(daemon: Daemon, instance_id: str) -> list[str]:
    """The containers of an instance, running or not."""
    docker = aiodocker.Docker(daemon.url)
    try:
        label = f'{{"label": ["gymmesh.instance={instance_id}"]}}'
        return [one.id for one in await docker.containers.list(all="true", filters=label)]
    finally:
        await docker.close()


async def no_containers(daemon: Daemon, instance_id: str) -> None:
    """Waits until none is left."""
    for _ in range(int(_PATIENCE_S / 0.2)):
        found = await containers(daemon, instance_id)
        if not found:
            return
        await asyncio.sleep(0.2)
    pytest.fail(f"left: {found}")


async def test_a_container_that_is_killed_is_a_lost_sandbox(
    backend: DockerBackend, daemon: Daemon
) -> None:
    async with running(backend) as sandbox:
        process = await sandbox.start(shell("sleep 600"))
        docker = aiodocker.Docker(daemon.url)
        try:
            await docker.containers.container(sandbox.container.id).kill(signal="KILL")
        finally:
            await docker.close()
        async with asyncio.timeout(_PATIENCE_S):
            assert "137" in await sandbox.wait_lost()
            for call in (
                outcome(process, None),
                sandbox.start(argv("true")),
                sandbox.write_file(files_pb2.FileContent(path=b"a"), sandbox.user),
                sandbox.resolve(b"a", sandbox.user),
            ):
                with pytest.raises(MeshError) as caught:
                    await call
                assert reason(caught) == "SANDBOX_LOST"


async def test_a_container_that_is_removed_is_a_lost_sandbox(
    backend: DockerBackend, daemon: Daemon
) -> None:
    async with running(backend) as sandbox:
        docker = aiodocker.Docker(daemon.url)
        try:
            await docker.containers.container(sandbox.container.id).delete(force=True)
        finally:
            await docker.close()
        async with asyncio.timeout(_PATIENCE_S):
            assert await sandbox.wait_lost()


async def test_a_daemon_that_goes_away_and_comes_back(daemon: Daemon, tmp_path: Path) -> None:
    proxy = CutProxy(tmp_path / "d", daemon.url.removeprefix("unix://"))
    await proxy.start()
    backend = DockerBackend({**daemon.options, "url": proxy.url})
    await backend.open()
    try:
        sandbox = await backend.create(spec(instance_id=CUT))
        process = await sandbox.start(shell("sleep 600"))
        proxy.cut()
        async with asyncio.timeout(_PATIENCE_S):
            assert await sandbox.wait_lost() == "the daemon is unreachable"
            with pytest.raises(MeshError) as caught:
                await outcome(process, None)
            assert reason(caught) == "SANDBOX_LOST"
            with pytest.raises(MeshError) as caught:
                await sandbox.start(argv("true"))
            assert reason(caught) == "SANDBOX_LOST"
            await sandbox.end()
            assert await containers(daemon, CUT), "nobody could end it"
            await proxy.start()
            await no_containers(daemon, CUT)
            async with running(backend, instance_id=CUT) as another:
                assert (await run(another, argv("echo", "hi")))[1] == b"hi\n"
    finally:
        await backend.close()
        proxy.cut()


async def test_a_container_of_which_the_daemon_could_not_tell_is_removed(
    daemon: Daemon, tmp_path: Path
) -> None:
    proxy = CutProxy(tmp_path / "d", daemon.url.removeprefix("unix://"))
    await proxy.start()
    backend = DockerBackend({**daemon.options, "url": proxy.url})
    await backend.open()
    try:
        async with running(backend, instance_id=UNTOLD) as known:
            proxy.lost = b"/containers/create"
            making = asyncio.ensure_future(backend.create(spec(instance_id=UNTOLD)))
            async with asyncio.timeout(_PATIENCE_S):
                while len(await containers(daemon, UNTOLD)) < 2:  # noqa: ASYNC110 - nothing tells
                    await asyncio.sleep(0.05)
            proxy.cut()
            with pytest.raises(MeshError) as caught:
                await making
            assert reason(caught) == "SANDBOX_LOST"
            await proxy.start()
            async with asyncio.timeout(_PATIENCE_S):
                while await containers(daemon, UNTOLD) != [known.container.id]:  # noqa: ASYNC110
                    await asyncio.sleep(0.05)
    finally:
        await backend.close()
        proxy.cut()


async def test_no_daemon(tmp_path: Path) -> None:
    backend = DockerBackend({"url": f"unix://{tmp_path}/none"})
    with pytest.raises(ConfigError, match="No daemon of Docker or Podman answers at unix:///"):
        await backend.open()
    await backend.close()


async def test_a_service_that_is_killed_leaves_what_the_next_one_ends(daemon: Daemon) -> None:
    script = f"""
import asyncio, os
from gymmesh_sandbox.backends.docker import DockerBackend
from tests.sandboxes.containers import shell, spec
async def main():
    backend = DockerBackend({daemon.options!r})
    await backend.open()
    sandbox = await backend.create(spec(instance_id={KILLED!r}))
    await sandbox.start(shell("sleep 600"))
    print("ready", flush=True)
    os.kill(os.getpid(), 9)
asyncio.run(main())
"""
    done = await asyncio.to_thread(
        subprocess.run, [sys.executable, "-c", script], capture_output=True, check=False
    )
    assert (done.stdout, done.returncode) == (b"ready\n", -9), done.stderr
    assert len(await containers(daemon, KILLED)) == 1
    backend = DockerBackend(daemon.options)
    await backend.open()
    try:
        assert await backend.end_leftovers(KILLED) == 1
        assert not await containers(daemon, KILLED)
    finally:
        await backend.close()


async def test_a_sandbox_whose_life_is_over_ends_without_the_service(
    backend: DockerBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gymmesh_sandbox.backends.docker.backend._LIFE_MARGIN_S", 1)
    async with running(backend, resources=sandbox_pb2.Resources(life_s=1)) as sandbox:
        async with asyncio.timeout(_PATIENCE_S):
            assert await sandbox.wait_lost() == "its lifetime is over"


async def test_a_creation_that_is_cancelled_leaves_nothing(daemon: Daemon) -> None:
    backend = DockerBackend(daemon.options)
    await backend.open()
    try:
        for pause in (0.0, 0.05, 0.2, 0.4):
            task = asyncio.ensure_future(backend.create(spec(instance_id=CANCELLED)))
            await asyncio.sleep(pause)
            task.cancel()
            await asyncio.wait((task,))
            if not task.cancelled():
                await task.result().end()
        # What was cancelled while the daemon made it may be made yet.
        await no_containers(daemon, CANCELLED)
    finally:
        await backend.close()


async def test_fifty_at_a_time(daemon: Daemon) -> None:
    backend = DockerBackend(daemon.options)
    await backend.open()

    async def one(number: int) -> None:
        async with running(backend, instance_id=FIFTY) as sandbox:
            _, out, _ = await run(sandbox, shell(f"echo {number}; cat"), b"in")
            assert out == f"{number}\nin".encode()

    try:
        async with asyncio.TaskGroup() as group:
            for number in range(50):
                group.create_task(one(number))
        assert not await containers(daemon, FIFTY)
    finally:
        await backend.close()
