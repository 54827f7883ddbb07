"""A server that changes its weights as vLLM or SGLang does, without any.

    async with WeightsServer() as server:
        …WeightsEndpoint(server.url)…
        assert server.weights == "/weights/step-4"

It has the calls that `gymmesh_trainers.weights` makes, and refuses them as the real ones do.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Literal

from aiohttp import web

Json = dict[str, Any]
Kind = Literal["vllm", "sglang"]


@dataclass
class WeightsServer:
    """The server.

    kind: whose calls it has. is_dev: whether it offers full weights; has_lora: adapters.
    key: the API key that it asks for; empty: none. fails: by path, the status and the words of the
    next answer. hangs: paths that are never answered. before: awaited before each call, with its
    path. weights: the folder that was loaded; version: what it calls them. adapters: folders by
    name. is_paused: whether it samples nothing; mode: how it was paused. calls: the paths in order.
    """

    kind: Kind = "vllm"
    is_dev: bool = True
    has_lora: bool = True
    key: str = ""
    fails: dict[str, tuple[int, str]] = field(default_factory=dict)
    hangs: set[str] = field(default_factory=set)
    before: Callable[[str], Awaitable[None]] | None = None
    weights: str = ""
    version: str = "default"
    adapters: dict[str, str] = field(default_factory=dict)
    is_paused: bool = False
    mode: str = ""
    calls: list[str] = field(default_factory=list)
    port: int = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def __aenter__(self) -> WeightsServer:
        app = web.Application(middlewares=[self._checked])
        app.router.add_get("/v1/models", self._models)
        for path, answer in (self._vllm() if self.kind == "vllm" else self._sglang()).items():
            app.router.add_post(path, answer)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1, handler_cancellation=True)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", self.port).start()
        self.port = self._runner.addresses[0][1]
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._runner.cleanup()

    def _vllm(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        if self.is_dev:
            found |= {
                "/pause": self._pause,
                "/resume": self._resume,
                "/collective_rpc": self._reload,
                "/reset_prefix_cache": self._done,
                "/update_weight_version": self._named,
                "/abort_requests": self._done,
            }
        if self.has_lora:
            found["/v1/load_lora_adapter"] = self._load_adapter
            found["/v1/unload_lora_adapter"] = self._unload_adapter
        return found

    def _sglang(self) -> dict[str, Any]:
        return {
            "/pause_generation": self._pause,
            "/continue_generation": self._resume,
            "/update_weights_from_disk": self._update,
            "/abort_request": self._done,
            "/load_lora_adapter": self._load_adapter,
            "/unload_lora_adapter": self._unload_adapter,
        }

    @web.middleware
    async def _checked(self, request: web.Request, handler: Any) -> web.StreamResponse:
        path = request.path
        self.calls.append(path)
        if self.before is not None:
            await self.before(path)
        if path in self.hangs:
            await asyncio.Event().wait()
        if self.key and request.headers.get("Authorization") != f"Bearer {self.key}":
            return web.json_response({"error": f"{self.key} was expected"}, status=401)
        if path in self.fails:
            status, words = self.fails.pop(path)
            body: Json = {"success": False, "message": words}
            if self.kind == "vllm":
                body = {"error": {"message": words, "code": status}}
            return web.json_response(body, status=status)
        try:
            answer: web.StreamResponse = await handler(request)
        except web.HTTPNotFound:
            return web.json_response({"detail": "Not Found"}, status=404)
        return answer

    async def _models(self, request: web.Request) -> web.Response:
        listed = [{"id": "base", "root": "base", "parent": None}]
        listed += [
            {"id": name, "root": folder, "parent": "base"} for name, folder in self.adapters.items()
        ]
        return web.json_response({"object": "list", "data": listed})

    async def _done(self, request: web.Request) -> web.Response:
        return web.json_response({"success": True})

    async def _pause(self, request: web.Request) -> web.Response:
        self.is_paused = True
        if self.kind == "vllm":
            assert request.query["clear_cache"] == "true"
            self.mode = request.query["mode"]
        else:
            self.mode = (await request.json())["mode"]
        return web.json_response({"status": "paused"})

    async def _resume(self, request: web.Request) -> web.Response:
        self.is_paused = False
        return web.json_response({"status": "resumed"})

    async def _reload(self, request: web.Request) -> web.Response:
        body = await request.json()
        assert body["method"] == "reload_weights"
        assert self.is_paused
        self.weights = body["kwargs"]["weights_path"]
        return web.json_response({"results": [None]})

    async def _named(self, request: web.Request) -> web.Response:
        self.version = (await request.json())["new_version"]
        return web.json_response({"success": True, "new_version": self.version})

    async def _update(self, request: web.Request) -> web.Response:
        body = await request.json()
        assert self.is_paused
        self.weights, self.version = body["model_path"], body["weight_version"]
        return web.json_response({"success": True, "message": "Succeeded"})

    async def _load_adapter(self, request: web.Request) -> web.Response:
        body = await request.json()
        if body["lora_name"] in self.adapters:
            return web.json_response({"error": {"message": "already loaded"}}, status=400)
        self.adapters[body["lora_name"]] = body["lora_path"]
        return web.json_response({"success": True})

    async def _unload_adapter(self, request: web.Request) -> web.Response:
        self.adapters.pop((await request.json())["lora_name"])
        return web.json_response({"success": True})
