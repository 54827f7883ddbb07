"""An inference server as an engine of token ids: retried, shared among URLs, aborted."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from time import monotonic
from typing import Any, Final, Generic, TypeVar

from gymmesh.errors.v1 import errors_pb2 as errors
from gymmesh.model.v1 import tokens_pb2
from gymmesh_model.backends.base import BackendCall, Features
from gymmesh_model.backends.calls import WeightsInForce
from gymmesh_model.backends.chat import read_answer
from gymmesh_model.backends.endpoint import HttpEndpoint, Sendable
from gymmesh_model.backends.engine import Engine
from gymmesh_model.backends.facts import BackendFacts
from gymmesh_model.backends.generation import Generation, SamplingParams
from gymmesh_model.backends.routed_experts import ROUTED_EXPERTS
from gymmesh_model.backends.scores import TokenScores
from gymmesh_model.backends.token_engines.answers import LogprobsOf
from gymmesh_model.backends.token_engines.continued import ContinuedAnswer
from gymmesh_model.backends.token_engines.protocol import TokenProtocol
from gymmesh_model.backends.vllm import follow_weights
from gymmesh_model.config import ModelConfig
from gymmesh_model.errors import AnswerInvalid, answer_failed, answer_invalid, timed_out
from gymmesh_model.ids import new_id
from gymmesh_model.routing import PoolEndpoint
from gymmesh_model.tokens import TokenRecord
from gymmesh_model.transport import TransportError
from gymmesh_responses import CodecError, Finish, dumps, finish_of, loads
from gymmesh_runtime.errors import MeshError

T = TypeVar("T")

_ABORT_SECONDS: Final = 5.0
_LEAST_SECONDS: Final = 0.001
_REFUSED: Final = errors.ERROR_REASON_MODEL_REQUEST_REFUSED
_UNKNOWN: Final = tokens_pb2.LOGPROB_DISTRIBUTION_UNSPECIFIED
_MODELS: Final = "/../v1/models"
_ASK_SECONDS: Final = 5.0
_AGAIN_SECONDS: Final = 60.0


class ServerEngine(Engine, BackendFacts):
    """A server that samples token ids.

    name: the model's in the mesh. config: its URLs, key and retries. protocol: how the server is
    asked. weights_poll_s: seconds between two questions for the version of the weights, where the
    server answers them as vLLM does; 0: never.
    """

    has_metrics = True
    is_program = False
    scores = True

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
        self._context = _Learned(self._asked_context, 0)
        self._distribution = _Learned(self._probed, _UNKNOWN)
        self._aborting = set[asyncio.Task[bool]]()
        self._reported: int | None = None  # the newest version that an answer reported
        self.side_data = protocol.side_data
        self.features = Features(
            pool=self._http.pool, follow_weights=self._follow_weights, adapters=True
        )

    async def open(self) -> None:
        await self._http.open()

    async def close(self) -> None:
        if self._aborting:
            await asyncio.wait(self._aborting, timeout=_ABORT_SECONDS)
        await self._http.close()

    async def context_tokens(self) -> int:
        """As `GET /v1/models` says."""
        return await self._context.get()

    async def generate(
        self, prompt: list[int], params: SamplingParams, call: BackendCall
    ) -> Generation:
        wanted = call.record is not None and call.record.logprobs_asked
        shown = await self._distribution.get() if wanted else _UNKNOWN
        experts_from = _experts_from(call.record)
        answer, deadline = ContinuedAnswer(prompt, params), monotonic() + call.timeout
        while True:
            left = deadline - monotonic()
            if left <= 0:
                raise timed_out(self._name, call.timeout)
            reported = self._reported
            part = await self._part(
                answer.prompt,
                answer.params,
                call,
                left,
                logprobs=wanted,
                experts_from=answer.rows_end(experts_from),
            )
            seen = call.weights.seen if call.weights else ()
            answer.add(self._trusted(part, seen, reported), seen)
            if answer.is_whole:
                break
        if answer.is_unknown and call.weights is not None:
            call.weights.seen = []  # those of the last part are not the answer's
        made = answer.generation()
        return made if made.distribution else replace(made, distribution=shown)

    async def _part(
        self,
        prompt: list[int],
        params: SamplingParams,
        call: BackendCall,
        timeout: float,
        *,
        logprobs: bool,
        experts_from: int | None,
    ) -> Generation:
        """What one request gives: an answer, or its beginning where new weights interrupt it."""
        sent: list[str] = []

        def body() -> bytes:
            # A server refuses the id of a request that it may still work on.
            sent.append(new_id("gen_"))
            asked = self._protocol.request(
                prompt,
                params,
                sent[-1],
                logprobs=logprobs,
                adapter=call.adapter,
                experts_from=experts_from,
            )
            return dumps(asked)

        try:
            return await self._http.post(
                self._protocol.path,
                Sendable(body, weights=call.weights),
                timeout,
                partial(self._read, prompt, params, call, experts_from),
                key=call.rollout_id,
                log=call.retries,
                weights=call.weights,
            )
        except asyncio.CancelledError:
            self._abort(sent)
            raise

    async def score(
        self, prompt: list[int], continuations: Sequence[list[int]], call: BackendCall
    ) -> Sequence[TokenScores]:
        """One request after another: the call has one place at the server."""
        clock = asyncio.get_running_loop().time
        deadline = clock() + call.timeout
        found: list[TokenScores] = []
        sent: list[str] = []
        try:
            for after in continuations:
                body = partial(self._score_body, prompt, after, call, sent)
                found.append(
                    await self._http.post(
                        self._protocol.path,
                        Sendable(body, weights=call.weights),
                        max(deadline - clock(), _LEAST_SECONDS),
                        partial(self._read_scores, prompt, after),
                        key=call.rollout_id,
                        log=call.retries,
                        weights=call.weights,
                    )
                )
        except asyncio.CancelledError:
            self._abort(sent[-1:])
            raise
        return found

    def _score_body(
        self, prompt: list[int], after: list[int], call: BackendCall, sent: list[str]
    ) -> bytes:
        sent.append(new_id("score_"))
        asked = self._protocol.score_request(prompt, after, sent[-1], adapter=call.adapter)
        return dumps(asked)

    def _read_scores(self, prompt: list[int], after: list[int], raw: bytes) -> TokenScores:
        """Raises MeshError."""
        answer = read_answer(self._name, raw, self._http.secrets)
        try:
            return self._protocol.scores(answer, prompt, after)
        except AnswerInvalid as error:
            raise answer_invalid(self._name, str(error)) from None

    def _read(
        self,
        prompt: list[int],
        params: SamplingParams,
        call: BackendCall,
        experts_from: int | None,
        raw: bytes,
    ) -> Generation:
        """Raises MeshError."""
        is_changing = call.weights is not None and call.weights.explains_abort()
        answer = read_answer(self._name, raw, self._http.secrets, is_aborted=lambda: is_changing)
        try:
            reason = self._protocol.finish_reason(answer)
            finish = finish_of(reason)
            if finish is Finish.FAILED or (finish is Finish.ABORTED and not is_changing):
                raise answer_failed(self._name, reason)
            made = self._protocol.generation(answer, prompt, params)
            if experts_from is None or (made.aborted and not made.token_ids):
                return made
            sampled = len(made.token_ids)
            rows = self._protocol.routed_experts(answer, len(prompt), sampled, experts_from)
            return replace(made, side_data=[rows])
        except AnswerInvalid as error:
            raise answer_invalid(self._name, str(error)) from None

    def _trusted(
        self, part: Generation, seen: Sequence[WeightsInForce], reported: int | None
    ) -> Generation:
        """The part, which counts as the older weights' where it began with them and the server
        reports a version only when the part ends.

        seen: of the call. reported: the newest version that was reported when the part began; it
        is what is known where nothing was announced.
        """
        if not self._protocol.reports_last_version or len(part.weights) != 1:
            return part
        version = part.weights[0][0]
        self._reported = max(version, self._reported or 0)
        before = seen[0].version if seen else reported
        if before is None or before >= version:
            return part
        return replace(part, weights=() if seen else [(before, 0)])

    # -- aborts -------------------------------------------------------------------------------

    def _abort(self, request_ids: list[str]) -> None:
        """Has the server end the requests of a call that nobody waits for any more."""
        if not self._protocol.abort_path or not request_ids:
            return
        bodies = [dumps({"rid": request_id}) for request_id in request_ids]
        path = self._protocol.abort_path
        task = asyncio.create_task(self._http.post_to_all(path, bodies, _ABORT_SECONDS))
        self._aborting.add(task)
        task.add_done_callback(self._aborting.discard)

    # -- what the server says of itself -------------------------------------------------------

    async def _probed(self) -> LogprobsOf | None:
        """Which distribution log probabilities are of, where the protocol can't tell from a call;
        None: no server answered.
        """
        body = self._protocol.probe()
        if body is None:
            return _UNKNOWN

        def read(raw: bytes) -> LogprobsOf:
            try:
                return self._protocol.probed(read_answer(self._name, raw, self._http.secrets))
            except AnswerInvalid:
                return _UNKNOWN

        try:
            return await self._http.post(self._protocol.path, dumps(body), _ASK_SECONDS, read)
        except MeshError as error:
            return _UNKNOWN if error.reason == _REFUSED else None

    async def _asked_context(self) -> int | None:
        """The least of the servers' longest prompt and answer together; 0: they do not say; None:
        no server answered.
        """
        asked = (self._context_at(endpoint) for endpoint in self._http.pool.endpoints)
        answered = [one for one in await asyncio.gather(*asked) if one is not None]
        if not answered:
            return None
        return min((one for one in answered if one), default=0)

    async def _context_at(self, endpoint: PoolEndpoint) -> int | None:
        with contextlib.suppress(TransportError, TimeoutError, MeshError):
            async with asyncio.timeout(_ASK_SECONDS):
                answer = await self._http.get(endpoint.at(_MODELS))
            if answer.status < 500:
                return _context_of(answer.body)
        return None

    def _follow_weights(self, tell: Callable[[int], None]) -> None:
        if self._poll_s:
            self._http.follow(follow_weights(self._http, self._poll_s, tell))


def _experts_from(record: TokenRecord | None) -> int | None:
    """The first token whose routed experts are wanted: those before it have theirs. None: none."""
    if record is None or ROUTED_EXPERTS not in record.side_asked:
        return None
    return record.side_rows.get(ROUTED_EXPERTS, 0)


class _Learned(Generic[T]):
    """What servers say of themselves: asked until one answers, and at most once a minute.

    ask: asks; returns None where no server answered. unknown: what there is until then.
    """

    def __init__(self, ask: Callable[[], Awaitable[T | None]], unknown: T) -> None:
        self._ask = ask
        self._unknown = unknown
        self._known: T | None = None
        self._next = 0.0
        self._asking = asyncio.Lock()

    async def get(self) -> T:
        if self._known is None and monotonic() >= self._next:
            async with self._asking:  # the others wait for the one that asks
                if self._known is None and monotonic() >= self._next:
                    self._known = await self._ask()
                    self._next = monotonic() + _AGAIN_SECONDS
        return self._unknown if self._known is None else self._known


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
