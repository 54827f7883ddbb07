"""The conversations of one attempt, as the header of rollout.proto defines them. Pure.

    conversation(call) = base + context items + the answer's output
        + the outputs of its tool calls, in the order of the calls
        + the items of its turns

The base is the parent's conversation, nothing for a detached call, and the first items of the
attempt otherwise. Items are shared, never copied and never changed.
"""

from __future__ import annotations

from collections.abc import Sequence

from gymmesh.responses.v1 import responses_pb2


class _Node:
    """One model call, and what it led to."""

    __slots__ = (
        "before",
        "context",
        "continued",
        "detached",
        "output",
        "parent",
        "tool_outputs",
        "turned",
        "turns",
    )

    def __init__(
        self,
        parent: _Node | None,
        detached: bool,
        context: Sequence[responses_pb2.Item],
        output: Sequence[responses_pb2.Item],
    ) -> None:
        self.parent = parent
        self.detached = detached
        self.context = context
        self.output = output
        self.tool_outputs: dict[int, responses_pb2.Item] = {}  # by position
        self.turns: list[responses_pb2.Item] = []
        self.turned = False
        # The items before the context, where they are known; see Conversations.
        self.before: Sequence[responses_pb2.Item] | None = None
        self.continued = False

    def add_to(self, items: list[responses_pb2.Item]) -> None:
        """Put this call's items after these."""
        items += self.context
        items += self.output
        if self.tool_outputs:
            items += [output for _, output in sorted(self.tool_outputs.items())]
        items += self.turns


class Conversations:
    """All conversations of an attempt, as a tree of model calls.

    Args:
        first: the items that every conversation starts from, `Started.items`.

    The last call of a conversation knows what was before it, so that a long one is not put
    together from its calls each time it goes on.
    """

    __slots__ = ("_base", "_first", "_nodes")

    def __init__(self, first: Sequence[responses_pb2.Item]) -> None:
        self._first = tuple(first)
        self._nodes: dict[str, _Node] = {}
        # The last base given: for which parent, and the items.
        self._base: tuple[str, Sequence[responses_pb2.Item]] | None = None

    def base(self, parent: str, *, detached: bool) -> Sequence[responses_pb2.Item]:
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
        *,
        parent: str,
        detached: bool,
        context: Sequence[responses_pb2.Item],
        output: Sequence[responses_pb2.Item],
    ) -> None:
        """A model call was answered. `context` are the items put before the answer."""
        above = self._nodes[parent] if parent else None
        node = self._nodes[call_id] = _Node(above, detached, tuple(context), tuple(output))
        if self._base is not None and self._base[0] == parent and not detached:
            node.before = self._base[1]
        if above is not None:
            above.before, above.continued = None, True

    def add_tool_output(self, call_id: str, position: int, output: responses_pb2.Item) -> None:
        """A tool call was answered: the one at `position` among the calls of `call_id`."""
        node = self._nodes[call_id]
        node.tool_outputs[position] = output
        self._changed(node)

    def add_turn(self, call_id: str, items: Sequence[responses_pb2.Item]) -> None:
        """The environment took its turn after `call_id`."""
        node = self._nodes[call_id]
        node.turns.extend(items)
        node.turned = True
        self._changed(node)

    def after(self, call_id: str) -> list[responses_pb2.Item]:
        """The whole conversation up to and including all that `call_id` led to."""
        node = self._nodes[call_id]
        if node.before is not None:
            items = list(node.before)
            node.add_to(items)
            return items
        chain, whole = self._chain(call_id)
        return [*(self._first if whole else ()), *_flatten(chain)]

    def led_to(self, call_id: str) -> int:
        """How many items `after` has behind the call's answer: what its tools and turns gave."""
        node = self._nodes[call_id]
        return len(node.tool_outputs) + len(node.turns)

    def transcript(self, call_id: str) -> list[responses_pb2.Item]:
        """As `after`, without the attempt's first items: what a verifier is given."""
        return _flatten(self._chain(call_id)[0])

    def since_turn(self, call_id: str) -> list[responses_pb2.Item]:
        """As `transcript`, from the environment's last turn on: what its next turn is given."""
        chain, _ = self._chain(call_id)
        turned = [place for place, node in enumerate(chain) if node.turned]
        return _flatten(chain[turned[-1] + 1 :] if turned else chain)

    def _changed(self, node: _Node) -> None:
        """More came after a call: what was put together from it does not hold any more."""
        self._base = None
        if node.continued:
            for one in self._nodes.values():
                one.before = None

    def _chain(self, call_id: str) -> tuple[list[_Node], bool]:
        """The calls from the conversation's start to `call_id`, and whether it starts from the
        attempt's first items.
        """
        chain: list[_Node] = []
        node: _Node | None = self._nodes[call_id]
        while node is not None:
            chain.append(node)
            if node.detached:
                return chain[::-1], False
            node = node.parent
        return chain[::-1], True


def _flatten(chain: Sequence[_Node]) -> list[responses_pb2.Item]:
    items: list[responses_pb2.Item] = []
    for node in chain:
        node.add_to(items)
    return items
