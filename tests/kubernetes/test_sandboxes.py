"""Sandboxes as pods: objects, ends and failures by the real API server, programs by a stand-in for
the node.
"""

from __future__ import annotations

import asyncio
import io
import os
import tarfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from gymmesh.errors.v1 import errors_pb2
from gymmesh.sandbox.v1 import files_pb2, process_pb2, sandbox_pb2
from gymmesh_runtime.config import ConfigError
from gymmesh_runtime.errors import MeshError
from gymmesh_sandbox.backends import ProcessEnded, RunningProcess, SandboxSpec, Stream
from gymmesh_sandbox.backends.base import OUT_OF_MEMORY
from gymmesh_sandbox.backends.kubernetes import KubernetesBackend
from tests.kubernetes.cluster import STRANGER, Cluster
from tests.kubernetes.node import Node, container, running_node

LONG_S: Final = 60.0
HANDLES: Final = "trap 'echo got; exit 5' TERM; echo on; sleep 600 & wait"
IGNORES: Final = """trap '' TERM INT HUP
setsid sleep 600 & (sleep 600 &); echo on
while :; do sleep 1; done"""
OPEN: Final = sandbox_pb2.Network(open=sandbox_pb2.OpenNetwork())


def spec(number: int = 0, **changes: Any) -> SandboxSpec:
    values: dict[str, Any] = {
        "sandbox_id": f"sb-{number}",
        "instance_id": "tests",
        "root": "registry.test/image:1",
        "resources": sandbox_pb2.Resources(memory_bytes=64 << 20, cpu_millis=500, life_s=600),
        "network": OPEN,
    }
    return SandboxSpec(**(values | changes))


@asynccontextmanager
async def opened(node: Node, namespace: str, **options: Any) -> AsyncIterator[KubernetesBackend]:
    backend = KubernetesBackend({"server": node.server, "namespace": namespace} | options)
    await backend.open()
    try:
        yield backend
    finally:
        await backend.close()


def shell(line: str, **values: Any) -> process_pb2.ProcessSpec:
    return process_pb2.ProcessSpec(shell=line, **values)


async def finished(process: RunningProcess) -> tuple[ProcessEnded, bytes, bytes]:
    said = {Stream.STDOUT: b"", Stream.STDERR: b""}
    async with asyncio.timeout(LONG_S):
        async for stream, piece in process.output():
            said[stream] += piece
        return await process.wait(), said[Stream.STDOUT], said[Stream.STDERR]


async def pods(cluster: Cluster, namespace: str) -> list[dict[str, Any]]:
    found = await cluster.ask("GET", f"/api/v1/namespaces/{namespace}/pods")
    items: list[dict[str, Any]] = found["items"]
    return items


async def test_a_sandbox_is_a_pod_of_the_restricted_standard(
    cluster: Cluster, namespace: str
) -> None:
    enforce = {"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "restricted"}}}
    await cluster.ask("PATCH", f"/api/v1/namespaces/{namespace}", enforce, "merge")
    async with running_node(cluster, namespace) as node, opened(node, namespace) as backend:
        sandbox = await backend.create(spec(labels={"team": "a b"}))
        (pod,) = await pods(cluster, namespace)
        assert pod["metadata"]["labels"]["gymmesh.io/sandbox"] == "sb-0"
        assert pod["metadata"]["labels"]["gymmesh.io/instance"] == "tests"
        assert pod["spec"]["automountServiceAccountToken"] is False
        assert pod["spec"]["activeDeadlineSeconds"] == 660
        resources = pod["spec"]["containers"][0]["resources"]
        assert (
            resources["limits"]
            == resources["requests"]
            == {
                "memory": str(64 << 20),
                "cpu": "500m",
            }
        )
        assert (sandbox.user, sandbox.workdir) == ("65534", "/mnt")
        assert sandbox.image_digest == "sha256:" + "a" * 64
        await sandbox.end()
        await sandbox.end()
        assert await pods(cluster, namespace) == []


async def test_processes(cluster: Cluster, namespace: str) -> None:
    async with running_node(cluster, namespace) as node, opened(node, namespace) as backend:
        sandbox = await backend.create(spec(env={"A": "secret-of-a"}))
        line = 'printf "%s %s %s\\n" "$A" "$B" "$IMAGE"; id -u; pwd; cat; echo wrong >&2; exit 3'
        process = await sandbox.start(shell(line, env={"B": "b'\n\\c"}, cwd="/tmp"))
        await process.write(b"in\xffput" * 30_000)
        await process.close_stdin()
        ended, said, wrong = await finished(process)
        assert (ended, wrong) == (ProcessEnded(exit_code=3), b"wrong\n")
        assert said == b"secret-of-a b'\n\\c yes\n65534\n/tmp\n" + b"in\xffput" * 30_000
        # What the API server writes to its logs.
        assert not any("secret" in one for one in node.requests)

        words = process_pb2.Argv(words=[b"printf", b"%s|", b"\xff", b"", b"a\n\n", b"-n", b"%b\\0"])
        _, said, _ = await finished(await sandbox.start(process_pb2.ProcessSpec(argv=words)))
        assert said == b"\xff||a\n\n|-n|%b\\0|"
        for missing, code in ((b"no-such-program", 127), (b"/tmp", 126)):
            argv = process_pb2.Argv(words=[missing])
            ended, _, wrong = await finished(
                await sandbox.start(process_pb2.ProcessSpec(argv=argv))
            )
            assert ended.exit_code == code
            assert wrong
        with pytest.raises(MeshError, match=r"process\.env"):
            await sandbox.start(shell("true", env={"A.B": "1"}))
        # The one that nobody reads to the end, and one that leaves a descendant with its streams.
        process = await sandbox.start(shell("sleep 600 & echo on; exit 4"))
        ended, said, _ = await finished(process)
        assert (ended.exit_code, said) == (4, b"on\n")
        await sandbox.end()


async def test_signals_reach_descendants(cluster: Cluster, namespace: str) -> None:
    async with running_node(cluster, namespace) as node, opened(node, namespace) as backend:
        sandbox = await backend.create(spec())
        for number in (2, 15, 9):
            process = await sandbox.start(shell("exec sleep 600"))
            await process.signal(number, descendants=False)
            ended, _, wrong = await finished(process)
            assert (ended, wrong) == (ProcessEnded(signal=number), b"")
        handled = await sandbox.start(
            shell("trap 'echo got; exit 5' TERM; echo on; sleep 600 & wait")
        )
        reading = handled.output()
        assert (await anext(reading))[1] == b"on\n"
        await handled.signal(15, descendants=True)
        assert [piece async for _, piece in reading] == [b"got\n"]
        assert await handled.wait() == ProcessEnded(exit_code=5)
        # Ignores what it can, and leaves its session.
        stubborn = await sandbox.start(shell(IGNORES))
        beside = await sandbox.start(shell("echo on; exec cat"))
        reading = stubborn.output()
        assert (await anext(reading))[1] == b"on\n"
        await stubborn.signal(9, descendants=True)
        assert (await stubborn.wait()).signal == 9
        async for _ in reading:  # its shell may say that a program of its own was killed
            pass
        left = await sandbox.start(shell("grep -l sleep /proc/[0-9]*/comm | wc -l"))
        # The pod's own first process sleeps as well.
        assert (await finished(left))[1].strip() == b"1"
        await beside.close_stdin()
        assert (await finished(beside))[:2] == (ProcessEnded(exit_code=0), b"on\n")
        await sandbox.end()


async def test_files_and_archives(cluster: Cluster, namespace: str, tmp_path: Path) -> None:
    async with running_node(cluster, namespace) as node, opened(node, namespace) as backend:
        sandbox = await backend.create(spec())
        content = os.urandom(300_000)
        await sandbox.write_file(
            files_pb2.FileContent(path=b"new/a\xff", content=content), sandbox.user
        )
        read = b"".join(
            [piece async for piece in sandbox.read_file(b"new/a\xff", 5, 0, sandbox.user)]
        )
        assert read == content[5:]
        info = await sandbox.file_info(b"new/a\xff", sandbox.user)
        assert (info.path, info.size, info.uid) == (b"/mnt/new/a\xff", 300_000, 65534)
        with pytest.raises(MeshError, match="no file") as missing:
            await sandbox.file_info(b"none", sandbox.user)
        assert missing.value.reason == errors_pb2.ERROR_REASON_SANDBOX_FILE_NOT_FOUND
        packed = b"".join(
            [
                piece
                async for piece in sandbox.read_archive(
                    b"new", files_pb2.ARCHIVE_FORMAT_TAR_GZIP, sandbox.user, 1 << 20
                )
            ]
        )
        (tmp_path / "a.tar.gz").write_bytes(packed)
        with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
            assert [one.size for one in archive if one.isfile()] == [300_000]
        await sandbox.write_archive(
            b"copy/deep",
            str(tmp_path / "a.tar.gz"),
            files_pb2.ARCHIVE_FORMAT_TAR_GZIP,
            sandbox.user,
            1 << 20,
        )
        listed = [
            one.path async for one in sandbox.list_files(b"copy", sandbox.user, recursive=True)
        ]
        assert listed == [b"/mnt/copy/deep", b"/mnt/copy/deep/a\xff"]
        single = b"".join(
            [
                piece
                async for piece in sandbox.read_archive(
                    b"new/a\xff", files_pb2.ARCHIVE_FORMAT_TAR, sandbox.user, 1 << 20
                )
            ]
        )
        with tarfile.open(fileobj=io.BytesIO(single)) as archive:
            (member,) = archive
            file = archive.extractfile(member)
            assert file is not None
            assert file.read() == content
        await sandbox.end()


async def test_what_the_node_says_of_images_and_room(cluster: Cluster, namespace: str) -> None:
    waiting = {
        "gone:1": ("ErrImagePull", "manifest unknown", "IMAGE_NOT_FOUND"),
        "denied:1": ("ImagePullBackOff", "401 unauthorized", "IMAGE_FAILED"),
        "root:1": ("CreateContainerConfigError", "image will run as root", "IMAGE_FAILED"),
    }
    async with (
        running_node(cluster, namespace) as node,
        opened(node, namespace, unschedulable="refuse") as backend,
    ):
        for image, (reason, message, meaning) in waiting.items():
            state = {"waiting": {"reason": reason, "message": message}}
            node.says[image] = {"phase": "Pending", "containerStatuses": [container(state)]}
            with pytest.raises(MeshError) as refused:
                await backend.create(spec(root=image))
            assert errors_pb2.ErrorReason.Name(refused.value.reason).endswith(meaning)
        unschedulable = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
        node.says["large:1"] = {"conditions": [unschedulable | {"message": "0/1 nodes"}]}
        async with asyncio.timeout(LONG_S):
            with pytest.raises(MeshError) as refused:
                await backend.create(spec(1, root="large:1"))
        assert refused.value.reason == errors_pb2.ERROR_REASON_SANDBOX_LIMIT
        # One that is cancelled, as at the end of the time to start.
        node.says["slow:1"] = {"phase": "Pending"}
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(2):
                await backend.create(spec(2, root="slow:1"))
        assert await pods(cluster, namespace) == []


async def test_why_a_sandbox_was_lost(cluster: Cluster, namespace: str) -> None:
    killed = {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}
    ends: list[tuple[dict[str, Any], str]] = [
        ({"phase": "Failed", "containerStatuses": [container(killed)]}, OUT_OF_MEMORY),
        ({"phase": "Failed", "reason": "Evicted", "message": "low on disk"}, "low on disk"),
        ({"phase": "Failed", "reason": "DeadlineExceeded"}, "its lifetime is over"),
    ]
    async with running_node(cluster, namespace) as node, opened(node, namespace) as backend:
        for number, (status, cause) in enumerate(ends):
            sandbox = await backend.create(spec(number))
            await node.tell(sandbox.name, status)
            async with asyncio.timeout(LONG_S):
                assert cause in await sandbox.wait_lost()
            await sandbox.end()
        deleted = await backend.create(spec(9))
        process = await deleted.start(shell("echo on; sleep 600"))
        await cluster.ask("DELETE", f"/api/v1/namespaces/{namespace}/pods/{deleted.name}")
        async with asyncio.timeout(LONG_S):
            assert "delet" in await deleted.wait_lost()
        async with asyncio.timeout(LONG_S):
            async for _ in process.output():
                pass
            with pytest.raises(MeshError) as lost:
                await process.wait()
        assert lost.value.reason == errors_pb2.ERROR_REASON_SANDBOX_LOST
        await deleted.end()


async def test_leftovers_end_and_those_of_others_stay(cluster: Cluster, namespace: str) -> None:
    async with running_node(cluster, namespace) as node:
        options = {"server": node.server, "namespace": namespace}
        before, other = KubernetesBackend(options), KubernetesBackend(options)
        await before.open()
        await other.open()
        await before.create(spec(0))
        await before.create(spec(1))
        await other.create(spec(2, instance_id="other"))
        # It is killed: nothing of it is ended.
        async with opened(node, namespace) as after:
            assert await after.end_leftovers("tests") == 2
            async with asyncio.timeout(LONG_S):
                while len(await pods(cluster, namespace)) > 1:  # noqa: ASYNC110
                    await asyncio.sleep(0.1)
        await before.close()
        await other.close()


async def test_no_network_is_a_policy(cluster: Cluster, namespace: str) -> None:
    none = sandbox_pb2.Network(none=sandbox_pb2.NoNetwork())
    async with running_node(cluster, namespace) as node:
        async with opened(node, namespace) as backend:
            assert list(backend.capabilities.networks) == [sandbox_pb2.NETWORK_KIND_OPEN]
            with pytest.raises(MeshError, match="network_policies"):
                await backend.create(spec(network=none))
        for _ in range(2):
            async with opened(node, namespace, network_policies=True) as backend:
                sandbox = await backend.create(spec(network=none))
                (pod,) = await pods(cluster, namespace)
                assert pod["metadata"]["labels"]["gymmesh.io/sandbox-network"] == "none"
                await sandbox.end()
        found = await cluster.ask(
            "GET", f"/apis/networking.k8s.io/v1/namespaces/{namespace}/networkpolicies"
        )
        (policy,) = found["items"]
        assert policy["spec"]["podSelector"]["matchLabels"] == {
            "gymmesh.io/sandbox-network": "none"
        }
        assert sorted(policy["spec"]["policyTypes"]) == ["Egress", "Ingress"]


async def test_an_account_without_a_role(cluster: Cluster, namespace: str, tmp_path: Path) -> None:
    (tmp_path / "token").write_text(STRANGER)
    backend = KubernetesBackend(
        {
            "server": cluster.server,
            "ca_file": str(cluster.ca_file),
            "token_file": str(tmp_path / "token"),
            "namespace": namespace,
        }
    )
    with pytest.raises(ConfigError, match="Role"):
        await backend.open()
