"""What a request costs: a conversation that grows is read on, not anew."""

from __future__ import annotations

from unittest import mock

from gymmesh_agent.gateway.tree.normal_form import PrefixHash
from tests.unit.gateway_tree.wire import Captured, call, echo, message, output, request, wire_id


def test_each_item_of_a_growing_conversation_is_hashed_a_bounded_number_of_times() -> None:
    captured = Captured()
    history = [message("user", "Fix it.")]
    hashed = 0
    plain = PrefixHash.add_item

    def counted(prefix: PrefixHash, item: object) -> None:
        nonlocal hashed
        hashed += 1
        plain(prefix, item)  # type: ignore[arg-type]

    with mock.patch.object(PrefixHash, "add_item", counted):
        for _ in range(500):
            placed = captured.place(request(history))
            wrote = [call("shell", b'{"cmd":"ls"}', "x")]
            captured.answer(placed, wrote)
            captured.tree.delivered(placed.ticket)
            name = f"c{placed.ticket}"
            history += [*echo(name, wrote), output(wire_id(name, 0), f"file {name}")]
            assert placed.parent == (f"c{placed.ticket - 1}" if placed.ticket > 1 else "")
            assert len(placed.items) == (1 if placed.ticket > 1 else 2)
    assert hashed < 4 * len(history)


def test_a_request_of_many_answers_in_a_row_is_read_in_linear_time() -> None:
    captured = Captured()
    captured.ask(request([message("user", "Fix it.")]), [message("assistant", "Fixed.")])
    items = [message("user", "Fix it.")]
    items += [message("assistant", f"Text {place}.") for place in range(20_000)]
    placed = captured.place(request(items))
    assert placed.fork is not None
    assert placed.detached
