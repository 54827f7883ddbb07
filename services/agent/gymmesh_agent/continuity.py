"""How an attempt's model calls go on from one another: what is sent, and what tokens come back."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, Final

import msgspec

from gymmesh.model.v1 import model_pb2, tokens_pb2
from gymmesh_agent.answer import ModelCall
from gymmesh_agent.asking import Asking, Items, Kept
from gymmesh_agent.conversation import Conversations
from gymmesh_agent.terms import Terms
from gymmesh_agent.tokens import Settled, TokenLedger, diverged
from gymmesh_runtime import metrics
from gymmesh_runtime.errors import MeshError

# HasField of the class: a message looks through the names of its fields to find its own.
_reply_has: Final = model_pb2.CreateResponseResponse.HasField
# Keeping a conversation costs both sides more than sending one as short as this again.
_FEW_ITEMS: Final = 6


class _Link(msgspec.Struct, eq=False):
    """What a model service knows of an answered call, if it still has it.

    Attributes:
        model: the name of the service.
        items: how many items the conversation has, the answer included.
        token: the service's, by which it finds the conversation again; empty when it does not
            keep it, or has another answer in it than the rollout.
    """

    model: str
    items: int
    token: bytes


class Continuity(msgspec.Struct, eq=False):
    """Puts model calls, and holds their answers to the exact-token law.

    Attributes:
        id: of the attempt's conversations at model services.
        terms: of the rollout; say whether tokens are wanted, and whether a breach is allowed.
        links: by call_id.
        ledger: made with the first tokens.
    """

    # A Struct, as ModelCall.

    _id: str
    _conversations: Conversations
    _terms: Terms
    _links: dict[str, _Link] = {}
    _ledger: TokenLedger | None = None

    def asking(
        self,
        call_id: str,
        model: str,
        role: str,
        changes: Mapping[str, Any] | None,
        items: Items,
        above: str,
        base: int,
    ) -> Asking:
        """A call, before it is known which instance of the model service is asked.

        Args:
            items: the whole conversation.
            above: the call whose conversation it continues; empty when there is none.
            base: how many of the items come from there.
        """
        link = self._links.get(above)
        if link is not None and link.model != model:
            link = None
        parent = above if link is not None else ""
        # Tokens go on only in a conversation that is kept.
        worth = self._terms.capture is not None or len(items) > _FEW_ITEMS
        kept = self._kept(parent, link, base) if worth else None
        return Asking(call_id, model, role, changes, items, parent, kept, not worth)

    def _kept(self, parent: str, link: _Link | None, base: int) -> Kept:
        capture = self._terms.capture
        if link is None:
            return Kept(self._id, capture)
        known = base - self._conversations.led_to(parent)
        unchanged = known == link.items
        prefix = None
        if capture is not None:
            prefix = partial(self._tokens().prefix, parent, unchanged=unchanged)
        return Kept(
            self._id,
            capture,
            known if unchanged and link.token else 0,
            prefix,
            link.token,
        )

    def answered(
        self, asking: Asking, reply: model_pb2.CreateResponseResponse, answer: ModelCall
    ) -> tuple[tokens_pb2.TokenCapture | None, MeshError | None]:
        """Takes an answer: the tokens for the rollout's event, and the breach of the law, if any.

        Args:
            answer: as it stands in the conversation from now on.
        """
        # A mended answer: the service has another one than the conversation.
        kept = None if answer.mended else asking.kept
        has_tokens = _reply_has(reply, "tokens")
        if kept is None and not has_tokens:
            return None, None  # a call that goes on from this one can build on nothing
        call_id, model = asking.call_id, asking.model
        asked, wrote = len(asking.items), len(answer.output)
        token = b"" if kept is None else reply.conversation_token
        self._links[call_id] = _Link(model, asked + wrote, token)
        if not has_tokens:
            return None, None
        capture = reply.tokens
        if not (capture.output_token_ids or capture.prompt_token_ids):
            return capture, None
        settled = self._tokens().settle(
            call_id, asking.parent, capture, prompt_items=asked, output_items=wrote
        )
        if settled.diverged is not None and asking.is_plain:
            settled = _not_offered(settled)
        return settled.capture, self._breach(settled, model, call_id)

    def _tokens(self) -> TokenLedger:
        if self._ledger is None:
            self._ledger = TokenLedger()
        return self._ledger

    def _breach(self, settled: Settled, model: str, call_id: str) -> MeshError | None:
        if settled.fork:
            metrics.TOKEN_FORKS.labels(model, settled.fork).inc()
        if settled.diverged is None:
            return None
        metrics.TOKEN_DIVERGENCES.labels(model).inc()
        return None if self._terms.allow_divergence else diverged(call_id, settled.diverged)


def _not_offered(settled: Settled) -> Settled:
    """A service that keeps no conversations was not told of the tokens before: a fork."""
    capture = tokens_pb2.TokenCapture()
    capture.CopyFrom(settled.capture)
    capture.fork.reason = tokens_pb2.FORK_REASON_BACKEND
    capture.fork.common_tokens = settled.diverged or 0
    capture.fork.detail = "the model service keeps no conversations"
    return Settled(capture, "BACKEND")
