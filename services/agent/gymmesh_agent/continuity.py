"""How an attempt's model calls go on from one another: what is sent, and what tokens come back."""

from __future__ import annotations

from functools import partial
from typing import Final

from gymmesh.agent.v1 import agent_pb2
from gymmesh.model.v1 import model_pb2, tokens_pb2
from gymmesh.responses.v1 import responses_pb2
from gymmesh_agent.asking import Asking, Hasher, Items, Links, Make
from gymmesh_agent.conversation import Conversations
from gymmesh_agent.tokens import Settled, TokenLedger, diverged
from gymmesh_responses import CodecError
from gymmesh_runtime import metrics
from gymmesh_runtime.errors import MeshError

_ALL: Final = tokens_pb2.CaptureOptions(token_ids=True, logprobs=True)


class Continuity:
    """Puts model calls, and holds their answers to the exact-token law.

    Args:
        conversation: the id of the attempt's conversations at model services.
        options: of the rollout; say whether tokens are wanted, and whether a breach is allowed.
        capture_tokens: whether they are wanted where the options do not say.
    """

    __slots__ = ("_allowed", "_capture", "_conversations", "_id", "_ledger", "_links")

    def __init__(
        self,
        conversation: str,
        conversations: Conversations,
        options: agent_pb2.RolloutOptions,
        *,
        capture_tokens: bool,
    ) -> None:
        self._id = conversation
        self._conversations = conversations
        self._links = Links()
        self._ledger = TokenLedger()
        self._allowed = options.allow_token_divergence
        capture = _ALL if capture_tokens else None
        if options.HasField("capture"):
            wanted = options.capture.token_ids or options.capture.logprobs
            capture = options.capture if wanted else None
        self._capture = capture

    def asking(
        self, above: str, model: str, *, detached: bool, base: int, items: Items, make: Make
    ) -> Asking:
        """A call, before it is known which instance of the model service is asked.

        Args:
            above: the call that this one comes after; empty when there is none.
            base: how many of the items come from there.
            items: the whole conversation.
            make: the request for some of these items.
        """

        parent = "" if detached or not self._links.same(above, model) else above
        known, unchanged = 0, False
        if parent:
            known = base - self._conversations.led_to(parent)
            unchanged = known == self._links.items(parent)
        hasher = self._links.hasher(parent)
        prefix = None
        if self._capture is not None and parent:
            prefix = partial(self._ledger.prefix, parent, unchanged=unchanged)
        return Asking(
            make,
            items,
            conversation=self._id,
            parent=parent,
            known=known if unchanged and self._links.kept(parent) else 0,
            prefix=prefix,
            capture=self._capture,
            digest=b"" if hasher is None else hasher.digest(),
        )

    def answered(
        self,
        call_id: str,
        model: str,
        asking: Asking,
        reply: model_pb2.CreateResponseResponse,
        response: responses_pb2.Response,
    ) -> tuple[tokens_pb2.TokenCapture | None, MeshError | None]:
        """Takes an answer: the tokens for the rollout's event, and the breach of the law, if any.

        Args:
            response: the answer as it stands in the conversation from now on.
        """
        asked, wrote = len(asking.items), len(response.output)
        kept = asking.worth_keeping and response is reply.response
        hasher = self._hasher(asking, response) if kept and self._capture is not None else None
        self._links.add(call_id, model, asked + wrote, kept=kept, hasher=hasher)
        if not reply.HasField("tokens"):
            return None, None
        capture = reply.tokens
        if not (capture.output_token_ids or capture.prompt_token_ids):
            return capture, None
        settled = self._ledger.settle(
            call_id, asking.parent, capture, prompt_items=asked, output_items=wrote
        )
        if settled.diverged is not None and asking.is_plain:
            settled = _not_offered(settled)
        return settled.capture, self._breach(settled, model, call_id)

    def _hasher(self, asking: Asking, response: responses_pb2.Response) -> Hasher | None:
        """Over the conversation with its answer; None when it cannot be made."""
        before = self._links.hasher(asking.parent) if asking.known else None
        new = asking.items[asking.known :] if before is not None else asking.items
        try:
            return Hasher((*new, *response.output), before)
        except CodecError:
            return None

    def _breach(self, settled: Settled, model: str, call_id: str) -> MeshError | None:
        if settled.fork:
            metrics.TOKEN_FORKS.labels(model, settled.fork).inc()
        if settled.diverged is None:
            return None
        metrics.TOKEN_DIVERGENCES.labels(model).inc()
        return None if self._allowed else diverged(call_id, settled.diverged)


def _not_offered(settled: Settled) -> Settled:
    """A service that keeps no conversations was not told of the tokens before: a fork."""
    capture = tokens_pb2.TokenCapture()
    capture.CopyFrom(settled.capture)
    capture.fork.reason = tokens_pb2.FORK_REASON_BACKEND
    capture.fork.common_tokens = settled.diverged or 0
    capture.fork.detail = "the model service keeps no conversations"
    return Settled(capture, "BACKEND")
