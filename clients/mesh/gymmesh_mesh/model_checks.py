"""Checks of the models of a configuration: fetches their weights, and tries one call with each."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import msgspec

from gymmesh.errors.v1 import errors_pb2 as errors
from gymmesh.model.v1 import model_pb2
from gymmesh.responses.v1 import responses_pb2
from gymmesh_mesh.config import MeshConfig
from gymmesh_mesh.processes import StartError
from gymmesh_model.backends.endpoint import excerpt, fix_of, without_fix
from gymmesh_model.backends.endpoint import shown_url as shown_url
from gymmesh_model.config import ModelConfig
from gymmesh_model.service import ModelService
from gymmesh_responses import CodecError, loads, params_from_json, text_of
from gymmesh_runtime.config import ConfigError, nearest
from gymmesh_runtime.context import CallContext
from gymmesh_runtime.errors import MeshError
from gymmesh_runtime.peers import PeerDirectory
from gymmesh_runtime.security import Credentials, SecurityConfig

PROMPT: Final = "Reply with the single word: ready"
_AT_A_TIME: Final = 4
_MAX_OUTPUT_TOKENS: Final = 32
_SET_S: Final = 30.0
_MODEL: Final = "gymmesh.model.v1.ModelService"
_CREATE: Final = "gymmesh.model.v1.ModelService/CreateResponse"

_TOOL: Final = "add"
_TOOL_QUESTION: Final = {
    "input": "What is 17 plus 25? Call the tool, and say nothing else.",
    "max_output_tokens": 512,
    "tools": [
        {
            "type": "function",
            "name": _TOOL,
            "description": "Adds two numbers.",
            "parameters": {
                "type": "object",
                "properties": {"left": {"type": "integer"}, "right": {"type": "integer"}},
                "required": ["left", "right"],
                "additionalProperties": False,
            },
            "strict": True,
        }
    ],
}
# Some endpoints know no `required`; what a model does with `auto` is then all there is to see.
_CHOICES: Final = ("required", "auto")


@dataclass(frozen=True, slots=True)
class ModelCheck:
    """The result of one call to a model. `url` is the endpoint's URL without user name and
    password.

    latency_s: seconds of the call, without the time to open the model. reason: the reason of a
    failure, else empty; `CONFIG` if the model could not be opened. fix: what to do about the
    failure. capabilities: includes `tools` only if the model made a tool call whose arguments can
    be read. no_tools: what the model answered in place of a tool call.
    """

    name: str
    backend: str
    url: str = ""
    endpoint_model: str = ""
    latency_s: float = 0.0
    text: str = ""
    input_tokens: int = 0
    output_tokens: int = 0
    capabilities: tuple[str, ...] = ()
    no_tools: str = ""
    reason: str = ""
    message: str = ""
    fix: str = ""

    @property
    def ok(self) -> bool:
        """Whether the model answered."""
        return not self.reason


@dataclass(frozen=True, slots=True)
class Weights:
    """The weights of a model: the file, or None if the model has no weights to fetch."""

    name: str
    backend: str
    path: Path | None = None
    size: int = 0


def named(config: MeshConfig, names: Sequence[str]) -> dict[str, ModelConfig]:
    """The models of a configuration with these names; all models if no name is given. Raises
    ConfigError.
    """
    for name in names:
        if name not in config.models:
            problem = f"there is no model {name!r}; {nearest(name, config.models)}"
            raise ConfigError(problem, path="models")
    return {name: one for name, one in config.models.items() if not names or name in names}


async def set_weights(
    addresses: Sequence[str],
    version: int,
    security: SecurityConfig | None = None,
    adapter: str = "",
) -> dict[str, int | None]:
    """Announce the version of the weights to running model services.

    Args:
        addresses: host and port of each service.
        security: certificates and a token to present to the services.
        adapter: the name of the adapter at the endpoints that generates. Empty: no adapter.

    Returns:
        The previous version by address; None if the service had none.

    Raises MeshError if a service refuses or cannot be reached. The message has the address. The
    services before it in `addresses` already have the new version.
    """
    directory = PeerDirectory(credentials=Credentials(security))
    before: dict[str, int | None] = {}
    try:
        for address in addresses:
            peer: Any = directory.plain_peer(address, _MODEL)
            request = model_pb2.SetWeightsVersionRequest(version=version, adapter=adapter)
            try:
                reply = await peer.SetWeightsVersion(request, timeout=_SET_S)
            except MeshError as error:
                error.message = f"{address}: {error.message}"
                raise
            before[address] = reply.previous if reply.HasField("previous") else None
    finally:
        await directory.close()
    return before


async def pull(name: str, model: ModelConfig) -> Weights:
    """Fetch the weights of an embedded model if they are missing. Raises StartError with one
    sentence.
    """
    try:
        path = await model.facts.fetch_weights(model.model)
    except ValueError as error:
        raise StartError(f"model '{name}': {error}") from None
    return Weights(name, model.backend, path, path.stat().st_size if path else 0)


async def check(
    models: dict[str, ModelConfig], *, prompt: str = PROMPT, timeout: float = 60.0
) -> list[ModelCheck]:
    """Try one call with each model. If a model has several endpoints, try each endpoint, in their
    order.

    timeout: time limit of a call, in seconds. Opening a model has its own time limits. Raises
    nothing: failures are in the results.
    """
    places = asyncio.Semaphore(_AT_A_TIME)

    async def one(name: str, model: ModelConfig) -> ModelCheck:
        async with places:
            return await _check_one(name, model, prompt, timeout)

    return await asyncio.gather(
        *(one(name, single) for name, model in models.items() for single in _singles(model))
    )


def _singles(model: ModelConfig) -> list[ModelConfig]:
    """The model with each of its endpoints alone, tried once and never answered from a cache."""
    bare = msgspec.structs.replace(model, max_retries=0, cache=None)
    if not model.urls:
        return [bare]
    return [msgspec.structs.replace(bare, url=url, urls=[]) for url in model.urls]


async def _check_one(name: str, model: ModelConfig, prompt: str, timeout: float) -> ModelCheck:
    bare = ModelCheck(name, model.backend, shown_url(model.url), model.model or "")
    service = ModelService(model, name, f"model-{name}-check")
    try:
        await service.open(PeerDirectory())
    except ConfigError as error:
        return replace(bare, reason="CONFIG", message=str(error), fix="fix the configuration")
    try:
        return await _call(service, bare, prompt, timeout, is_recorded=model.facts.is_recorded)
    finally:
        await service.close()


async def _call(
    service: ModelService, bare: ModelCheck, prompt: str, timeout: float, *, is_recorded: bool
) -> ModelCheck:
    about = await service.GetModel(model_pb2.GetModelRequest(), CallContext("GetModel"))
    bare = replace(
        bare,
        endpoint_model=about.endpoint_model,
        capabilities=tuple(field.name for field, _ in about.capabilities.ListFields()),
    )
    started = time.monotonic()
    try:
        request = model_pb2.CreateResponseRequest(
            params=params_from_json({"input": prompt, "max_output_tokens": _MAX_OUTPUT_TOKENS})
        )
        reply = await service.CreateResponse(request, CallContext(_CREATE, started + timeout))
    except MeshError as error:
        message, fix = without_fix(error), fix_of(error)
        if is_recorded:
            fix = (
                "pass a prompt of the recording with --prompt; a recording can't answer other "
                "prompts"
            )
        elif error.reason == errors.ERROR_REASON_MODEL_TIMEOUT:
            fix = "raise --timeout, or check how busy the endpoint is"
        return replace(bare, reason=error.reason_name, message=message, fix=fix)
    except CodecError as error:
        return replace(bare, reason="FIELD_INVALID", message=str(error), fix="correct --prompt")
    latency_s = time.monotonic() - started
    usage = reply.response.usage
    if "tools" in bare.capabilities and not is_recorded:
        bare = await _with_tools(service, bare, timeout)
    return replace(
        bare,
        latency_s=latency_s,
        text=" ".join(text_of(item) for item in reply.response.output if item.HasField("message")),
        input_tokens=max(0, usage.input_tokens),
        output_tokens=max(0, usage.output_tokens),
    )


async def _with_tools(service: ModelService, check: ModelCheck, timeout: float) -> ModelCheck:
    """The check, which says `tools` only if the model does call one."""
    seen = ""
    for choice in _CHOICES:
        params = params_from_json({**_TOOL_QUESTION, "tool_choice": choice})
        context = CallContext(_CREATE, time.monotonic() + timeout)
        try:
            request = model_pb2.CreateResponseRequest(params=params)
            reply = await service.CreateResponse(request, context)
        except MeshError as error:
            seen = f"with tool_choice {choice}: {error.message}"
            continue
        seen = _without_call(reply.response)
        if not seen:
            return check
        break
    capable = tuple(one for one in check.capabilities if one != "tools")
    return replace(check, capabilities=capable, no_tools=seen)


def _without_call(response: responses_pb2.Response) -> str:
    """What an answer has in place of the requested tool call; empty if it has that."""
    calls = [item.function_call for item in response.output if item.HasField("function_call")]
    if not calls:
        text = " ".join(text_of(item) for item in response.output if item.HasField("message"))
        return f"only text: {excerpt(text)}" if text else "neither a tool call nor text"
    call = calls[0]
    if call.name != _TOOL:
        return f"a call of the tool '{excerpt(call.name)}', which was not offered"
    try:
        arguments = loads(call.arguments)
    except CodecError:
        arguments = None
    if not isinstance(arguments, dict):
        return f"a tool call whose arguments are not a JSON object: {excerpt(call.arguments)}"
    return ""
