"""One call of the model service on its way to an answer, and the metrics of all of them."""

from __future__ import annotations

from typing import Final

import msgspec

from gymmesh.model.v1 import model_pb2
from gymmesh.responses.v1 import responses_pb2
from gymmesh_model import metrics
from gymmesh_model.backends.calls import CallProgress, CallWeights, RetryLog
from gymmesh_model.serving.conversations import OpenCall
from gymmesh_model.tokens import TokenRecord, count


class CallState(msgspec.Struct, eq=False):
    """The state of a call, updated as it proceeds, so that an abort finds the results so far.

    request: as it came; given up once the backend's call is made of it, since thousands of calls
    may wait for their answers. What is needed later is beside it. model: that it asks for, where
    the endpoint has none of its own. timeout: seconds for all of it, waiting included. progress: of
    a call that is streamed. identity: the caller's, to whom its conversation belongs. queue_s:
    seconds that it waited for a place; made_s: that the backend took, retries included, which
    `retries` has. turn: its place in its conversation. record: its tokens,
    where they are wanted and can be had. weights: those that answer it, once it has begun.
    """

    # A Struct, as every call makes one: it is filled without a step in Python.

    request: model_pb2.CreateResponseRequest | None
    request_id: str
    call_id: str
    rollout_id: str
    model: str
    seed: int | None
    has_conversation: bool
    timeout: float
    progress: CallProgress | None
    identity: str = ""
    queue_s: float = 0.0
    made_s: float = 0.0
    retries: RetryLog | None = None
    turn: OpenCall | None = None
    record: TokenRecord | None = None
    from_cache: bool = False
    weights: CallWeights | None = None


class CallCounts:
    """Counts and times the calls of one model, under its name."""

    def __init__(self, name: str) -> None:
        self._name: Final = name
        self.waiting = metrics.MODEL_WAITING.labels(name)
        self.continued = metrics.MODEL_CONVERSATIONS.labels(name, "continued")
        self.unknown = metrics.MODEL_CONVERSATIONS.labels(name, "unknown")
        self._completed = metrics.MODEL_CALLS.labels(name, "completed")
        self._queue_seconds = metrics.MODEL_QUEUE_SECONDS.labels(name)
        self._first_token_seconds = metrics.MODEL_FIRST_TOKEN_SECONDS.labels(name)
        self._call_seconds = metrics.MODEL_CALL_SECONDS.labels(name)
        self._tokens_in = metrics.MODEL_TOKENS.labels(name, "input")
        self._tokens_out = metrics.MODEL_TOKENS.labels(name, "output")

    def failed(self, reason: str) -> None:
        metrics.MODEL_CALLS.labels(self._name, reason).inc()

    def made(self, work: CallState, started: float, ended: float) -> None:
        """A backend answered; the times are monotonic seconds."""
        self._queue_seconds.observe(work.queue_s)
        self._call_seconds.observe(ended - started, work.rollout_id)
        progress = work.progress
        if progress is not None and progress.first_at:
            self._first_token_seconds.observe(progress.first_at - started, work.rollout_id)

    def answered(self, answer: responses_pb2.Response, *, from_cache: bool) -> None:
        """An answer goes out. The tokens of a kept one were counted when it was made."""
        if answer.status != "incomplete":
            self._completed.inc()
        else:
            metrics.MODEL_CALLS.labels(self._name, "incomplete").inc()
        if from_cache:
            return
        usage = answer.usage  # without one there are no tokens
        # A counter takes no negative amount, and an endpoint may say anything.
        self._tokens_in.inc(max(0, usage.input_tokens))
        self._tokens_out.inc(max(0, usage.output_tokens))

    def scored(
        self,
        scores: model_pb2.ScoreContinuationsResponse,
        rollout_id: str,
        queue_s: float,
        call_s: float,
    ) -> None:
        """Continuations were scored. Each is read after the prompt; nothing is written."""
        self._completed.inc()
        self._queue_seconds.observe(queue_s)
        self._call_seconds.observe(call_s, rollout_id)
        read = (scores.prompt_tokens + count(one.token_ids) for one in scores.scores)
        self._tokens_in.inc(sum(read))
