"""The tokens of a rollout's model calls as a tree, each token stored once. Pure.

    token_tree     makes the tree of a rollout's calls
    CallNode       one call: the tokens it added to its prompt, and those it sampled

A call either continues the tokens of the call before it, shares only their beginning (a fork), or
begins anew. Building the tree takes time and memory linear in what the calls carry. Nothing is
tokenised again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from gymmesh.rollout.v1 import rollout_pb2 as pb
from gymmesh_client.rollout import free_stretches, is_learned
from gymmesh_responses import TOKEN_BYTES, common_tokens

PartReward: TypeAlias = tuple[int | None, float]
"""A reward of part of a call: the output token before which the part ends (None: the call's end),
and the value."""


@dataclass(slots=True, eq=False)
class CallNode:
    """The tokens of one model call. Positions count from the first token of its prompt.

    Attributes:
        call: the call as the rollout has it.
        base: the call whose tokens this one's prompt begins with; None: no other's.
        start: how many tokens of `base` (its prompt and output) the prompt begins with.
        added: the prompt's tokens behind these, each a little-endian int32.
        above: the call of the same actor that this one continues; None: its path begins here. The
            calls of other actors may stand between them.
        leaf: the end of the only path in which the sampled tokens are trained.
        credits: the rewards of parts of the call.
    """

    call: pb.ModelCallCompleted
    base: CallNode | None
    start: int
    added: bytes
    above: CallNode | None = None
    leaf: CallNode | None = None
    credits: Sequence[PartReward] = ()

    @property
    def begin(self) -> int:
        """The position of the first sampled token: the prompt's length."""
        return self.start + len(self.added) // TOKEN_BYTES

    @property
    def end(self) -> int:
        """The position behind the last sampled token."""
        return self.begin + self.sampled

    @property
    def sampled(self) -> int:
        """How many tokens it sampled."""
        return len(self.call.tokens.output_token_ids) // TOKEN_BYTES

    @property
    def continues(self) -> bool:
        """Whether its prompt begins with all tokens of `base`."""
        return (
            self.base is not None
            and self.start == self.base.end
            and not self.call.tokens.HasField("fork")
        )

    @property
    def learned(self) -> bool:
        """Whether a trainer should learn from it: the policy's own call in the conversation."""
        return is_learned(self.call)

    def tokens(self, first: int = 0, last: int | None = None) -> bytes:
        """The ids of its prompt and output between two positions; little-endian int32."""
        parts: list[bytes] = []
        node: CallNode | None = self
        end = self.end if last is None else min(last, self.end)
        while node is not None and end > first:
            if end > node.start:
                own = node.added + node.call.tokens.output_token_ids
                low = max(first - node.start, 0) * TOKEN_BYTES
                parts.append(own[low : (end - node.start) * TOKEN_BYTES])
                end = node.start
            node = node.base
        parts.reverse()
        return b"".join(parts)

    def path(self) -> list[CallNode]:
        """The calls of the same actor from the first to this one."""
        found: list[CallNode] = []
        node: CallNode | None = self
        while node is not None:
            found.append(node)
            node = node.above
        found.reverse()
        return found

    def free(self) -> list[tuple[int, int]]:
        """The stretches [begin, end) of positions that the policy sampled freely: all of its
        output but what was forced or bound by a grammar. Empty where nobody learns from it.
        """
        if not self.learned:
            return []
        free = free_stretches(self.call.tokens.constrained, self.sampled)
        return [(self.begin + first, self.begin + end) for first, end in free]


def token_tree(
    calls: Iterable[pb.ModelCallCompleted],
    credits: Mapping[str, Sequence[PartReward]] | None = None,
) -> list[CallNode]:
    """The nodes of the calls that have tokens, in the calls' order.

    A call whose prompt cannot be put together (a violation of the exact-token law that the run
    allowed) has none. credits: rewards of parts of calls, by call id.
    """
    nodes: list[CallNode] = []
    known: dict[str, CallNode] = {}
    for call in calls:
        said = call.tokens
        if not (said.output_token_ids or said.prompt_token_ids or said.prompt_prefix_tokens):
            continue
        base = None if call.detached else known.get(call.parent_call_id)
        node = _node(call, base)
        if node is None:
            known.pop(call.call_id, None)
            continue
        node.credits = (credits or {}).get(call.call_id, ())
        known[call.call_id] = node
        nodes.append(node)
    _link(nodes)
    return nodes


def leaves(nodes: Sequence[CallNode]) -> list[CallNode]:
    """The ends of paths with tokens to train, in order, each call given to the first path that it
    is on (`CallNode.leaf`).
    """
    continued = {id(node.above) for node in nodes if node.above is not None}
    found = []
    for node in nodes:
        if id(node) in continued:
            continue
        trains = False
        one: CallNode | None = node
        while one is not None and one.leaf is None:
            one.leaf = node
            trains = trains or bool(one.free())
            one = one.above
        if trains:
            found.append(node)
    return found


def _node(call: pb.ModelCallCompleted, base: CallNode | None) -> CallNode | None:
    """The call's node with what its prompt shares with `base` taken from there; None: the prompt
    cannot be put together.
    """
    said = call.tokens
    shared, added = said.prompt_prefix_tokens, said.prompt_token_ids
    if base is None:
        return None if shared else CallNode(call, None, 0, added)
    if shared > base.end:
        return None
    # More of the prompt may be the base's than the call says: then it is stored once, too.
    most = shared + len(added) // TOKEN_BYTES
    more = common_tokens(added, base.tokens(shared, most))
    shared, added = shared + more, added[more * TOKEN_BYTES :]
    return CallNode(call, base if shared else None, shared, added)


def _link(nodes: Sequence[CallNode]) -> None:
    """Find each call's last one of the same actor above it, in one walk over the tree."""
    below: dict[int, list[CallNode]] = {}
    roots = []
    for node in nodes:
        if node.continues:
            below.setdefault(id(node.base), []).append(node)
        else:
            roots.append(node)
    for root in roots:
        last: dict[str, list[CallNode]] = {}  # of each actor, the calls on the way here
        steps: list[tuple[CallNode, bool]] = [(root, True)]
        while steps:
            node, enters = steps.pop()
            own = last.setdefault(node.call.actor, [])
            if not enters:
                own.pop()
                continue
            node.above = own[-1] if own else None
            own.append(node)
            steps.append((node, False))
            steps += [(one, True) for one in reversed(below.get(id(node), ()))]
