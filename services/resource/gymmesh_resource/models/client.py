"""The model services that an environment calls: judges, simulated users.

Invariant: a call ends before the environment's own call that made it runs out of time, so that
environment code can still do without the answer (a failsafe).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from gymmesh.errors.v1 import errors_pb2
from gymmesh.model.v1 import model_pb2
from gymmesh.responses.v1 import responses_pb2
from gymmesh_responses import item_from_json, new_message, params_from_json, text_of
from gymmesh_runtime import metrics
from gymmesh_runtime.config.errors import ConfigError, nearest
from gymmesh_runtime.errors import MeshError
from gymmesh_runtime.peers import PeerDirectory

from ..errors import DefinitionError
from .usage import UsageCounter

Prompt: TypeAlias = "str | Sequence[responses_pb2.Item | Mapping[str, Any]]"
"""A user's message as text, or a whole conversation: items, as messages or as Responses JSON."""

MODEL_SERVICE = "gymmesh.model.v1.ModelService"
# Seconds that a call outside of any RPC may take.
_LONGEST_S = 120.0
# The part of the time left that the caller keeps for itself, and its most in seconds.
_KEPT_PART, _KEPT_S = 0.1, 1.0
_START_S = 60.0  # for the models to appear, when the mesh starts
_NOTHING = responses_pb2.Usage()
_NO_ANSWER = frozenset(("failed", "cancelled", "in_progress", "queued"))


class CreatesResponse(Protocol):
    """A model service, as far as it is called."""

    async def CreateResponse(
        self, request: model_pb2.CreateResponseRequest, *, timeout: float
    ) -> model_pb2.CreateResponseResponse:
        """One answer."""


@dataclass(frozen=True, slots=True)
class ModelAnswer:
    """A model's answer: the text of its messages, and the whole response with its usage."""

    text: str
    response: responses_pb2.Response

    @property
    def usage(self) -> responses_pb2.Usage:
        """Tokens as the endpoint counted them."""
        return self.response.usage


@dataclass(frozen=True, slots=True)
class CallScope:
    """The RPC that environment code runs in: its end on the monotonic clock in seconds, and
    where its model calls are counted (None: with the session).
    """

    deadline: float
    usage_counter: UsageCounter | None = None


in_call: ContextVar[CallScope | None] = ContextVar("gymmesh_in_call", default=None)


class Models:
    """The models of one environment by its own names for them.

    `declared`: the names that its class gives; `mapped`: theirs in the mesh, as configured.
    Raises `DefinitionError` for a mapping of a name that the environment does not have.
    """

    def __init__(
        self,
        environment: str,
        *,
        needed: Sequence[str],
        declared: Sequence[str],
        mapped: Mapping[str, str],
    ) -> None:
        self._environment = environment
        self._needed = tuple(needed)
        self._known = {*declared, *needed, *mapped}
        self._mapped = mapped
        self._directory: PeerDirectory | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        own = {*declared, *needed}
        for name in mapped:
            if own and name not in own:
                raise DefinitionError(
                    f"the environment calls no model {name!r}; {nearest(name, own)}"
                )

    def __bool__(self) -> bool:
        """Whether any may be called."""
        return bool(self._known)

    @property
    def names(self) -> list[str]:
        """The names in the mesh of all models that may be called, sorted."""
        needed = {self._mapped.get(name, name) for name in self._needed}
        return sorted(needed | set(self._mapped.values()))

    async def open(self, directory: PeerDirectory, *, timeout: float = _START_S) -> None:
        """Take the directory, and see that the needed models are there.

        In a mesh that starts, waits up to `timeout` seconds for them. Raises ConfigError.
        """
        self._directory = directory
        self._loop = asyncio.get_running_loop()
        await asyncio.gather(*(self._expect(name, directory, timeout) for name in self._needed))

    async def ask(
        self,
        model: str,
        prompt: Prompt,
        *,
        system: str | None,
        seed: int | None,
        params: Mapping[str, Any],
        rollout_id: str,
        usage_counter: UsageCounter,
    ) -> ModelAnswer:
        """One answer. Raises MeshError as the model service does, CodecError for bad params."""
        directory, service = self._find(model)
        request = model_pb2.CreateResponseRequest(
            params=_params(prompt, system, params), rollout_id=rollout_id, seed=seed
        )
        outcome = "ok"
        try:
            reply = await _create(directory, service, request, _deadline())
            # A kept answer consumed nothing.
            usage_counter.add(service, _NOTHING if reply.from_cache else reply.response.usage)
            _check(reply.response, service)
        except MeshError as error:
            outcome = error.reason_name
            raise
        finally:
            metrics.ENVIRONMENT_MODEL_CALLS.labels(self._environment, service, outcome).inc()
        return ModelAnswer(_text(reply.response), reply.response)

    def from_thread(self, asking: Any) -> ModelAnswer:
        """The answer of a coroutine of `ask`, waited for in a thread of a synchronous method."""
        if self._loop is None:
            asking.close()
            raise RuntimeError("the environment is not being served: there are no models to ask")
        try:
            running = asyncio.get_running_loop()
        except RuntimeError:
            running = None
        if running is not None:
            asking.close()
            raise RuntimeError("ask_sync would block the event loop; in async methods await ask")
        # The coroutine has its own bound.
        answer: ModelAnswer = asyncio.run_coroutine_threadsafe(asking, self._loop).result()
        return answer

    def _find(self, model: str) -> tuple[PeerDirectory, str]:
        if model not in self._known:
            raise DefinitionError(
                f"The environment {self._environment!r} asks a model {model!r} that it does not "
                f"declare; write models = ({model!r},) in its class."
            )
        if self._directory is None:
            raise RuntimeError("the environment is not open: models can be asked in sessions")
        return self._directory, self._mapped.get(model, model)

    async def _expect(self, name: str, directory: PeerDirectory, timeout: float) -> None:
        service = self._mapped.get(name, name)
        try:
            await directory.pick(MODEL_SERVICE, service, timeout=timeout)
        except MeshError as error:
            raise ConfigError(
                f"the environment calls a model {name!r}, and {error.message}; add a model of "
                f"that name, or map it to one: models: {{{name}: policy}}",
                path=f"environments.{self._environment}",
            ) from None


def _deadline() -> float:
    """When an answer must be there: a little before the call that it is for must end."""
    now, call = time.monotonic(), in_call.get()
    left = _LONGEST_S if call is None else min(call.deadline - now, _LONGEST_S * 30)
    return now + left - min(left * _KEPT_PART, _KEPT_S)


async def _create(
    directory: PeerDirectory,
    service: str,
    request: model_pb2.CreateResponseRequest,
    deadline: float,
) -> model_pb2.CreateResponseResponse:
    """The service's answer; raises MODEL_TIMEOUT when it takes too long, here or at the model."""
    try:
        left, affinity = deadline - time.monotonic(), request.rollout_id
        instance = await directory.pick(MODEL_SERVICE, service, affinity=affinity, timeout=left)
        try:
            return await _create_at(directory.peer(instance), request, deadline)
        except MeshError as error:
            other = directory.instead(instance, error, affinity=affinity)
            if other is None:
                raise
            return await _create_at(directory.peer(other), request, deadline)
    except MeshError as error:
        if error.reason != errors_pb2.ERROR_REASON_DEADLINE_PASSED:
            raise
        raise MeshError(
            errors_pb2.ERROR_REASON_MODEL_TIMEOUT,
            f"the model {service!r} gave no answer in the time that the environment had",
            metadata={"model": service},
        ) from None


async def _create_at(
    peer: CreatesResponse, request: model_pb2.CreateResponseRequest, deadline: float
) -> model_pb2.CreateResponseResponse:
    return await peer.CreateResponse(request, timeout=max(deadline - time.monotonic(), 0.0))


def _params(
    prompt: Prompt, system: str | None, params: Mapping[str, Any]
) -> responses_pb2.ResponseParams:
    message = params_from_json(dict(params))
    message.input_omitted = False
    if system is not None:
        message.instructions = system
    parts = [new_message("user", prompt)] if isinstance(prompt, str) else prompt
    message.input.extend(
        part if isinstance(part, responses_pb2.Item) else item_from_json(dict(part))
        for part in parts
    )
    return message


def _text(response: responses_pb2.Response) -> str:
    return "\n".join(text_of(item) for item in response.output if item.HasField("message"))


def _check(response: responses_pb2.Response, service: str) -> None:
    """Refuse a response that is no answer, which model services themselves make an error."""
    if not response.HasField("error") and response.status not in _NO_ANSWER:
        return
    code = response.error.code or response.status
    raise MeshError(
        errors_pb2.ERROR_REASON_MODEL_ANSWER_INVALID,
        f"the model {service!r} gave a response that is no answer ({code})",
        metadata={"cause": code},
    )
