"""What the model service asks of a backend."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import msgspec

from gymmesh.model.v1 import model_pb2
from gymmesh.responses.v1 import responses_pb2
from gymmesh_model.backends.calls import CallProgress, CallSettings, RetryLog
from gymmesh_model.backends.facts import BackendFacts
from gymmesh_model.routing import Pool
from gymmesh_model.tokens import Prefix, TokenRecord


class BackendCall(msgspec.Struct, eq=False):
    """One call, as a backend gets it, and never changes it.

    params: the Responses parameters as parsed JSON, the configured ones already merged in.
    request_id: the same again when the caller retries; may be empty.
    timeout: seconds within which the call must end, retries included; a backend stops its
        work at the endpoint when it is over, and when its coroutine is cancelled.
    record: where the tokens go, when they are wanted; a backend that cannot give them leaves it
        alone. One that can fills it as the answer comes, so that an aborted call has what it had.
    items: the input as it came, in place of that of `params`; only for a backend whose features
        say `takes_items`, and never for a call that goes on with a conversation.
    prefix: the tokens that the prompt is to begin with, where there are any and `record` is set.
    retries: where calls of an endpoint that failed and were made again are noted.
    append_only: whether the prompt is to keep the tokens of `prefix` also where the template would
        write the history otherwise; for a backend with the capability `append_only`.
    settings: `params` without the input, shared by many calls, so that a backend can keep what
        it makes of them. The input is then a list. None when they are not known apart.
    """

    params: dict[str, Any]
    rollout_id: str
    request_id: str
    seed: int | None
    timeout: float
    record: TokenRecord | None = None
    prefix: Prefix | None = None
    items: Sequence[responses_pb2.Item] | None = None
    settings: CallSettings | None = None
    retries: RetryLog | None = None
    append_only: bool = False


class Features(msgspec.Struct, frozen=True, kw_only=True):
    """What a backend does beyond answering; the defaults are those of a backend that only answers.

    takes_items: reads the input from `BackendCall.items`, so that the service makes no JSON of it.
    keep_aborted: calls that can be aborted are made by `stream`, which keeps what had come.
    pool: the endpoints; the service admits as many calls at a time as the pool allows.
    abort: ends a call at the endpoint by its request_id, so that the call returns what it has;
        returns False when it cannot.
    follow_weights: calls the given function with each version of the weights that the endpoint
        reports, until `close`.
    announce_weights: notifies the endpoint that it samples from this version from now on.
    """

    takes_items: bool = False
    keep_aborted: bool = False
    pool: Pool | None = None
    abort: Callable[[str], Awaitable[bool]] | None = None
    follow_weights: Callable[[Callable[[int], None]], None] | None = None
    announce_weights: Callable[[int], Awaitable[None]] | None = None


class Backend(BackendFacts, ABC):
    """One way to get answers. Opened once, called concurrently, closed once.

    Its facts are class attributes, see BackendFacts. One that a configuration names is made from
    the model's name in the mesh and its ModelConfig, and raises ConfigError for options that it
    does not have.

    Attributes:
        features: what it does beyond answering; known once constructed.
        endpoint_model: the model's name at the endpoint; empty when the requests name it. Known
            once opened.
        context_tokens: the context in tokens; 0 when not known.
        capabilities: what it can do, known once opened, without calling the endpoint.
    """

    features: Features = Features()
    endpoint_model: str = ""
    context_tokens: int = 0
    capabilities: model_pb2.ModelCapabilities = model_pb2.ModelCapabilities()

    async def open(self) -> None:
        """Acquires what it needs. Raises ConfigError with one sentence; leaves nothing behind."""

    async def close(self) -> None:
        """Releases it. Bounded, and harmless when called twice or before `open`."""

    @abstractmethod
    async def create(self, call: BackendCall) -> responses_pb2.Response:
        """The model's answer, whole. It may be shared with other calls, so it is never changed.

        Raises MeshError with PARAMETER_UNSUPPORTED, FIELD_INVALID or a MODEL_* reason.
        """

    async def stream(self, call: BackendCall, progress: CallProgress) -> responses_pb2.Response:
        """As `create`, and on the way hands what comes to `progress`.

        A backend without the capability `streaming` only answers.
        """
        return await self.create(call)
