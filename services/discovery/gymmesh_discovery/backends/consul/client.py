"""Requests to a Consul agent, over py-consul. No other module imports py-consul.

py-consul's own endpoints hide the status and the headers that blocking queries need. So this module
uses py-consul's HTTP client and returns Consul's answers unchanged.
"""

from __future__ import annotations

import json
import ssl
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple
from urllib.parse import quote, urlencode

import aiohttp
import consul
import consul.aio
import consul.base

from gymmesh.errors.v1 import errors_pb2
from gymmesh_discovery.backends.entry import printable
from gymmesh_discovery.config import ConsulConfig, read_token, split_address
from gymmesh_runtime.config import ConfigError
from gymmesh_runtime.errors import MeshError
from gymmesh_runtime.text import mask_secrets

_CALL_S: Final = 4.0
_CONNECT_S: Final = 2.0
_MAX_SHOWN: Final = 200
_MAX_BODY_BYTES: Final = 32 * 2**20  # some 20,000 instances of one name
Params = Sequence[tuple[str, str]]


class ConsulAnswer(NamedTuple):
    """An answer from Consul: the status, the index header and the body."""

    status: int
    index_header: str | None
    body: bytes

    def json(self) -> Any:
        """The body's JSON. Raises ValueError."""
        return json.loads(self.body)


class ConsulClient:
    """A client of one Consul agent. Create it within an event loop. Raises MeshError for every
    failure.
    """

    def __init__(self, config: ConsulConfig) -> None:
        scheme, host, port = split_address(config.address)
        self.address = f"{host}:{port}"
        self._datacenter = config.datacenter
        self._headers = {}
        token = read_token(config)
        if token is not None:
            self._headers["X-Consul-Token"] = str(token)
        if config.namespace:
            self._headers["X-Consul-Namespace"] = config.namespace
        host = f"[{host}]" if ":" in host else host
        self._http: Any = _Http(host, port, scheme, _ssl_context(config))

    async def close(self) -> None:
        await self._http.close()

    async def read(self, path: str, params: Params = (), *, timeout: float) -> ConsulAnswer:
        """Sends a GET. Returns any status except 5xx and refusals, which raise MeshError."""
        return await self._request("GET", path, params, None, timeout)

    async def write(self, path: str, params: Params = (), body: Any = None) -> ConsulAnswer:
        """Sends a PUT, with the body as JSON."""
        data = "" if body is None else json.dumps(body)
        return await self._request("PUT", path, params, data, _CALL_S)

    async def known(self, instance_id: str) -> dict[str, Any] | None:
        """What the Consul agent knows about the service with this id; None if it has no such
        service.
        """
        path = f"/v1/agent/health/service/id/{quote(instance_id, safe='')}"
        answer = await self.read(path, timeout=_CALL_S)
        if answer.status == 404:
            return None
        known = self.json_of(answer)
        if not isinstance(known, dict) or not isinstance(known.get("Service"), dict):
            raise self.strange("the answer describes no service")
        return known

    def json_of(self, answer: ConsulAnswer) -> Any:
        """An answer's JSON. Raises PEER_UNAVAILABLE if it is not JSON."""
        try:
            return answer.json()
        except ValueError:
            raise self.strange("the answer is not JSON") from None
        except RecursionError:
            raise self.strange("the answer is nested too deeply") from None

    def strange(self, problem: str) -> MeshError:
        """The error for an answer that Consul would not send."""
        return _away(f"the server at {self.address} does not answer like Consul: {problem}")

    async def _request(
        self, method: str, path: str, params: Params, data: str | None, timeout: float
    ) -> ConsulAnswer:
        if self._datacenter and method == "GET" and not path.startswith("/v1/agent"):
            params = [*params, ("dc", self._datacenter)]
        extra: dict[str, Any] = {"headers": self._headers, "connections_timeout": timeout}
        if data is not None:
            extra["data"] = data
        send = self._http.get if data is None else self._http.put
        try:
            answer: ConsulAnswer = await send(_as_it_is, path, list(params), **extra)
        except TimeoutError:
            raise _away(f"Consul at {self.address} did not answer within {timeout:g} s") from None
        except (aiohttp.ClientError, OSError, consul.Timeout) as error:
            problem = str(error) or type(error).__name__
            raise _away(f"Consul at {self.address} cannot be reached: {problem}") from None
        except _LongBodyError:
            raise self.strange(f"the answer exceeds {_MAX_BODY_BYTES} bytes") from None
        self._check(answer, path)
        return answer

    def _check(self, answer: ConsulAnswer, path: str) -> None:
        status, shown = answer.status, _shown(answer.body)
        if status in (401, 403):
            raise MeshError(
                errors_pb2.ERROR_REASON_NOT_PERMITTED,
                f"Consul at {self.address} rejects {path.split('?')[0]} ({status}: {shown}). "
                "Check the token in discovery.consul.token_file or in the environment variable "
                "that discovery.consul.token_env names",
            )
        if status == 400 and b"HTTPS server" in answer.body:
            raise _away(
                f"Consul at {self.address} serves TLS. Set discovery.consul.address to "
                f"https://{self.address}"
            )
        if status == 400:
            raise MeshError(
                errors_pb2.ERROR_REASON_FIELD_INVALID,
                f"Consul at {self.address} rejects the request: {shown}",
            )
        # The agent's health endpoints say 429 and 503 for warning and critical, with a body.
        says_health = path.startswith("/v1/agent/health/") and status in (429, 503)
        unknown_check = path.startswith("/v1/agent/check/") and b"nknown check" in answer.body
        if status in (200, 404) or says_health or unknown_check:
            return
        raise _away(f"Consul at {self.address} answers {status}: {shown}")


class _Http(consul.aio.HTTPClient):  # type: ignore[misc]  # it has no types
    """py-consul's client with a session of our own: bounded connecting, TLS and no redirects."""

    def __init__(self, host: str, port: int, scheme: str, tls: ssl.SSLContext | bool) -> None:
        consul.base.HTTPClient.__init__(self, host, port, scheme)
        # Every watched name holds a connection.
        connector = aiohttp.TCPConnector(limit=0, ssl=tls)
        self._session = aiohttp.ClientSession(
            connector=connector,
            timeout=aiohttp.ClientTimeout(connect=_CONNECT_S),
            headers={"Accept-Encoding": "identity"},
            auto_decompress=False,  # a body is as large as it comes
        )

    async def _request(
        self,
        callback: Callable[[consul.base.Response], ConsulAnswer],
        method: str,
        uri: str,
        headers: dict[str, str] | None,
        data: str | None = None,
        connections_timeout: float | None = None,
        raw: bool = False,
    ) -> ConsulAnswer:
        # As py-consul's, but for the body, which it would read however long it is.
        timeout = aiohttp.ClientTimeout(total=connections_timeout, connect=_CONNECT_S)
        async with self._session.request(
            method, uri, headers=headers, data=data, timeout=timeout, allow_redirects=False
        ) as response:
            body = bytearray()
            async for chunk in response.content.iter_any():
                body += chunk
                if len(body) > _MAX_BODY_BYTES:
                    response.close()
                    raise _LongBodyError
            return callback(consul.base.Response(response.status, response.headers, bytes(body)))

    def uri(self, path: str, params: list[tuple[str, Any]] | None = None) -> str:
        # Paths come quoted: an id may have a slash.
        query = f"?{urlencode(params)}" if params else ""
        return f"{self.base_uri}{path}{query}"


class _LongBodyError(Exception):
    """An answer's body is longer than any that is read."""


def _as_it_is(response: Any) -> ConsulAnswer:
    return ConsulAnswer(response.code, response.headers.get("X-Consul-Index"), response.body)


def _ssl_context(config: ConsulConfig) -> ssl.SSLContext | bool:
    tls = config.tls
    if not config.address.startswith("https://"):
        return True
    if not tls.verify:
        return False
    try:
        context = ssl.create_default_context(cafile=tls.ca_file or None)
        if tls.cert_file:
            context.load_cert_chain(tls.cert_file, tls.key_file or None)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(f"can't use the TLS files for Consul: {error}") from None
    return context


def _away(message: str) -> MeshError:
    return MeshError(errors_pb2.ERROR_REASON_PEER_UNAVAILABLE, message)


def _shown(body: bytes) -> str:
    """The start of an answer, fit to be printed; Consul may quote a token."""
    text = mask_secrets(body[: 16 * _MAX_SHOWN].decode(errors="replace"))
    return printable(text).strip()[:_MAX_SHOWN] or "(nothing)"
