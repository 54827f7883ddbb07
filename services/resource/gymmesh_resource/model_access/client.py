"""The model services that an environment calls: judges, simulated users.

Invariant: a model call ends before the environment's own call that made it times out, so that
environment code can still continue without the answer (a failsafe).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, TypeAlias

from gymmesh.errors.v1 import errors_pb2
from gymmesh.model.v1 import model_pb2
from gymmesh.responses.v1 import responses_pb2
from gymmesh_resource.errors import DefinitionError
from gymmesh_resource.model_access import metrics
from gymmesh_resource.model_access.usage import UsageCounter
from gymmesh_responses import item_from_json, new_message, params_from_json, text_of
from gymmesh_runtime.config import ConfigError, nearest
from gymmesh_runtime.errors import MeshError
from gymmesh_runtime.peers import Instance, PeerDirectory

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
    """The models of one environment, by its own names for them.

    `declared`: the names in its class. `mapped`: their names in the mesh, as configured.
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
        own = {*declared, *needed}
        self._known = {*own, *mapped}
        self._mapped = mapped
        self._directory: PeerDirectory | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        if own and (stray := next((name for name in mapped if name not in own), None)):
            raise DefinitionError(
                f"the environment does not call a model {stray!r}; {nearest(stray, own)}"
            )

    def __bool__(self) -> bool:
        """Whether any may be called."""
        return bool(self._known)

    @property
    def names(self) -> list[str]:
        """The names in the mesh of all models that may be called, sorted."""
        needed = {self._mapped.get(name, name) for name in self._needed}
        return sorted(needed | set(self._mapped.values()))

    async def open(self, directory: PeerDirectory) -> None:
        """Keeps the directory, and checks that the required models exist.

        Waits up to 60 s for them, since the mesh may be starting. Raises ConfigError.
        """
        self._directory = directory
        self._loop = asyncio.get_running_loop()
        await asyncio.gather(*(self._expect(name, directory) for name in self._needed))

    async def ask(
        self, model: str, request: model_pb2.CreateResponseRequest, usage_counter: UsageCounter
    ) -> ModelAnswer:
        """One answer. Raises MeshError as the model service does."""
        directory, service = self._find(model)
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
        messages = (text_of(item) for item in reply.response.output if item.HasField("message"))
        return ModelAnswer("\n".join(messages), reply.response)

    def from_thread(self, asking: Any) -> ModelAnswer:
        """The answer of a coroutine of `ask`, waited for in a thread of a synchronous method."""
        if self._loop is None:
            asking.close()
            raise RuntimeError("the environment is not being served, so it can't call models")
        try:
            running = asyncio.get_running_loop()
        except RuntimeError:
            running = None
        if running is not None:
            asking.close()
            raise RuntimeError(
                "`ask_sync` would block the event loop. In async methods, write `await ask(…)`"
            )
        # The coroutine has its own bound.
        answer: ModelAnswer = asyncio.run_coroutine_threadsafe(asking, self._loop).result()
        return answer

    def _find(self, model: str) -> tuple[PeerDirectory, str]:
        if model not in self._known:
            raise DefinitionError(
                f"The environment {self._environment!r} calls the model {model!r}, but the class "
                f"of the environment does not declare this model. Write models = ({model!r},) in "
                "the class."
            )
        if self._directory is None:
            raise RuntimeError(
                "the environment is not open: an environment can call models only in a session"
            )
        return self._directory, self._mapped.get(model, model)

    async def _expect(self, name: str, directory: PeerDirectory) -> None:
        service = self._mapped.get(name, name)
        try:
            await directory.pick(MODEL_SERVICE, service, timeout=_START_S)
        except MeshError as error:
            raise ConfigError(
                f"the environment calls a model {name!r}, and {error.message}. Add a model of "
                f"that name, or map the name to a model: models: {{{name}: policy}}",
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
    affinity = request.rollout_id

    def left() -> float:
        return max(deadline - time.monotonic(), 0.0)

    async def answer_of(instance: Instance) -> model_pb2.CreateResponseResponse:
        answer: model_pb2.CreateResponseResponse = await directory.peer(instance).CreateResponse(
            request, timeout=left()
        )
        return answer

    try:
        instance = await directory.pick(MODEL_SERVICE, service, affinity=affinity, timeout=left())
        try:
            return await answer_of(instance)
        except MeshError as error:
            other = await directory.instead(instance, error, affinity=affinity, timeout=left())
            if other is None:
                raise
            return await answer_of(other)
    except MeshError as error:
        if error.reason != errors_pb2.ERROR_REASON_DEADLINE_PASSED:
            raise
        raise MeshError(
            errors_pb2.ERROR_REASON_MODEL_TIMEOUT,
            f"the model {service!r} did not answer within the time that was left for the call of "
            "the environment",
            metadata={"model": service},
        ) from None


def conversation_params(
    prompt: Prompt, system: str | None, params: Mapping[str, Any]
) -> responses_pb2.ResponseParams:
    """The parameters of a call, with what is asked in them. Raises CodecError."""
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


def _check(response: responses_pb2.Response, service: str) -> None:
    """Refuse a response that is no answer, which model services themselves make an error."""
    if not response.HasField("error") and response.status not in _NO_ANSWER:
        return
    code = response.error.code or response.status
    raise MeshError(
        errors_pb2.ERROR_REASON_MODEL_ANSWER_INVALID,
        f"the model {service!r} returned a failed response ({code})",
        metadata={"cause": code},
    )
