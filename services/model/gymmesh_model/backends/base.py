"""The interface between the model service and its backends."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import msgspec

from gymmesh.model.v1 import model_pb2
from gymmesh.responses.v1 import responses_pb2
from gymmesh_model.backends.calls import CallProgress, CallSettings, CallWeights, RetryLog
from gymmesh_model.backends.facts import BackendFacts
from gymmesh_model.routing import Pool
from gymmesh_model.tokens import Prefix, TokenRecord


class BackendCall(msgspec.Struct, eq=False):
    """One call to a backend. Backends do not change it.

    params: the Responses parameters as parsed JSON, merged with the configured ones.
    request_id: the call's id, the same when the caller retries; may be empty.
    timeout: seconds within which the call must end, retries included. A backend stops its work at
        the endpoint when they have passed, and when its coroutine is cancelled.
    record: receives the tokens, if they are captured. A backend without tokens does not touch it.
        Others fill it as the answer arrives, so that an aborted call keeps what it received.
    items: the input as received, instead of that of `params`. Only for a backend whose features
        have `takes_items`, and never for a call that continues a conversation.
    prefix: the tokens that the prompt must begin with, if any; only with `record`.
    retries: the log of failed calls to an endpoint that were retried.
    append_only: whether the prompt keeps the tokens of `prefix` even if the template would now
        write the history differently; for a backend with the capability `append_only`.
    settings: `params` without the input, shared by many calls, so that a backend can cache what
        it derives from them. The input is then a list. None if they are not known separately.
    weights: which weights answer. Only a backend with the capability `adapters` names one.
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
    weights: CallWeights | None = None

    @property
    def adapter(self) -> str:
        """The adapter's name at the endpoint, for a request that is written now; empty: none."""
        return "" if self.weights is None else self.weights.adapter


class Features(msgspec.Struct, frozen=True, kw_only=True):
    """What a backend does beyond answering. The defaults describe a backend that only answers.

    takes_items: reads the input from `BackendCall.items`, so that the service does not convert it
        to JSON.
    keep_aborted: calls that can be aborted use `stream`, which keeps what had arrived.
    pool: the endpoints. The service admits as many concurrent calls as the pool allows.
    abort: ends a call at the endpoint by its request_id, so that the call returns what it has.
        Returns False if it cannot.
    follow_weights: calls the given function with each version of the weights that the endpoint
        reports, until `close`.
    announce_weights: notifies the endpoint that it samples from this version from now on.
    adapters: calls name `BackendCall.adapter` at the endpoint.
    """

    takes_items: bool = False
    keep_aborted: bool = False
    pool: Pool | None = None
    abort: Callable[[str], Awaitable[bool]] | None = None
    follow_weights: Callable[[Callable[[int], None]], None] | None = None
    announce_weights: Callable[[int], Awaitable[None]] | None = None
    adapters: bool = False


class Backend(BackendFacts, ABC):
    """One way to get answers. Opened once, called concurrently, closed once.

    Its facts are class attributes; see BackendFacts. A backend that a configuration names is
    constructed with the model's name in the mesh and its ModelConfig. It raises ConfigError for
    unknown options.

    Attributes:
        features: what it does beyond answering; set by the constructor.
        endpoint_model: the model's name at the endpoint; empty if the requests name it. Set by
            `open`.
        context_tokens: the context in tokens; 0 if not known.
        capabilities: what it can do. Set by `open`, without a call to the endpoint.
    """

    features: Features = Features()
    endpoint_model: str = ""
    context_tokens: int = 0
    capabilities: model_pb2.ModelCapabilities = model_pb2.ModelCapabilities()

    async def open(self) -> None:
        """Acquires its resources. If it fails it raises ConfigError and releases all of them."""

    async def close(self) -> None:
        """Releases its resources. Bounded; may be called twice, or before `open`."""

    @abstractmethod
    async def create(self, call: BackendCall) -> responses_pb2.Response:
        """The model's complete answer. Do not change it: other calls may share it.

        Raises MeshError with PARAMETER_UNSUPPORTED, FIELD_INVALID or a MODEL_* reason.
        """

    async def stream(self, call: BackendCall, progress: CallProgress) -> responses_pb2.Response:
        """Like `create`, and passes each piece to `progress` as it arrives.

        A backend without the capability `streaming` only returns the answer.
        """
        return await self.create(call)

    async def score(
        self, call: BackendCall, continuations: Sequence[str]
    ) -> model_pb2.ScoreContinuationsResponse:
        """The scores of texts as the beginning of the answer, without `weights_version` and
        `queue_us`. For a backend with the capability `scoring`.

        call: its sampling parameters are ignored. continuations: checked by `check_continuations`.
        Raises MeshError as `create` does, and FIELD_INVALID for a text that the tokenizer joins
        with the prompt.
        """
        raise NotImplementedError
