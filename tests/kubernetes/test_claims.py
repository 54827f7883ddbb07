"""Sandboxes that are claimed from warm pools: claims by the real API server, a stand-in for the
controller of kubernetes-sigs/agent-sandbox, programs by a stand-in for the node.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

import pytest

from gymmesh.errors.v1 import errors_pb2
from gymmesh.sandbox.v1 import sandbox_pb2
from gymmesh_runtime.config import ConfigError
from gymmesh_runtime.errors import MeshError
from gymmesh_sandbox.backends.kubernetes import KubernetesBackend
from tests.kubernetes.agent_sandbox import EXTENSIONS, Controller, running_controller
from tests.kubernetes.cluster import Cluster
from tests.kubernetes.node import Node, container, running_node
from tests.kubernetes.test_sandboxes import LONG_S, finished, opened, pods, shell, spec

POOL: Final = "python-pool"
CLAIMS: Final = {"python": POOL}
#: What the template says, and the request does not.
POD: Final[dict[str, Any]] = {
    "containers": [
        {"name": "agent", "image": "registry.test/image:1", "command": ["sleep", "86400"]}
    ]
}
NOTHING: Final = sandbox_pb2.Resources()


@asynccontextmanager
async def cluster_with_pool(
    claiming: Cluster, namespace: str, replicas: int = 1
) -> AsyncIterator[tuple[Node, Controller]]:
    async with (
        running_node(claiming, namespace) as node,
        running_controller(claiming, namespace) as controller,
    ):
        await controller.make_pool(POOL, replicas, POD)
        yield node, controller


def claimed(number: int = 0, **changes: Any) -> Any:
    return spec(number, **({"root": "python", "resources": NOTHING} | changes))


async def until_gone(cluster: Cluster, namespace: str, names: set[str]) -> None:
    async with asyncio.timeout(LONG_S):
        while names & {one["metadata"]["name"] for one in await pods(cluster, namespace)}:  # noqa: ASYNC110
            await asyncio.sleep(0.1)


async def test_a_cluster_without_the_controllers_kinds(cluster: Cluster, namespace: str) -> None:
    """The first of the file: the others define them."""
    async with running_node(cluster, namespace) as node:
        with pytest.raises(ConfigError, match="Install kubernetes-sigs/agent-sandbox"):
            async with opened(node, namespace, claims=CLAIMS):
                pass


async def test_a_sandbox_is_a_claim_of_a_pool(claiming: Cluster, namespace: str) -> None:
    async with (
        cluster_with_pool(claiming, namespace) as (node, controller),
        opened(node, namespace, claims=CLAIMS) as backend,
    ):
        assert [one.name for one in await backend.images()] == ["python"]
        life = sandbox_pb2.Resources(life_s=600)
        sandbox = await backend.create(claimed(resources=life, labels={"team": "a"}))
        (claim,) = await controller.found(EXTENSIONS, "sandboxclaims")
        assert claim["spec"]["warmPoolRef"] == {"name": POOL}
        assert claim["spec"]["lifecycle"]["shutdownPolicy"] == "Delete"
        assert claim["metadata"]["labels"]["gymmesh.io/sandbox"] == "sb-0"
        assert claim["metadata"]["annotations"]["sandbox.gymmesh.io/team"] == "a"
        assert sandbox.name == claim["status"]["sandbox"]["name"]
        assert sandbox.image_digest == "sha256:" + "a" * 64
        # Its programs run in the template's container, under whatever name.
        process = await sandbox.start(shell("echo $A; cat", env={"A": "b"}))
        await process.write(b"in")
        await process.close_stdin()
        assert (await finished(process))[1] == b"b\nin"
        await sandbox.end()
        assert await controller.found(EXTENSIONS, "sandboxclaims") == []
        names = {one["metadata"]["name"] for one in await pods(claiming, namespace)}
        assert sandbox.name not in names


async def test_each_claim_gets_a_pod_of_its_own(claiming: Cluster, namespace: str) -> None:
    async with (
        cluster_with_pool(claiming, namespace, 2) as (node, _),
        opened(node, namespace, claims=CLAIMS) as backend,
    ):
        made = await asyncio.gather(*(backend.create(claimed(number)) for number in range(3)))
        assert len({one.name for one in made}) == 3
        await asyncio.gather(*(one.end() for one in made))


async def test_a_pool_that_can_give_nothing(claiming: Cluster, namespace: str) -> None:
    async with (
        cluster_with_pool(claiming, namespace, 0) as (node, controller),
        opened(node, namespace, claims=CLAIMS) as backend,
    ):
        for reason in ("WarmPoolNotFound", "PodFailed"):
            controller.says[POOL] = reason
            with pytest.raises(MeshError, match=f"{reason}: so it is") as failed:
                await backend.create(claimed())
            assert failed.value.reason == errors_pb2.ERROR_REASON_SANDBOX_IMAGE_FAILED
            assert await controller.found(EXTENSIONS, "sandboxclaims") == []
        # One that is empty is waited for until the time to start is over.
        controller.says.clear()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(2):
                await backend.create(claimed(1))
        assert await controller.found(EXTENSIONS, "sandboxclaims") == []
        with pytest.raises(MeshError, match="warm pools only for these images: python") as missing:
            await backend.create(claimed(root="node"))
        assert missing.value.reason == errors_pb2.ERROR_REASON_SANDBOX_IMAGE_NOT_FOUND


async def test_why_a_claimed_sandbox_was_lost(claiming: Cluster, namespace: str) -> None:
    async with (
        cluster_with_pool(claiming, namespace) as (node, controller),
        opened(node, namespace, claims=CLAIMS) as backend,
    ):
        again = await backend.create(claimed(0))
        running = container({"running": {"startedAt": "2026-01-01T00:00:00Z"}}, "agent")
        running["containerID"] = "tests://2"
        await node.tell(again.name, {"phase": "Running", "containerStatuses": [running]})
        async with asyncio.timeout(LONG_S):
            assert "started again" in await again.wait_lost()
        await again.end()
        deleted = await backend.create(claimed(1))
        (claim,) = await controller.found(EXTENSIONS, "sandboxclaims")
        path = f"/apis/{claim['apiVersion']}/namespaces/{namespace}/sandboxclaims"
        await claiming.ask("DELETE", f"{path}/{claim['metadata']['name']}")
        async with asyncio.timeout(LONG_S):
            assert "delet" in await deleted.wait_lost()
        await deleted.end()


async def test_claims_of_an_earlier_life_end(claiming: Cluster, namespace: str) -> None:
    async with cluster_with_pool(claiming, namespace) as (node, controller):
        options = {"server": node.server, "namespace": namespace, "claims": CLAIMS}
        before = KubernetesBackend(options)
        await before.open()
        left = await before.create(claimed(0))
        other = await before.create(claimed(1, instance_id="other"))
        # It is killed: nothing of it is ended.
        async with opened(node, namespace, claims=CLAIMS) as after:
            assert await after.end_leftovers("tests") == 1
            await until_gone(claiming, namespace, {left.name})
            kept = [
                one["status"]["sandbox"]["name"]
                for one in await controller.found(EXTENSIONS, "sandboxclaims")
            ]
            assert kept == [other.name]
        await before.close()


async def test_a_server_in_a_pod_is_called(claiming: Cluster, namespace: str) -> None:
    serve = (
        "import http.server as h, sys\n"
        "class S(h.BaseHTTPRequestHandler):\n"
        "    def do_POST(self):\n"
        "        body = self.rfile.read(int(self.headers['content-length']))\n"
        "        self.send_response(201)\n"
        "        self.send_header('x-seen', self.headers['authorization'])\n"
        "        self.end_headers(); self.wfile.write(self.path.encode() + body)\n"
        "    log_message = lambda *_: None\n"
        "s = h.HTTPServer(('127.0.0.1', 0), S)\n"
        "print(s.server_port, flush=True)\n"
        "s.serve_forever()\n"
    )
    async with (
        running_node(claiming, namespace) as node,
        opened(node, namespace) as backend,
    ):
        sandbox = await backend.create(spec())
        process = await sandbox.start(shell(f"exec python3 -c '{serve.replace(chr(39), chr(34))}'"))
        reading = process.output()
        port = int((await anext(reading))[1])
        body = b"x" * 200_000
        request = sandbox_pb2.CallPortRequest(
            port=port,
            method="POST",
            path="/a?b=%20c",
            body=body,
            # Which the API server would take for its own.
            headers=[sandbox_pb2.HttpHeader(name="Authorization", value=b"Bearer own")],
        )
        answer = await sandbox.call_port(request, 1 << 20)
        assert (answer.status, answer.body) == (201, b"/a?b=%20c" + body)
        assert {one.name.lower(): one.value for one in answer.headers}["x-seen"] == b"Bearer own"
        with pytest.raises(MeshError) as large:
            await sandbox.call_port(request, 1000)
        assert large.value.reason == errors_pb2.ERROR_REASON_MESSAGE_TOO_LARGE
        await process.signal(9, descendants=True)
        await process.wait()
        with pytest.raises(MeshError) as nobody:
            await sandbox.call_port(request, 1 << 20)
        assert nobody.value.reason == errors_pb2.ERROR_REASON_SANDBOX_PORT_UNREACHABLE
        with contextlib.suppress(MeshError):
            await sandbox.end()
