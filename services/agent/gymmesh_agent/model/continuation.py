"""How a model call goes on from earlier ones: what is sent of the conversation, and its tokens.

A model service that keeps conversations is sent only the new items, after a call that it knows.
Otherwise it is sent the whole, with the tokens of the calls before, so that nothing the model
wrote is tokenised again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from gymmesh.discovery.v1 import discovery_pb2
from gymmesh.model.v1 import model_pb2, tokens_pb2
from gymmesh.responses.v1 import responses_pb2
from gymmesh_agent.answer import ModelCall
from gymmesh_agent.model.conversation import Conversations
from gymmesh_agent.model.tokens import SettledTokens, TokenLedger, diverged
from gymmesh_agent.plan import RolloutPlan
from gymmesh_runtime import metrics
from gymmesh_runtime.errors import MeshError

# Keeping a conversation costs both sides more than sending one as short as this again.
_FEW_ITEMS: Final = 6

Items: TypeAlias = Sequence[responses_pb2.Item]


@dataclass(frozen=True, slots=True, eq=False)
class Continuation:
    """How a call goes on from its parent call, for a service that is to keep the conversation.

    Attributes:
        conversation_id: the same for all of an attempt's calls.
        known_items: how many leading items the service has already; 0 when it cannot have them
            as they are now.
        unchanged: whether the items that the parent's tokens stand for are still the same.
        token: the service's token for the known items.
    """

    conversation_id: str
    known_items: int = 0
    unchanged: bool = False
    token: bytes = b""


@dataclass(slots=True, eq=False)
class ModelRequest:
    """One model call to make, and the instance that was asked last.

    Attributes:
        call_id: its id.
        model: the name of the model service.
        role: the role that the model has.
        changes: Responses parameters that this call alone changes.
        items: the whole conversation.
        parent: the call of the same service that it continues; empty when there is none, or when
            that call left neither a kept conversation nor tokens.
        continuation: None: the conversation is not worth keeping.
        is_plain: whether it is sent without its conversation, for whatever reason.
        instance: the instance asked last; None: none yet.
    """

    call_id: str
    model: str
    role: str
    changes: Mapping[str, Any] | None
    items: Items
    parent: str
    continuation: Continuation | None
    is_plain: bool = False
    instance: discovery_pb2.Instance | None = None


@dataclass(frozen=True, slots=True)
class _Answered:
    """What a model service knows of an answered call, if it still has it.

    Attributes:
        model: the name of the service.
        items: how many items the conversation has, the answer included.
        token: the service's token for them; empty when it does not keep the conversation, or has
            another answer in it than the rollout.
    """

    model: str
    items: int
    token: bytes


class Continuations:
    """Makes the model requests of one attempt, and holds the answers to the exact-token law.

    Args:
        conversation_id: of the attempt's conversations at model services.
        conversations: the attempt's.
        plan: says which tokens are captured, and whether a breach of the law is allowed.
    """

    def __init__(
        self, conversation_id: str, conversations: Conversations, plan: RolloutPlan
    ) -> None:
        self._id = conversation_id
        self._conversations = conversations
        self._plan = plan
        self._answered: dict[str, _Answered] = {}
        self._ledger = TokenLedger()

    def request(
        self,
        call_id: str,
        model: str,
        role: str,
        changes: Mapping[str, Any] | None,
        items: Items,
        above: str,
        base: int,
    ) -> ModelRequest:
        """A request, before it is known which instance of the model service is asked.

        Args:
            call_id, model, role, changes, items: see ModelRequest.
            above: the call whose conversation it continues; empty when there is none.
            base: how many of the items come from there.
        """
        answered = self._answered.get(above)
        if answered is None or answered.model != model:
            answered, above = None, ""
        continuation = None
        # Tokens go on only in a conversation that is kept.
        if self._plan.capture is not None or len(items) > _FEW_ITEMS:
            continuation = self._continuation(above, answered, base)
        return ModelRequest(
            call_id, model, role, changes, items, above, continuation, continuation is None
        )

    def prefix_tokens(self, request: ModelRequest) -> model_pb2.PrefixTokens | None:
        """The tokens to send with a conversation that is sent whole; None: there are none."""
        if self._plan.capture is None or request.continuation is None or not request.parent:
            return None
        return self._ledger.prefix(request.parent, unchanged=request.continuation.unchanged)

    def answered(
        self, request: ModelRequest, reply: model_pb2.CreateResponseResponse, call: ModelCall
    ) -> tuple[tokens_pb2.TokenCapture | None, MeshError | None]:
        """Record an answer: the tokens for the rollout's event, and the breach of the law, if any.

        Args:
            request: as it was sent.
            call: the answer as it stands in the conversation from now on.
        """
        # After a repair, the service has another answer than the conversation.
        kept = request.continuation is not None and not call.repaired
        has_tokens = reply.HasField("tokens")
        if not kept and not has_tokens:
            return None, None  # a later call can build on nothing
        asked, output = len(request.items), len(call.output)
        token = reply.conversation_token if kept else b""
        self._answered[call.call_id] = _Answered(request.model, asked + output, token)
        if not has_tokens:
            return None, None
        capture = reply.tokens
        if not (capture.output_token_ids or capture.prompt_token_ids):
            return capture, None
        settled = self._ledger.settle(
            call.call_id, request.parent, capture, prompt_items=asked, output_items=output
        )
        if settled.diverged is not None and request.is_plain:
            settled = _declare_fork(settled)
        return settled.capture, self._breach(settled, request.model, call.call_id)

    def _continuation(self, parent: str, answered: _Answered | None, base: int) -> Continuation:
        if answered is None:
            return Continuation(self._id)
        known = base - self._conversations.led_to(parent)
        unchanged = known == answered.items
        has_items = unchanged and bool(answered.token)
        return Continuation(self._id, known if has_items else 0, unchanged, answered.token)

    def _breach(self, settled: SettledTokens, model: str, call_id: str) -> MeshError | None:
        if settled.fork:
            metrics.TOKEN_FORKS.labels(model, settled.fork).inc()
        if settled.diverged is None:
            return None
        metrics.TOKEN_DIVERGENCES.labels(model).inc()
        return None if self._plan.allow_divergence else diverged(call_id, settled.diverged)


def _declare_fork(settled: SettledTokens) -> SettledTokens:
    """A service that keeps no conversations did not get the tokens before: that is a fork."""
    capture = tokens_pb2.TokenCapture()
    capture.CopyFrom(settled.capture)
    capture.fork.reason = tokens_pb2.FORK_REASON_BACKEND
    capture.fork.common_tokens = settled.diverged or 0
    capture.fork.detail = "the model service keeps no conversations"
    return SettledTokens(capture, "BACKEND")
