"""An inference server as an engine of token ids: retried, shared among URLs, aborted."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Final

from gymmesh.errors.v1 import errors_pb2 as errors
from gymmesh.model.v1 import tokens_pb2
from gymmesh_model.backends.base import BackendCall, Features
from gymmesh_model.backends.chat import read_answer
from gymmesh_model.backends.endpoint import HttpEndpoint, Sendable
from gymmesh_model.backends.facts import BackendFacts
from gymmesh_model.backends.token_engines.protocols import Distribution, Json, TokenProtocol
from gymmesh_model.backends.tokens_in import Engine, Generation, SamplingParams
from gymmesh_model.backends.vllm import follow_weights
from gymmesh_model.config import ModelConfig
from gymmesh_model.errors import AnswerInvalid, answer_failed, answer_invalid
from gymmesh_model.ids import new_id
from gymmesh_model.transport import TransportError
from gymmesh_responses import CodecError, Finish, dumps, finish_of, loads
from gymmesh_runtime.errors import MeshError

_ABORT_SECONDS: Final = 5.0
_REFUSED: Final = errors.ERROR_REASON_MODEL_REQUEST_REFUSED
_UNKNOWN: Final = tokens_pb2.LOGPROB_DISTRIBUTION_UNSPECIFIED
_MODELS: Final = "/../v1/models"
_ASK_SECONDS: Final = 5.0


class ServerEngine(Engine, BackendFacts):
    """A server that samples token ids.

    name: the model's in the mesh. config: its URLs, key and retries. protocol: how the server is
    asked. weights_poll_s: seconds between two questions for the version of the weights, where the
    server answers them as vLLM does; 0: never.
    """

    has_metrics = True

    def __init__(
        self,
        name: str,
        config: ModelConfig,
        protocol: TokenProtocol,
        *,
        weights_poll_s: float = 0.0,
    ) -> None:
        self._name = name
        self._protocol = protocol
        self._poll_s = weights_poll_s
        self._http = HttpEndpoint(name, config, self)
        self._context: int | None = None
        # Which distribution log probabilities are of, where a request has shown it.
        self._shown: Distribution | None = None
        self._asking = asyncio.Lock()
        self._aborting = set[asyncio.Task[None]]()
        self.features = Features(pool=self._http.pool, follow_weights=self._follow_weights)

    async def open(self) -> None:
        await self._http.open()

    async def close(self) -> None:
        if self._aborting:
            await asyncio.wait(self._aborting, timeout=_ABORT_SECONDS)
        await self._http.close()

    async def context_tokens(self) -> int:
        """As `GET /v1/models` says; asked until the server answers."""
        if self._context is None:
            async with self._asking:
                if self._context is None:
                    self._context = await self._asked_context()
        return self._context or 0

    async def generate(
        self, prompt: list[int], params: SamplingParams, call: BackendCall
    ) -> Generation:
        wanted = call.record is not None and call.record.logprobs_asked
        shown = await self._distribution(call.timeout) if wanted else _UNKNOWN
        sent: list[str] = []

        def body() -> bytes:
            # A server refuses the id of a request that it may still work on.
            sent.append(new_id("gen_"))
            return dumps(self._protocol.request(prompt, params, sent[-1], logprobs=wanted))

        try:
            made = await self._http.post(
                self._protocol.path,
                Sendable(body),
                call.timeout,
                partial(self._read, prompt, params),
                key=call.rollout_id,
                log=call.retries,
            )
        except asyncio.CancelledError:
            self._abort(sent)
            raise
        return made if made.distribution else replace(made, distribution=shown)

    def _read(self, prompt: list[int], params: SamplingParams, raw: bytes) -> Generation:
        """Raises MeshError."""
        answer = read_answer(self._name, raw, self._http.secrets)
        try:
            reason = self._protocol.finish_reason(answer)
            if finish_of(reason) in (Finish.FAILED, Finish.ABORTED):
                raise answer_failed(self._name, reason)
            return self._protocol.generation(answer, prompt, params)
        except AnswerInvalid as error:
            raise answer_invalid(self._name, str(error)) from None

    # -- aborts -------------------------------------------------------------------------------

    def _abort(self, request_ids: list[str]) -> None:
        """Has the server end the requests of a call that nobody waits for any more."""
        if not self._protocol.abort_path or not request_ids:
            return
        task = asyncio.create_task(self._aborted(request_ids))
        self._aborting.add(task)
        task.add_done_callback(self._aborting.discard)

    async def _aborted(self, request_ids: list[str]) -> None:
        # Any of the servers may have it; the others take no notice.
        asked = (
            self._http.post(
                endpoint.at(self._protocol.abort_path),
                dumps({"rid": request_id}),
                _ABORT_SECONDS,
                lambda _: None,
            )
            for endpoint in self._http.pool.endpoints
            for request_id in request_ids
        )
        await asyncio.gather(*asked, return_exceptions=True)

    # -- what the server says of itself -------------------------------------------------------

    async def _distribution(self, timeout: float) -> Distribution:
        """Which distribution log probabilities are of, where the protocol can't tell; asked until
        the server answers.
        """
        body = self._protocol.probe()
        if self._shown is None and body is not None:
            async with self._asking:
                if self._shown is None:
                    self._shown = await self._probed(body, min(timeout, _ASK_SECONDS))
        return self._shown or _UNKNOWN

    async def _probed(self, body: Json, timeout: float) -> Distribution | None:
        """None: the server did not answer. It may yet, so the call itself says what is wrong."""

        def read(raw: bytes) -> Distribution:
            try:
                return self._protocol.probed(read_answer(self._name, raw, self._http.secrets))
            except AnswerInvalid:
                return _UNKNOWN

        try:
            return await self._http.post(self._protocol.path, dumps(body), timeout, read)
        except MeshError as error:
            return _UNKNOWN if error.reason == _REFUSED else None

    async def _asked_context(self) -> int | None:
        """The longest prompt and answer together; 0: it does not say; None: it did not answer."""
        with contextlib.suppress(TransportError, TimeoutError, MeshError):
            async with asyncio.timeout(_ASK_SECONDS):
                answer = await self._http.get(self._http.pool.endpoints[0].at(_MODELS))
            if answer.status < 500:
                return _context_of(answer.body)
        return None

    def _follow_weights(self, tell: Callable[[int], None]) -> None:
        if self._poll_s:
            self._http.follow(follow_weights(self._http, self._poll_s, tell))


def _context_of(raw: bytes) -> int:
    """`max_model_len` of the only model in a list of models, without adapters of it; else 0."""
    try:
        said: Any = loads(raw)
    except CodecError:
        return 0
    listed = said.get("data") if isinstance(said, Mapping) else None
    models = listed if isinstance(listed, list) else []
    found = {one.get("max_model_len") for one in models if isinstance(one, Mapping)}
    lengths = {one for one in found if type(one) is int and one > 0}
    return lengths.pop() if len(lengths) == 1 else 0
