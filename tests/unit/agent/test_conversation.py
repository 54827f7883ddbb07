from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from gymmesh.responses.v1 import responses_pb2
from gymmesh_agent.model.conversation import ConversationTree
from gymmesh_responses import new_message

Item = responses_pb2.Item


def says(*texts: str) -> list[Item]:
    return [new_message("user", text) for text in texts]


def texts(items: Sequence[Item]) -> list[str]:
    return [item.message.text for item in items]


def add(tree: ConversationTree, call_id: str, parent: str = "", *, detached: bool = False) -> None:
    tree.add_call(
        call_id,
        parent=parent,
        detached=detached,
        context=says(f"{call_id}-context"),
        output=says(call_id),
    )


@given(order=st.permutations(range(5)))
def test_outputs_stand_in_the_order_of_the_calls(order: list[int]) -> None:
    tree = ConversationTree(says("task"))
    add(tree, "c1")
    for place in order:
        tree.add_tool_output("c1", place, says(f"out{place}")[0])
    expected = ["c1-context", "c1", "out0", "out1", "out2", "out3", "out4"]
    assert texts(tree.transcript("c1")) == expected
    assert texts(tree.after("c1")) == ["task", *expected]


def test_calls_continue_their_parents_and_branches_do_not_mix() -> None:
    tree = ConversationTree(says("task"))
    add(tree, "c1")
    add(tree, "c2", "c1")
    add(tree, "c3", "c1")
    add(tree, "c4", "c2", detached=True)
    add(tree, "c5", "c4")
    assert texts(tree.after("c3")) == ["task", "c1-context", "c1", "c3-context", "c3"]
    assert texts(tree.after("c5")) == ["c4-context", "c4", "c5-context", "c5"]
    assert texts(tree.transcript("c5")) == texts(tree.after("c5"))
    assert texts(tree.base("", detached=False)) == ["task"]
    assert tree.base("c2", detached=True) == []


def test_a_turn_is_given_what_came_since_the_last_one() -> None:
    tree = ConversationTree(says("task"))
    add(tree, "c1")
    add(tree, "c2", "c1")
    assert texts(tree.since_turn("c2")) == ["c1-context", "c1", "c2-context", "c2"]
    tree.add_turn("c2", says("your move"))
    add(tree, "c3", "c2")
    assert texts(tree.since_turn("c3")) == ["c3-context", "c3"]
    tree.add_turn("c3", [])
    add(tree, "c4", "c3")
    assert texts(tree.since_turn("c4")) == ["c4-context", "c4"]
    assert texts(tree.after("c4"))[5] == "your move"
