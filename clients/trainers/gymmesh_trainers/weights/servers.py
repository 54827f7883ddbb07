"""The calls by which vLLM and SGLang change their weights.

Facts: vLLM's `/pause`, `/resume`, `/collective_rpc`, `/update_weight_version`,
`/reset_prefix_cache` and `/abort_requests` (VLLM_SERVER_DEV_MODE=1), `/v1/load_lora_adapter` and
`/v1/unload_lora_adapter` (VLLM_ALLOW_RUNTIME_LORA_UPDATING=1); SGLang's `/pause_generation`,
`/continue_generation`, `/update_weights_from_disk`, `/load_lora_adapter`, `/unload_lora_adapter`
and `/abort_request`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, Literal

import aiohttp

from gymmesh_client import UserError
from gymmesh_model.config import ModelConfig
from gymmesh_responses import CodecError, dumps, loads

Json = dict[str, Any]
ServerKind = Literal["vllm", "sglang"]

_CONTROL_S: Final = 60.0  # for a call that loads nothing; pausing ends the step that computes
_MOST_SAID: Final = 300  # characters of a server's words
_MOST_BYTES: Final = 1024 * 1024
_KINDS: Final[Mapping[str, ServerKind]] = {
    "vllm": "vllm",
    "vllm_tokens": "vllm",
    "chat": "vllm",
    "sglang": "sglang",
}


@dataclass(frozen=True, slots=True)
class WeightsEndpoint:
    """An inference server whose weights can be changed.

    Attributes:
        url: its address, with or without the API's version (`http://gpu-0:8000/v1`).
        kind: `vllm` or `sglang`.
        api_key: sent as a bearer token; never part of an error or log line.
    """

    url: str
    kind: ServerKind = "vllm"
    api_key: str = field(default="", repr=False)

    def __post_init__(self) -> None:
        if not self.url.startswith(("http://", "https://")):
            raise UserError(f"endpoint: {self.url!r} is not a URL. Pass http://HOST:PORT")
        if self.kind not in ("vllm", "sglang"):
            raise UserError(f"endpoint kind: there is no {self.kind!r}; known: vllm, sglang")

    @property
    def root(self) -> str:
        """The server's own address."""
        return self.url.rstrip("/").removesuffix("/v1")


def endpoints_of(config: ModelConfig) -> list[WeightsEndpoint]:
    """The servers of a model's configuration; none for a backend whose weights are not theirs."""
    kind = _KINDS.get(config.backend)
    if kind is None:
        return []
    key = str(config.api_key) if config.api_key else ""
    return [WeightsEndpoint(url, kind, key) for url in config.bases]


class EndpointFailed(Exception):
    """A server did not do what was requested. The text is the cause, without the server's address.

    status: the status of the HTTP answer; 0: there was no answer, or its status was 200.
    unreached: no connection was made, so the server did not get the request.
    """

    def __init__(self, cause: str, status: int = 0, *, unreached: bool = False) -> None:
        self.status = status
        self.unreached = unreached
        super().__init__(cause)


class InferenceServer(ABC):
    """One server. Each call is bounded, and raises EndpointFailed."""

    #: What must be set for the server to offer each path.
    needs: ClassVar[Mapping[str, str]]

    def __init__(self, http: aiohttp.ClientSession, endpoint: WeightsEndpoint) -> None:
        self._http = http
        self.endpoint = endpoint

    @abstractmethod
    async def pause(self, *, aborts: bool) -> None:
        """Stop sampling and forget what is cached. aborts: end answers; else they wait."""

    @abstractmethod
    async def load(self, folder: str, version: int, timeout_s: float) -> None:
        """Load full weights while paused, and name them by their version."""

    @abstractmethod
    async def resume(self) -> None:
        """Sample again."""

    @abstractmethod
    async def load_adapter(self, name: str, folder: str, timeout_s: float) -> None:
        """Load an adapter; the same one again is a success."""

    @abstractmethod
    async def unload_adapter(self, name: str) -> None:
        """Unload an adapter; one that is not loaded is a success."""

    @abstractmethod
    async def abort_all(self) -> None:
        """End all answers."""

    async def adapters(self) -> dict[str, str]:
        """The folders of the loaded adapters, by name."""
        said = await self._call("GET", "/v1/models")
        listed = said.get("data")
        models = listed if isinstance(listed, list) else []
        return {
            str(one["id"]): str(one.get("root") or "")
            for one in models
            if isinstance(one, dict) and one.get("id") and one.get("parent")
        }

    async def _post(
        self, path: str, body: Json | None = None, timeout_s: float = _CONTROL_S
    ) -> Any:
        return await self._call("POST", path, body, timeout_s)

    async def _call(
        self, method: str, path: str, body: Json | None = None, timeout_s: float = _CONTROL_S
    ) -> Any:
        """What the server says, an object; empty where it says nothing that is one."""
        headers = {"Content-Type": "application/json"}
        if self.endpoint.api_key:
            headers["Authorization"] = f"Bearer {self.endpoint.api_key}"
        bound = aiohttp.ClientTimeout(total=timeout_s)
        data = None if method == "GET" else dumps(body or {})
        shown = path.partition("?")[0]
        try:
            async with self._http.request(
                method,
                self.endpoint.root + path,
                data=data,
                headers=headers,
                timeout=bound,
                allow_redirects=False,
            ) as answer:
                raw, status = await answer.content.read(_MOST_BYTES), answer.status
        except TimeoutError:
            raise EndpointFailed(f"{shown} did not answer within {timeout_s:g} s") from None
        except (aiohttp.ClientError, OSError) as error:
            cause = self._masked(str(error) or type(error).__name__)
            unreached = isinstance(error, aiohttp.ClientConnectorError)
            raise EndpointFailed(
                f"{shown} cannot be reached: {cause}", unreached=unreached
            ) from None
        try:
            found = loads(raw)
        except CodecError:
            found = None
        said = found if isinstance(found, dict) else {}
        if status != 200:
            raise EndpointFailed(self._refusal(shown, status, said, raw), status)
        if said.get("success") is False:
            words = self._masked(
                str(said.get("message") or said.get("error_message") or "no cause")
            )
            raise EndpointFailed(f"{shown}: {words}")
        return said

    def _refusal(self, path: str, status: int, said: Json, raw: bytes) -> str:
        error = said.get("error")
        words = error.get("message") if isinstance(error, dict) else error
        words = words or said.get("message") or said.get("error_message") or said.get("detail")
        text = self._masked(str(words or raw.decode(errors="replace") or "no cause"))
        need = self.needs.get(path) if status in (404, 405) and "detail" in said else None
        return f"{path}: HTTP {status}: {text}" + (
            f"; start the server with {need}" if need else ""
        )

    def _masked(self, text: str) -> str:
        key = self.endpoint.api_key
        return " ".join((text.replace(key, "…") if key else text).split())[:_MOST_SAID]


class VllmServer(InferenceServer):
    """vLLM 0.32 and later; earlier ones as far as they have these calls."""

    needs: ClassVar[Mapping[str, str]] = {
        "/pause": "VLLM_SERVER_DEV_MODE=1",
        "/collective_rpc": "VLLM_SERVER_DEV_MODE=1",
        "/abort_requests": "VLLM_SERVER_DEV_MODE=1",
        "/v1/load_lora_adapter": "--enable-lora and VLLM_ALLOW_RUNTIME_LORA_UPDATING=1",
    }

    async def pause(self, *, aborts: bool) -> None:
        mode = "abort" if aborts else "keep"
        await self._post(f"/pause?mode={mode}&clear_cache=true")

    async def load(self, folder: str, version: int, timeout_s: float) -> None:
        body = {"method": "reload_weights", "kwargs": {"weights_path": folder}}
        await self._post("/collective_rpc", {**body, "timeout": timeout_s}, timeout_s)
        # What waits has cached the old weights' keys and values.
        await self._post("/reset_prefix_cache?reset_running_requests=true")
        try:
            await self._post("/update_weight_version", {"new_version": str(version)})
        except EndpointFailed as error:
            if error.status != 404:  # older ones have no name for their weights
                raise

    async def resume(self) -> None:
        await self._post("/resume")

    async def load_adapter(self, name: str, folder: str, timeout_s: float) -> None:
        known = (await self.adapters()).get(name)
        if known == folder:
            return
        if known is not None:
            raise EndpointFailed(f"the adapter '{name}' is already loaded from {known}")
        body = {"lora_name": name, "lora_path": folder}
        await self._post("/v1/load_lora_adapter", body, timeout_s)

    async def unload_adapter(self, name: str) -> None:
        if name in await self.adapters():
            await self._post("/v1/unload_lora_adapter", {"lora_name": name})

    async def abort_all(self) -> None:
        await self._post("/abort_requests", {"request_ids": []})


class SglangServer(InferenceServer):
    """SGLang."""

    needs: ClassVar[Mapping[str, str]] = {
        "/pause_generation": "a newer version of SGLang",
        "/load_lora_adapter": "--enable-lora",
    }

    async def pause(self, *, aborts: bool) -> None:
        # `retract` gives up what is cached, so that it is computed anew with the new weights.
        await self._post("/pause_generation", {"mode": "abort" if aborts else "retract"})

    async def load(self, folder: str, version: int, timeout_s: float) -> None:
        body = {"model_path": folder, "weight_version": str(version), "flush_cache": True}
        await self._post("/update_weights_from_disk", body, timeout_s)

    async def resume(self) -> None:
        await self._post("/continue_generation")

    async def load_adapter(self, name: str, folder: str, timeout_s: float) -> None:
        if (await self.adapters()).get(name) == folder:
            return
        body = {"lora_name": name, "lora_path": folder}
        await self._post("/load_lora_adapter", body, timeout_s)

    async def unload_adapter(self, name: str) -> None:
        await self._post("/unload_lora_adapter", {"lora_name": name})

    async def abort_all(self) -> None:
        await self._post("/abort_request", {"rid": "", "abort_all": True})


def server_of(http: aiohttp.ClientSession, endpoint: WeightsEndpoint) -> InferenceServer:
    """The server of its kind."""
    made: type[InferenceServer] = VllmServer if endpoint.kind == "vllm" else SglangServer
    return made(http, endpoint)
