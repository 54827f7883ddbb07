"""Requests to the API server: pods, their changes, and programs in them."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, Final
from urllib.parse import quote

import aiohttp
import msgspec

from gymmesh.errors.v1 import errors_pb2
from gymmesh_runtime.errors import MeshError
from gymmesh_runtime.kubernetes import Access
from gymmesh_runtime.text import mask_secrets
from gymmesh_sandbox.backends.kubernetes import forwarded, frames
from gymmesh_sandbox.backends.kubernetes.claims import (
    CLAIM_VERSION,
    SANDBOX_VERSION,
    Claim,
    ClaimedSandbox,
)
from gymmesh_sandbox.backends.kubernetes.status import Pod

_CONNECT_S: Final = 10.0
_ANSWER_S: Final = 30.0
_WATCH_S: Final = 300
_MAX_LINE_BYTES: Final = 4 << 20
_MAX_SHOWN: Final = 300
_STREAMS: Final = ("stdin", "stdout", "stderr")


class ApiError(Exception):
    """An answer of the API server that reports an error.

    Attributes:
        status: the HTTP status.
    """

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"{status}: {message}")
        self.status = status
        self.message = message


#: What a request raises: an answer, or a connection that failed. A TimeoutError is an OSError.
FAILURES: Final = (ApiError, aiohttp.ClientError, OSError)


class PodEvent(msgspec.Struct, frozen=True):
    """ADDED, MODIFIED or DELETED, with the pod as it is or was; or ERROR without a pod."""

    type: str
    object: Pod = Pod()


class ClaimEvent(msgspec.Struct, frozen=True):
    """ADDED, MODIFIED or DELETED, with the claim as it is or was; or ERROR without a claim."""

    type: str
    object: Claim = Claim()


class _ListMetadata(msgspec.Struct, frozen=True, rename="camel"):
    resource_version: str = ""


class PodList(msgspec.Struct, frozen=True):
    """The pods of a selector, and the version from which to watch."""

    metadata: _ListMetadata = _ListMetadata()
    items: list[Pod] | None = None


class ClaimList(msgspec.Struct, frozen=True):
    """The claims of a selector."""

    items: list[Claim] | None = None


class KubernetesApi:
    """One API server and one namespace. Create it in an event loop. Methods raise FAILURES."""

    def __init__(self, access: Access) -> None:
        self.address = access.server
        self.namespace = access.namespace
        self._access = access
        self._root = access.server.rstrip("/")
        # Every process and every watch holds a connection.
        connector = aiohttp.TCPConnector(ssl=access.tls(), limit=0)
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_S, connect=_CONNECT_S)
        self._session = aiohttp.ClientSession(connector=connector, timeout=timeout)

    async def close(self) -> None:
        await self._session.close()

    async def version(self) -> tuple[str, int]:
        """The server's version, and its minor version number."""
        said = msgspec.json.decode(await self._request("GET", "/version"), type=dict[str, Any])
        minor = "".join(one for one in str(said.get("minor", "")) if one.isdigit())
        return str(said.get("gitVersion", "")), int(minor or 0)

    async def pod(self, name: str) -> Pod | None:
        """A pod; None: it does not exist."""
        try:
            body = await self._request("GET", f"{self._pods}/{quote(name, safe='')}")
        except ApiError as error:
            if error.status == 404:
                return None
            raise
        return msgspec.json.decode(body, type=Pod)

    async def pods(self, selector: str) -> PodList:
        """The pods with these labels."""
        body = await self._request("GET", self._pods, {"labelSelector": selector})
        return msgspec.json.decode(body, type=PodList)

    async def create_pod(self, manifest: Mapping[str, Any]) -> Pod:
        """Creates a pod."""
        body = await self._request("POST", self._pods, body=manifest)
        return msgspec.json.decode(body, type=Pod)

    async def delete_pod(self, name: str, uid: str = "") -> None:
        """Requests the deletion of a pod; does nothing if the pod, or the pod with this uid,
        does not exist.
        """
        options = {"preconditions": {"uid": uid}} if uid else {}
        try:
            await self._request("DELETE", f"{self._pods}/{quote(name, safe='')}", body=options)
        except ApiError as error:
            if error.status not in (404, 409):
                raise

    async def create_network_policy(self, manifest: Mapping[str, Any]) -> None:
        """Creates a NetworkPolicy; does nothing if it exists."""
        space = f"/apis/networking.k8s.io/v1/namespaces/{quote(self.namespace, safe='')}"
        try:
            await self._request("POST", f"{space}/networkpolicies", body=manifest)
        except ApiError as error:
            if error.status != 409:
                raise

    async def claim(self, name: str) -> Claim | None:
        """A claim; None: it does not exist."""
        try:
            body = await self._request("GET", f"{self._claims}/{quote(name, safe='')}")
        except ApiError as error:
            if error.status == 404:
                return None
            raise
        return msgspec.json.decode(body, type=Claim)

    async def claims(self, selector: str) -> Sequence[Claim]:
        """The claims with these labels."""
        body = await self._request("GET", self._claims, {"labelSelector": selector})
        return msgspec.json.decode(body, type=ClaimList).items or ()

    async def create_claim(self, manifest: Mapping[str, Any]) -> Claim:
        """Creates a claim."""
        body = await self._request("POST", self._claims, body=manifest)
        return msgspec.json.decode(body, type=Claim)

    async def delete_claim(self, name: str) -> None:
        """Requests the deletion of a claim and of what it got; does nothing if it does not
        exist.
        """
        try:
            await self._request("DELETE", f"{self._claims}/{quote(name, safe='')}")
        except ApiError as error:
            if error.status != 404:
                raise

    async def claimed(self, name: str) -> ClaimedSandbox | None:
        """What a claim got; None: it does not exist."""
        space = quote(self.namespace, safe="")
        path = f"/apis/{SANDBOX_VERSION}/namespaces/{space}/sandboxes/{quote(name, safe='')}"
        try:
            return msgspec.json.decode(await self._request("GET", path), type=ClaimedSandbox)
        except ApiError as error:
            if error.status == 404:
                return None
            raise

    async def watch(self, selector: str, version: str) -> AsyncIterator[PodEvent]:
        """The changes of these pods after a version, until the server ends the watch."""
        async for line in self._watch(self._pods, {"labelSelector": selector}, version):
            yield msgspec.json.decode(line, type=PodEvent)

    async def watch_claim(self, name: str, version: str) -> AsyncIterator[ClaimEvent]:
        """The changes of one claim after a version, until the server ends the watch."""
        chosen = {"fieldSelector": f"metadata.name={name}"}
        async for line in self._watch(self._claims, chosen, version):
            yield msgspec.json.decode(line, type=ClaimEvent)

    async def _watch(
        self, path: str, chosen: Mapping[str, str], version: str
    ) -> AsyncIterator[bytes]:
        params = {
            **chosen,
            "watch": "true",
            "resourceVersion": version,
            "timeoutSeconds": str(_WATCH_S),
        }
        timeout = aiohttp.ClientTimeout(total=_WATCH_S + _ANSWER_S, sock_connect=_CONNECT_S)
        async with self._session.get(
            self._root + path,
            params=params,
            headers=self._headers(),
            timeout=timeout,
            allow_redirects=False,  # the token is for this server
            server_hostname=self._access.server_name or None,
        ) as response:
            if response.status != 200:
                raise ApiError(response.status, _message(await response.read()))
            rest = b""
            async for piece in response.content.iter_any():
                *lines, rest = (rest + piece).split(b"\n")
                for line in lines:
                    yield line
                if len(rest) > _MAX_LINE_BYTES:
                    raise ApiError(200, "an event of the watch is too long")

    async def exec(
        self, pod: str, container: str, argv: Sequence[str]
    ) -> aiohttp.ClientWebSocketResponse:
        """Starts a program in a pod; its streams are the connection's channels."""
        params = [("container", container), *((one, "true") for one in _STREAMS)]
        params += [("command", word) for word in argv]
        return await self._connected(pod, "exec", params, frames.PROTOCOL)

    async def forward(self, pod: str, port: int) -> aiohttp.ClientWebSocketResponse:
        """Connects to a port of a pod's own loopback address."""
        params = [("ports", str(port))]
        return await self._connected(pod, "portforward", params, forwarded.PROTOCOL)

    async def _connected(
        self, pod: str, subresource: str, params: Sequence[tuple[str, str]], protocol: str
    ) -> aiohttp.ClientWebSocketResponse:
        try:
            connection = await self._session.ws_connect(
                f"{self._root}{self._pods}/{quote(pod, safe='')}/{subresource}",
                params=list(params),
                headers=self._headers(),
                protocols=(protocol,),
                max_msg_size=0,
                timeout=aiohttp.ClientWSTimeout(ws_close=1.0),
                server_hostname=self._access.server_name or None,
            )
        except aiohttp.WSServerHandshakeError as error:
            raise ApiError(
                error.status,
                f"the Kubernetes API server refused the subresource '{subresource}' of the pod",
            ) from None
        if connection.protocol != protocol:
            await connection.close()
            raise ApiError(400, f"the Kubernetes API server does not speak the protocol {protocol}")
        return connection

    @property
    def _pods(self) -> str:
        return f"/api/v1/namespaces/{quote(self.namespace, safe='')}/pods"

    @property
    def _claims(self) -> str:
        space = quote(self.namespace, safe="")
        return f"/apis/{CLAIM_VERSION}/namespaces/{space}/sandboxclaims"

    def _headers(self) -> dict[str, str]:
        token = self._access.bearer()
        headers = {"Accept": "application/json"}
        return headers if token is None else headers | {"Authorization": f"Bearer {token}"}

    async def _request(
        self,
        method: str,
        path: str,
        params: Mapping[str, str] | None = None,
        body: Mapping[str, Any] | None = None,
    ) -> bytes:
        async with self._session.request(
            method,
            self._root + path,
            params=params,
            json=body,
            headers=self._headers(),
            timeout=aiohttp.ClientTimeout(total=_ANSWER_S, sock_connect=_CONNECT_S),
            allow_redirects=False,
            server_hostname=self._access.server_name or None,
        ) as response:
            said = await response.read()
            if response.status >= 300:
                raise ApiError(response.status, _message(said))
            return said


def api_error(error: BaseException, address: str) -> MeshError:
    """The error of a failed request: NOT_PERMITTED, SANDBOX_LIMIT, PEER_UNAVAILABLE or
    INTERNAL_FAULT.
    """
    if not isinstance(error, ApiError):
        words = shown(str(error)) or type(error).__name__
        return MeshError(
            errors_pb2.ERROR_REASON_PEER_UNAVAILABLE,
            f"Kubernetes at {address} does not answer: {words}.",
        )
    words = shown(error.message)
    if error.status == 403 and "exceeded quota" in error.message:
        return MeshError(
            errors_pb2.ERROR_REASON_SANDBOX_LIMIT,
            f"The quota of the namespace is used up: {words}.",
            metadata={"limit": "0"},
        )
    if error.status in (401, 403):
        return MeshError(
            errors_pb2.ERROR_REASON_NOT_PERMITTED,
            f"Kubernetes at {address} refuses the call ({error.status}): {words}.",
        )
    if error.status == 429 or error.status >= 500:
        return MeshError(
            errors_pb2.ERROR_REASON_PEER_UNAVAILABLE,
            f"Kubernetes at {address} answers {error.status}: {words}.",
        )
    return MeshError(
        errors_pb2.ERROR_REASON_INTERNAL_FAULT,
        f"Kubernetes at {address} answers {error.status}: {words}.",
    )


def shown(text: str) -> str:
    """The start of a foreign text, on one line, without a full stop."""
    words = "".join(one if one.isprintable() else " " for one in mask_secrets(text))
    return " ".join(words.split()).rstrip(".")[:_MAX_SHOWN]


def _message(body: bytes) -> str:
    with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError):
        said = msgspec.json.decode(body)
        if isinstance(said, dict) and isinstance(said.get("message"), str):
            return str(said["message"])
    return body[:_MAX_SHOWN].decode("utf-8", "replace")
