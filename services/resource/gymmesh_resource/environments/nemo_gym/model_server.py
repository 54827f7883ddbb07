"""The endpoint of NeMo Gym's model server: sends each episode's calls on to its own endpoint.

NeMo Gym knows one endpoint for all its episodes. Their calls are told apart by the metadata of
their parameters, or by the id in their path (`/ng-rollout/ID/v1/…`).
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import aiohttp
from aiohttp import web

from gymmesh_resource.environments.nemo_gym.client import NoAnswer, bounded_body
from gymmesh_resource.environments.nemo_gym.policy import (
    LARGEST,
    ends_episode,
    headers_of,
    policy_client,
)
from gymmesh_resource.model_endpoint import ModelEndpoint
from gymmesh_responses import CodecError, dumps, loads
from gymmesh_runtime.addresses import TOOLS_HARM, is_local, log_exposure

#: In the metadata of a call's parameters: the episode that it is of.
EPISODE_KEY: Final = "gymmesh_episode"
_PATH: Final = re.compile(
    r"(?:/ng-rollout/(?P<episode>[\w.-]+))?(?:/training-token-capture)?"
    r"/v1/(?P<call>responses|chat/completions|messages)"
)
_PIECE: Final = 1 << 16
_STOP_S: Final = 2.0
_LOGGER = logging.getLogger("gymmesh.resource.nemo_gym")


class ModelServer:
    """The server. `address`: host and port to listen on."""

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        if not host or not (port.isascii() and port.isdecimal() and 0 < int(port) < 65_536):
            raise ValueError(
                f"model_server is {address!r}; write an address such as 127.0.0.1:PORT"
            )
        self._host, self._port = host.strip("[]"), int(port)
        self._episodes: dict[str, ModelEndpoint] = {}
        self._runner: web.AppRunner | None = None
        self._http: aiohttp.ClientSession | None = None

    async def open(self) -> None:
        """Listen. Raises OSError where the port is taken."""
        self._http = policy_client()
        app = web.Application(client_max_size=LARGEST)
        app.router.add_post("/{path:.*}", self._answer)
        self._runner = web.AppRunner(
            app, access_log=None, shutdown_timeout=_STOP_S, handler_cancellation=True
        )
        await self._runner.setup()
        if not is_local(self._host):
            log_exposure("The model server for NeMo Gym listens", self._host, TOOLS_HARM)
        await web.TCPSite(self._runner, self._host, self._port).start()

    async def close(self) -> None:
        """End all connections. Harmless when it is not open."""
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None
        if self._http is not None:
            await self._http.close()
            self._http = None

    @contextmanager
    def serving(self, episode: str, endpoint: ModelEndpoint) -> Iterator[None]:
        """Send the calls of an episode on to its endpoint inside of the block."""
        self._episodes[episode] = endpoint
        try:
            yield
        finally:
            del self._episodes[episode]

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        path = _PATH.fullmatch(request.path)
        if path is None:
            return _refused(404, f"there is no endpoint at {request.path}")
        try:
            body = loads(await request.read())
        except CodecError:
            body = None
        if not isinstance(body, dict):
            return _refused(400, "the body must be a JSON object")
        marked = _take_mark(body)
        endpoint = self._episodes.get(path["episode"] or marked or "")
        if endpoint is None:
            return _refused(
                404,
                "the call belongs to no running episode: send the episode's id in the path, "
                f"/ng-rollout/ID/v1/…, or as metadata.{EPISODE_KEY}",
            )
        body["model"] = endpoint.model
        return await self._send_on(request, path["call"], body, endpoint)

    async def _send_on(
        self, request: web.Request, call: str, body: dict[str, Any], endpoint: ModelEndpoint
    ) -> web.StreamResponse:
        assert self._http is not None  # it listens
        url, headers = f"{endpoint.base_url}/{call}", headers_of(endpoint)
        try:
            async with self._http.post(url, data=dumps(body), headers=headers) as upstream:
                if upstream.content_type == "text/event-stream":
                    return await _stream(request, upstream)
                text = await bounded_body(upstream, LARGEST)
                if call == "responses" and upstream.status >= 400 and ends_episode(text):
                    return web.json_response(_cut(body))
                return web.Response(
                    status=upstream.status, body=text, content_type="application/json"
                )
        except (aiohttp.ClientError, NoAnswer) as error:
            _LOGGER.warning("a model call of a NeMo Gym server failed: %s", type(error).__name__)
            return _refused(502, "the model endpoint closed the connection before the answer ended")


async def _stream(request: web.Request, upstream: aiohttp.ClientResponse) -> web.StreamResponse:
    response = web.StreamResponse(status=upstream.status)
    response.content_type = "text/event-stream"
    await response.prepare(request)
    async for piece in upstream.content.iter_chunked(_PIECE):
        await response.write(piece)
    await response.write_eof()
    return response


def _take_mark(body: dict[str, Any]) -> str | None:
    """Takes the episode out of a call's metadata."""
    metadata = body.get("metadata")
    if not isinstance(metadata, dict) or EPISODE_KEY not in metadata:
        return None
    marked = metadata.pop(EPISODE_KEY)
    if not metadata:
        del body["metadata"]
    return marked if isinstance(marked, str) else None


def _cut(body: dict[str, Any]) -> dict[str, Any]:
    """The answer after a limit of the policy: nothing, cut short. Agents end the episode at it and
    have it judged; at an error they would have no verdict.
    """
    return {
        "id": "resp_over",
        "object": "response",
        "created_at": 0,
        "model": body["model"],
        "status": "incomplete",
        "incomplete_details": {"reason": "max_output_tokens"},
        "error": None,
        "output": [],
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "usage": None,
    }


def _refused(status: int, message: str) -> web.Response:
    return web.json_response({"error": {"message": message}}, status=status)
