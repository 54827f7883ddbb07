"""A node that runs: pods are processes of this machine, each with its own process numbers, a /proc
and an empty /mnt, and what the API server would pass on to the node's kubelet is answered here.

The real API server speaks SPDY to a kubelet; so this one stands in front of it, answers an exec and
a port by itself, in the words of `v5.channel.k8s.io` and `v4.channel.k8s.io`, and passes on
everything else. Needs root.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

import aiohttp
from aiohttp import web

from tests.kubernetes.cluster import ADMIN, NODE, ApiError, Cluster
from tests.kubernetes.pods import bury_pod

_POLL_S: Final = 0.1
_PIECE: Final = 1 << 16
_STATUS: Final = 3
_CLOSE: Final = 255
_BETWEEN: Final = 'cd /mnt; exec 9>&2 2>/dev/null; setsid "$@" 2>&9 9>&-; exit $?'
_SESSION: Final = web.AppKey("session", aiohttp.ClientSession)
Pod = dict[str, Any]


class Node:
    """For one namespace, while the context of `running_node` is open.

    Attributes:
        server: the address in front of the API server.
        says: what is said of a pod that was placed, instead of starting it; by the image.
        requests: the addresses of the execs.
    """

    def __init__(self, cluster: Cluster, namespace: str) -> None:
        self.server = ""
        self.says: dict[str, dict[str, Any]] = {}
        self.requests: list[str] = []
        self._cluster = cluster
        self._namespace = namespace
        self._first: dict[str, asyncio.subprocess.Process] = {}
        self._pods: dict[str, Pod] = {}

    # ---- pods

    async def follow(self) -> None:
        """Does what is to be done, again and again."""
        path = f"/api/v1/namespaces/{self._namespace}/pods"
        while True:
            for pod in (await self._cluster.ask("GET", path))["items"]:
                try:
                    await self._take(pod)
                except ApiError as error:
                    if error.code not in (404, 409):
                        raise
            await asyncio.sleep(_POLL_S)

    async def tell(self, name: str, status: dict[str, Any]) -> None:
        """Says how a pod is."""
        path = f"/api/v1/namespaces/{self._namespace}/pods/{name}/status"
        await self._cluster.ask("PATCH", path, {"status": status}, "merge")

    async def close(self) -> None:
        """Ends all."""
        for uid in list(self._first):
            await self._end(uid)

    async def _take(self, pod: Pod) -> None:
        name, uid = pod["metadata"]["name"], pod["metadata"]["uid"]
        image, main = (pod["spec"]["containers"][0][one] for one in ("image", "name"))
        if "deletionTimestamp" in pod["metadata"]:
            await self._end(uid)
            await bury_pod(self._cluster, self._namespace, name)
        elif "nodeName" not in pod["spec"] and "conditions" not in self.says.get(image, {}):
            path = f"/api/v1/namespaces/{self._namespace}/pods/{name}/binding"
            target = {"apiVersion": "v1", "kind": "Node", "name": NODE}
            await self._cluster.ask("POST", path, {"metadata": {"name": name}, "target": target})
        elif image in self.says:
            await self.tell(name, self.says[image])
        elif uid not in self._first:
            await self._start(pod)
            state: dict[str, Any] = {"running": {"startedAt": "2026-01-01T00:00:00Z"}}
            said = {"phase": "Running", "containerStatuses": [container(state, main)]}
            await self.tell(name, said)
        elif (code := self._first[uid].returncode) is not None:
            state = {"terminated": {"exitCode": code % 256, "reason": "Error"}}
            await self.tell(
                name, {"phase": "Failed", "containerStatuses": [container(state, main)]}
            )

    async def _start(self, pod: Pod) -> None:
        uid = pod["metadata"]["uid"]
        script = 'mount -t tmpfs -o mode=1777 none /mnt && cd /mnt && exec "$@"'
        self._first[uid] = await asyncio.create_subprocess_exec(
            "unshare", "--pid", "--mount", "--fork", "--kill-child", "--mount-proc",
            "/bin/sh", "-c", script, "sh", *pod["spec"]["containers"][0]["command"],
            stdin=asyncio.subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
        self._pods[pod["metadata"]["name"]] = pod

    async def _end(self, uid: str) -> None:
        first = self._first.pop(uid, None)
        if first is not None and first.returncode is None:
            first.kill()
            await first.wait()

    async def _first_in(self, name: str) -> tuple[int, Pod] | None:
        """The number of a pod's first process on this machine."""
        pod = self._pods.get(name)
        first = self._first.get(pod["metadata"]["uid"]) if pod else None
        if pod is None or first is None or first.returncode is not None:
            return None
        for _ in range(100):
            with contextlib.suppress(OSError):
                said = await asyncio.to_thread(_children, first.pid)
                if said:
                    return said[0], pod
            await asyncio.sleep(0.05)
        return None

    # ---- the server in front

    async def exec(self, request: web.Request) -> web.StreamResponse:
        """Starts a program in a pod."""
        self.requests.append(str(request.rel_url))
        found = await self._first_in(request.match_info["name"])
        if found is None:
            raise web.HTTPNotFound
        first, pod = found
        security = pod["spec"]["containers"][0].get("securityContext", {})
        uid, gid = security.get("runAsUser", 0), security.get("runAsGroup", 0)
        socket = web.WebSocketResponse(protocols=("v5.channel.k8s.io",), max_msg_size=0)
        await socket.prepare(request)
        process = await asyncio.create_subprocess_exec(
            "nsenter", "-t", str(first), "-p", "-m", "-S", str(uid), "-G", str(gid),
            # A shell between them: nsenter stops with its own child.
            "/bin/sh", "-c", _BETWEEN, "sh",
            *request.query.getall("command"),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "IMAGE": "yes"},
            start_new_session=True,
        )  # fmt: skip
        assert process.stdin is not None
        copying = asyncio.gather(_copy(process.stdout, socket, 1), _copy(process.stderr, socket, 2))
        ending = asyncio.ensure_future(_say_end(process, copying, socket))
        try:
            async for message in socket:
                if message.type is not aiohttp.WSMsgType.BINARY:
                    break
                if message.data[0] == _CLOSE:
                    process.stdin.close()
                elif not process.stdin.is_closing():
                    with contextlib.suppress(ConnectionError):
                        process.stdin.write(message.data[1:])
                        await process.stdin.drain()
        finally:
            process.stdin.close()
            # The program goes on, as it does on a node; the pod's end is its end.
            ending.cancel()
            with contextlib.suppress(asyncio.CancelledError, ConnectionError):
                await ending
        return socket

    async def forward(self, request: web.Request) -> web.StreamResponse:
        """Connects to a port of a pod, which here is this machine's."""
        found = await self._first_in(request.match_info["name"])
        if found is None:
            raise web.HTTPNotFound
        port = int(request.query["ports"])
        socket = web.WebSocketResponse(protocols=("v4.channel.k8s.io",), max_msg_size=0)
        await socket.prepare(request)
        for channel in (0, 1):
            await socket.send_bytes(bytes((channel,)) + port.to_bytes(2, "little"))
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError as error:
            await socket.send_bytes(b"\x01" + f"connect to {port}: {error.strerror}".encode())
            await socket.close()
            return socket
        copying = asyncio.ensure_future(_copy_and_close(reader, socket))
        try:
            async for message in socket:
                if message.type is not aiohttp.WSMsgType.BINARY:
                    break
                writer.write(message.data[1:])
                await writer.drain()
        finally:
            writer.close()
            copying.cancel()
            with contextlib.suppress(asyncio.CancelledError, ConnectionError):
                await copying
        return socket

    async def pass_on(self, request: web.Request) -> web.StreamResponse:
        """Everything else is the API server's."""
        session = request.app[_SESSION]
        async with session.request(
            request.method,
            f"{self._cluster.server}{request.rel_url}",
            data=await request.read(),
            headers={
                "Authorization": f"Bearer {ADMIN}",
                "Content-Type": request.headers.get("Content-Type", "application/json"),
            },
            timeout=aiohttp.ClientTimeout(total=None),
        ) as answer:
            response = web.StreamResponse(status=answer.status)
            await response.prepare(request)
            with contextlib.suppress(ConnectionError):
                async for piece in answer.content.iter_any():
                    await response.write(piece)
            return response


def container(state: dict[str, Any], name: str = "main") -> dict[str, Any]:
    """What a kubelet says of the one container of a pod."""
    return {
        "name": name,
        "image": "none",
        "containerID": "tests://1",
        "imageID": "registry.test/image@sha256:" + "a" * 64,
        "ready": "running" in state,
        "restartCount": 0,
        "state": state,
    }


async def _copy(
    source: asyncio.StreamReader | None, socket: web.WebSocketResponse, channel: int
) -> None:
    assert source is not None
    while piece := await source.read(_PIECE):
        await socket.send_bytes(bytes((channel,)) + piece)


async def _copy_and_close(source: asyncio.StreamReader, socket: web.WebSocketResponse) -> None:
    await _copy(source, socket, 0)
    await socket.close()


async def _say_end(
    process: asyncio.subprocess.Process, copying: asyncio.Future[Any], socket: web.WebSocketResponse
) -> None:
    await copying
    code = await process.wait()
    status: dict[str, Any] = {"metadata": {}, "status": "Success"}
    if code:
        shown = str(128 - code if code < 0 else code)
        causes = [{"reason": "ExitCode", "message": shown}]
        status = {
            "metadata": {},
            "status": "Failure",
            "reason": "NonZeroExitCode",
            "details": {"causes": causes},
        }
    await socket.send_bytes(bytes((_STATUS,)) + json.dumps(status).encode())
    await socket.close()


def _children(pid: int) -> list[int]:
    with open(f"/proc/{pid}/task/{pid}/children") as file:
        return [int(one) for one in file.read().split()]


@asynccontextmanager
async def running_node(cluster: Cluster, namespace: str) -> AsyncIterator[Node]:
    """A node that works while the context is open."""
    node = Node(cluster, namespace)
    app = web.Application(client_max_size=1 << 24)
    app.router.add_get(f"/api/v1/namespaces/{namespace}/pods/{{name}}/exec", node.exec)
    app.router.add_get(f"/api/v1/namespaces/{namespace}/pods/{{name}}/portforward", node.forward)
    app.router.add_route("*", "/{path:.*}", node.pass_on)
    connector = aiohttp.TCPConnector(ssl=False)
    async with aiohttp.ClientSession(connector=connector) as session:
        app[_SESSION] = session
        runner = web.AppRunner(app, shutdown_timeout=1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        host, port = runner.addresses[0][:2]
        node.server = f"http://{host}:{port}"
        follows = asyncio.ensure_future(node.follow())
        try:
            yield node
        finally:
            follows.cancel()
            await asyncio.wait((follows,))
            await runner.cleanup()
            await node.close()
