"""The conversations of one attempt, and how a model call continues earlier calls.

The header of rollout.proto defines a conversation:

    conversation(call) = base + context items + the answer's output
        + the outputs of its tool calls, in the order of the calls
        + the items of its turns

The base is the parent's conversation. For a detached call it is empty, and for any other call
without a parent it is the first items of the attempt. Items are shared, never copied and never
changed.

If a model service keeps conversations and knows an earlier call, it receives only the new items.
Otherwise it receives the whole conversation, with the tokens of the earlier calls, so that nothing
that the model wrote is tokenised again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias

import msgspec

from gymmesh.model.v1 import model_pb2, tokens_pb2
from gymmesh.responses.v1 import responses_pb2
from gymmesh.rollout.v1 import rollout_pb2
from gymmesh_agent.model import metrics
from gymmesh_agent.model.answer import ModelCall
from gymmesh_agent.model.tokens import CapturedTokens, SettledTokens, diverged, invalid_tokens
from gymmesh_agent.plan import RolloutPlan
from gymmesh_runtime.errors import MeshError

# Keeping a conversation costs both sides more than sending one as short as this again.
_FEW_ITEMS: Final = 6

ItemSequence: TypeAlias = Sequence[responses_pb2.Item]


class _Node(msgspec.Struct, eq=False):
    """One model call, and what followed from it.

    Attributes:
        parent: the call that it continues.
        detached: whether it began a new conversation.
        from_first: whether its conversation starts with the attempt's first items.
        context: the items before the answer.
        output: the answer's items.
        before: the items before the context; None: they are not stored here.
        continued: whether another call continues this call.
        tool_outputs: by position, in order; None: there is none.
        turns: the items of the environment's turns; None: it took no turn.
    """

    parent: _Node | None
    detached: bool
    from_first: bool
    context: ItemSequence
    output: ItemSequence
    before: ItemSequence | None
    continued: bool = False
    tool_outputs: dict[int, responses_pb2.Item] | None = None
    turns: list[responses_pb2.Item] | None = None

    def add_to(self, items: list[responses_pb2.Item]) -> None:
        """Append this call's items to these items."""
        items += self.context
        items += self.output
        if self.tool_outputs:
            items += self.tool_outputs.values()
        if self.turns:
            items += self.turns


class ConversationTree:
    """All conversations of an attempt, as a tree of model calls.

    Args:
        first: the items with which every conversation starts, `Started.items`.

    The last call of a conversation stores the items before it, so that a long conversation is not
    assembled from its calls each time it continues.
    """

    def __init__(self, first: ItemSequence) -> None:
        self._first = first
        self._nodes: dict[str, _Node] = {}
        # The last base returned: for which parent, and the items.
        self._base: tuple[str, ItemSequence] | None = None

    def base(self, parent: str, detached: bool) -> Sequence[responses_pb2.Item]:
        """The items before the context items of a future call; they must not be changed.

        Args:
            parent: the call_id that the call continues; empty: it starts with the first items.
            detached: whether it begins a new conversation, with nothing.
        """
        if detached:
            return []
        items = self.after(parent) if parent else self._first
        self._base = (parent, items)
        return items

    def add_call(
        self,
        call_id: str,
        parent: str,
        detached: bool,
        context: Sequence[responses_pb2.Item],
        output: Sequence[responses_pb2.Item],
    ) -> None:
        """A model call was answered.

        Args:
            context: the items before the answer.
            output: the answer's items; they are stored, and must not be changed any more.
        """
        above = self._nodes[parent] if parent else None
        from_first, before = False, None
        if not detached:
            from_first = above is None or above.from_first
            base = self._base
            if base is not None and base[0] == parent:
                before = base[1]
        self._nodes[call_id] = _Node(above, detached, from_first, tuple(context), output, before)
        if above is not None:
            above.before, above.continued = None, True

    def add_tool_output(self, call_id: str, position: int, output: responses_pb2.Item) -> None:
        """A tool call was answered: the call at `position` among the calls of `call_id`."""
        node = self._nodes[call_id]
        outputs = node.tool_outputs
        if not outputs:
            node.tool_outputs = {position: output}
        else:
            in_order = position > next(reversed(outputs))
            outputs[position] = output
            if not in_order:
                node.tool_outputs = dict(sorted(outputs.items()))
        self._changed(node)

    def add_turn(self, call_id: str, items: Sequence[responses_pb2.Item]) -> None:
        """The environment took its turn after `call_id`."""
        node = self._nodes[call_id]
        node.turns = [*(node.turns or ()), *items]
        self._changed(node)

    def after(self, call_id: str) -> list[responses_pb2.Item]:
        """The whole conversation up to the end of everything that followed from `call_id`."""
        node = self._nodes[call_id]
        if node.before is not None:
            items = list(node.before)
            node.add_to(items)
            return items
        items = list(self._first) if node.from_first else []
        return _flatten(self._chain(call_id), items)

    def led_to(self, call_id: str) -> int:
        """How many items `after` has behind the call's answer: tool outputs and turns."""
        node = self._nodes[call_id]
        return len(node.tool_outputs or ()) + len(node.turns or ())

    def transcript(self, call_id: str) -> list[responses_pb2.Item]:
        """Like `after`, but without the attempt's first items: what a verifier receives."""
        items = self.after(call_id)
        return items[len(self._first) :] if self._nodes[call_id].from_first else items

    def since_turn(self, call_id: str) -> list[responses_pb2.Item]:
        """Like `transcript`, but only from the environment's last turn on: the items of its next
        turn.
        """
        chain = self._chain(call_id)
        turned = [place for place, node in enumerate(chain) if node.turns is not None]
        return _flatten(chain[turned[-1] + 1 :] if turned else chain, [])

    def _changed(self, node: _Node) -> None:
        """Items were added to a call, so items that were assembled from it are out of date."""
        self._base = None
        if node.continued:
            for one in self._nodes.values():
                one.before = None

    def _chain(self, call_id: str) -> list[_Node]:
        """The calls from the conversation's start to `call_id`."""
        chain: list[_Node] = []
        node: _Node | None = self._nodes[call_id]
        while node is not None:
            chain.append(node)
            if node.detached:
                break
            node = node.parent
        return chain[::-1]


def _flatten(chain: Sequence[_Node], items: list[responses_pb2.Item]) -> list[responses_pb2.Item]:
    """These items, followed by those of the calls."""
    for node in chain:
        node.add_to(items)
    return items


class Continuation(msgspec.Struct, frozen=True, eq=False):
    """How a call continues its parent call, for a service that keeps the conversation.

    Attributes:
        conversation_id: the same for all calls of an attempt.
        known_items: how many leading items the service already has; 0 if they have changed.
        unchanged: whether the items of the parent's tokens are unchanged.
        token: the service's token for the known items.
    """

    conversation_id: str
    known_items: int = 0
    unchanged: bool = False
    token: bytes = b""


class ModelRequest(msgspec.Struct, eq=False):
    """One model call to make.

    Attributes:
        call_id: the call's id.
        model: the name of the model service.
        role: the model's role.
        changes: Responses parameters that only this call changes.
        captured: all parameters except the input, if a gateway captured the call; `changes` is then
            empty. None: the agent makes the call.
        items: the whole conversation.
        parent: the call of the same service that it continues; empty if there is none, or if that
            call has neither a kept conversation nor tokens.
        continuation: None: the conversation is not worth keeping.
        is_plain: whether it is sent without its conversation, for any reason.
    """

    call_id: str
    model: str
    role: str
    changes: Mapping[str, Any] | None
    captured: responses_pb2.ResponseParams | None
    items: ItemSequence
    parent: str
    continuation: Continuation | None
    is_plain: bool = False


class _Answered(msgspec.Struct, frozen=True):
    """What a model service knows of an answered call, if the service still has it.

    Attributes:
        model: the name of the service.
        items: the number of items of the conversation, including the answer.
        token: the service's token for the items; empty if it does not keep the conversation, or if
            its answer differs from the rollout's.
    """

    model: str
    items: int
    token: bytes


class Continuations:
    """Creates the model requests of one attempt, and checks the answers against the exact-token
    law.

    Args:
        conversation_id: the id of the attempt's conversations at model services.
        plan: says which tokens are captured, and whether a violation of the law is permitted.
    """

    def __init__(
        self, conversation_id: str, conversations: ConversationTree, plan: RolloutPlan
    ) -> None:
        self._id = conversation_id
        self._conversations = conversations
        self._plan = plan
        self._answered: dict[str, _Answered] = {}
        self._tokens = CapturedTokens()

    def request(
        self,
        about: rollout_pb2.ModelCallCompleted,
        role: str,
        changes: Mapping[str, Any] | None,
        context: ItemSequence,
        captured: responses_pb2.ResponseParams | None = None,
    ) -> ModelRequest:
        """A request, before it is known which instance of the model service will be asked.

        Args:
            about: the call: its id, model, parent call, and whether it is detached.
            role, changes, captured: see ModelRequest.
            context: the items after the conversation that the call continues.
        """
        above, model = about.parent_call_id, about.model
        base = self._conversations.base(above, about.detached)
        items = [*base, *context]
        answered = None if about.detached else self._answered.get(above)
        if answered is None or answered.model != model:
            answered, above = None, ""
        continuation = None
        # Tokens go on only in a conversation that is kept.
        if self._plan.capture is not None or len(items) > _FEW_ITEMS:
            continuation = self._continuation(above, answered, len(base))
        plain = continuation is None
        return ModelRequest(
            about.call_id, model, role, changes, captured, items, above, continuation, plain
        )

    def prefix_tokens(self, request: ModelRequest) -> model_pb2.PrefixTokens | None:
        """The tokens to send with a whole conversation; None: there are none."""
        if self._plan.capture is None or request.continuation is None or not request.parent:
            return None
        return self._tokens.prefix(request.parent, unchanged=request.continuation.unchanged)

    def answered(
        self, request: ModelRequest, reply: model_pb2.CreateResponseResponse, call: ModelCall
    ) -> tuple[tokens_pb2.TokenCapture | None, MeshError | None]:
        """Record an answer: the tokens for the rollout's event, and the violation of the law, if
        any.

        Tokens with an impossible length or impossible numbers are a fault of the model service:
        CONTRACT_VIOLATED.

        Args:
            request: the request as it was sent.
            call: the answer as it is in the conversation from now on.
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
        if (wrong := invalid_tokens(capture)) is not None:
            return None, wrong
        settled = self._tokens.settle(
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
    """A service that keeps no conversations did not get the earlier tokens, so the call is a
    fork.
    """
    capture = tokens_pb2.TokenCapture()
    capture.CopyFrom(settled.capture)
    capture.fork.reason = tokens_pb2.FORK_REASON_BACKEND
    capture.fork.common_tokens = settled.diverged or 0
    capture.fork.detail = "the model service keeps no conversations"
    return SettledTokens(capture, "BACKEND")
