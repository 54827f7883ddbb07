"""The conversations of one attempt, as the header of rollout.proto defines them. Pure.

    conversation(call) = base + context items + the answer's output
        + the outputs of its tool calls, in the order of the calls
        + the items of its turns

The base is the parent's conversation, nothing for a detached call, and the first items of the
attempt otherwise. Items are shared, never copied and never changed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from gymmesh.responses.v1 import responses_pb2

_Items: TypeAlias = Sequence[responses_pb2.Item]


@dataclass(slots=True, eq=False)
class _Node:
    """One model call, and what it led to.

    Attributes:
        parent: the call that it continues.
        detached: whether it began anew.
        from_first: whether its conversation starts from the attempt's first items.
        context: the items put before the answer.
        output: the answer's items.
        before: the items before the context; None: they are not held.
        continued: whether another call goes on from it.
        tool_outputs: by position, in order; None: there is none.
        turns: what the environment said; None: it took no turn.
    """

    parent: _Node | None
    detached: bool
    from_first: bool
    context: _Items
    output: _Items
    before: _Items | None
    continued: bool = False
    tool_outputs: dict[int, responses_pb2.Item] | None = None
    turns: list[responses_pb2.Item] | None = None

    def add_to(self, items: list[responses_pb2.Item]) -> None:
        """Put this call's items after these."""
        items += self.context
        items += self.output
        if self.tool_outputs:
            items += self.tool_outputs.values()
        if self.turns:
            items += self.turns


class Conversations:
    """All conversations of an attempt, as a tree of model calls.

    Args:
        first: the items that every conversation starts from, `Started.items`.

    The last call of a conversation holds the items before it, so that a long conversation is not
    put together from its calls each time it goes on.
    """

    def __init__(self, first: _Items) -> None:
        self._first = first
        self._nodes: dict[str, _Node] = {}
        # The last base returned: for which parent, and the items.
        self._base: tuple[str, _Items] | None = None

    def base(self, parent: str, detached: bool) -> Sequence[responses_pb2.Item]:
        """The items before the context items of a call that is yet to be made; not to be changed.

        Args:
            parent: the call_id that it continues; empty: it starts from the first items.
            detached: it begins anew, with nothing.
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
            context: the items put before the answer.
            output: the answer's items; kept as they are, and not to be changed any more.
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
        """A tool call was answered: the one at `position` among the calls of `call_id`."""
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
        """The whole conversation up to and including all that `call_id` led to."""
        node = self._nodes[call_id]
        if node.before is not None:
            items = list(node.before)
            node.add_to(items)
            return items
        items = list(self._first) if node.from_first else []
        return _flatten(self._chain(call_id), items)

    def led_to(self, call_id: str) -> int:
        """How many items `after` has behind the call's answer: what its tools and turns gave."""
        node = self._nodes[call_id]
        return len(node.tool_outputs or ()) + len(node.turns or ())

    def transcript(self, call_id: str) -> list[responses_pb2.Item]:
        """As `after`, without the attempt's first items: what a verifier receives."""
        items = self.after(call_id)
        return items[len(self._first) :] if self._nodes[call_id].from_first else items

    def since_turn(self, call_id: str) -> list[responses_pb2.Item]:
        """As `transcript`, from the environment's last turn on: the items of its next turn."""
        chain = self._chain(call_id)
        turned = [place for place, node in enumerate(chain) if node.turns is not None]
        return _flatten(chain[turned[-1] + 1 :] if turned else chain, [])

    def _changed(self, node: _Node) -> None:
        """More came after a call: items put together from it are out of date."""
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
    """These items, and after them those of the calls."""
    for node in chain:
        node.add_to(items)
    return items
