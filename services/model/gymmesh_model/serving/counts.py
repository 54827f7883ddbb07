"""The metrics of a model's calls."""

from __future__ import annotations

from typing import Final

from gymmesh.responses.v1 import responses_pb2
from gymmesh_model.serving.work import CallState
from gymmesh_runtime import metrics


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
        """A call failed, for the reason of that name."""
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
