"""What a conversation keeps for its next call is what its calls alone would give."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gymmesh.responses.v1 import responses_pb2
from gymmesh_agent.model.conversation import ConversationTree
from gymmesh_responses import new_message

Step = tuple[str, int, bool, bool]
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["call", "tool", "turn"]), st.integers(0, 9), st.booleans(), st.booleans()
    ),
    max_size=30,
)


def _item(text: str) -> responses_pb2.Item:
    return new_message("user", text)


def _grown(steps: list[Step], *, asks: bool) -> tuple[ConversationTree, list[str]]:
    """The tree after these steps; with `asks`, as the agent does it: the base is asked for."""
    tree, calls = ConversationTree([_item("task")]), [""]
    for number, (kind, pick, detached, asked) in enumerate(steps):
        parent = calls[pick % len(calls)]
        if kind == "call":
            if asks and asked:
                tree.base(parent, detached=detached)
            made = f"c{number}"
            context, output = [_item(f"{made}?")], [_item(made)]
            tree.add_call(made, parent=parent, detached=detached, context=context, output=output)
            calls.append(made)
        elif parent and kind == "tool":
            tree.add_tool_output(parent, number, _item(f"out{number}"))
        elif parent:
            tree.add_turn(parent, [_item(f"turn{number}")])
    return tree, calls[1:]


@given(steps=STEPS)
def test_the_same_with_and_without(steps: list[Step]) -> None:
    kept, calls = _grown(steps, asks=True)
    plain, _ = _grown(steps, asks=False)
    for call in calls:
        assert kept.after(call) == plain.after(call)
        assert kept.base(call, detached=False) == plain.after(call)
