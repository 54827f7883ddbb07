"""The law of docs/capture.md, case by case."""

from __future__ import annotations

import pytest

from gymmesh.model.v1 import tokens_pb2
from gymmesh.rollout.v1 import rollout_pb2
from gymmesh_agent.gateway.request import Hints
from gymmesh_agent.gateway.tree import NewCall
from tests.unit.gateway_tree.wire import (
    Captured,
    call,
    echo,
    message,
    output,
    reasoning,
    request,
    wire_id,
)

CONTINUATION = rollout_pb2.CALL_LINK_CONTINUATION
FORK = rollout_pb2.CALL_LINK_FORK
SIDE = rollout_pb2.CALL_LINK_SIDE
UNKNOWN = rollout_pb2.CALL_LINK_UNKNOWN
BRANCH = tokens_pb2.FORK_REASON_BRANCH
REWRITTEN = tokens_pb2.FORK_REASON_HISTORY_REWRITTEN
RESPELLED = tokens_pb2.FORK_REASON_RESPELLED
PREAMBLE = tokens_pb2.FORK_REASON_PREAMBLE_CHANGED
COMPACTION = tokens_pb2.FORK_REASON_COMPACTION

TASK = message("user", "Fix the failing test.")
FIRST = (
    reasoning("Look first."),
    message("assistant", "I look."),
    call("shell", b'{"cmd":"ls"}', "x"),
)
SHOWN = output(wire_id("c1", 2), "a.py")
SECOND = (message("assistant", "It is fixed."),)


def reason(placed: NewCall) -> int:
    assert placed.fork is not None
    assert placed.link == FORK
    return placed.fork.reason


def begun() -> Captured:
    """A rollout with one call, which called a tool."""
    captured = Captured()
    placed = captured.ask(request([TASK]), FIRST)
    assert (placed.parent, placed.detached, placed.link) == ("", True, CONTINUATION)
    assert placed.actor == ""
    assert placed.trainable
    assert [item.message.role for item in placed.items] == ["system", "user"]
    return captured


def test_a_program_that_changes_nothing_continues() -> None:
    captured = begun()
    placed = captured.place(request([TASK, *echo("c1", FIRST), SHOWN]))
    assert (placed.parent, placed.detached, placed.link) == ("c1", False, CONTINUATION)
    assert placed.items == (output("x", "a.py"),)  # the recorded call's id


@pytest.mark.parametrize(
    "spelled",
    [
        [message("assistant", "I look."), call("shell", b'{ "cmd": "ls" }', wire_id("c1", 2))],
        [message("assistant", "I look.\n"), call("shell", b'{"cmd":"ls"}', wire_id("c1", 2))],
        [message("assistant", "I ", "look."), call("shell", b'{"cmd":"ls"}', wire_id("c1", 2))],
        [call("shell", b'{"cmd":"\\u006cs"}', wire_id("c1", 2)), message("assistant", "I look.")],
        [message("assistant", "I look."), call("shell", b'{"cmd":"ls"}', "an id of its own")],
    ],
    ids=["arguments", "white space", "blocks", "order", "ids"],
)
def test_another_spelling_of_an_answer_continues_it(spelled: list) -> None:  # type: ignore[type-arg]
    captured = begun()
    ids = [item.function_call.call_id for item in spelled if item.HasField("function_call")]
    placed = captured.place(request([TASK, *spelled, output(ids[0], "a.py")]))
    assert (placed.parent, placed.link) == ("c1", CONTINUATION)
    assert placed.items == (output("x", "a.py"),)


def test_arguments_that_are_no_object_are_known_by_their_id_alone() -> None:
    captured = Captured()
    captured.ask(request([TASK]), [call("shell", b'{"cmd":', "x")])
    history = [TASK, call("shell", b"{}", wire_id("c1", 0)), output(wire_id("c1", 0), "no")]
    assert captured.place(request(history)).link == CONTINUATION

    captured = Captured()
    captured.ask(request([TASK]), [call("shell", b'{"cmd":', "x")])
    history = [TASK, call("shell", b"{}", "own"), output("own", "no")]
    assert reason(captured.place(request(history))) == RESPELLED


def test_javascript_numbers_are_a_spelling() -> None:
    captured = Captured()
    captured.ask(request([TASK]), [call("wait", b'{"s":1.0,"id":9007199254740993}', "x")])
    history = [TASK, call("wait", b'{"id":9007199254740992,"s":1}', "own"), output("own", "done")]
    assert captured.place(request(history)).link == CONTINUATION


def test_a_request_that_was_given_up_gets_the_same_answer_until_it_is_delivered() -> None:
    captured = Captured()
    placed = captured.place(request([TASK]))
    captured.tree.given_up(placed.ticket)  # the program did not wait
    assert captured.repeated(request([TASK])) == placed.ticket  # on its way
    captured.answer(placed, FIRST)
    captured.tree.given_up(placed.ticket)  # the stream was cut
    assert captured.repeated(request([TASK])) == placed.ticket
    captured.tree.delivered(placed.ticket)
    assert captured.repeated(request([TASK], hints=Hints(retries=1))) == placed.ticket
    again = captured.place(request([TASK]))
    assert (again.parent, again.detached, reason(again)) == ("", True, BRANCH)
    assert again.actor == ""


def test_equal_requests_at_a_time_are_two_samples() -> None:
    captured = Captured()
    first = captured.place(request([TASK]))
    second = captured.place(request([TASK]))
    assert (second.parent, second.detached, reason(second)) == ("", True, BRANCH)
    third = captured.place(request([TASK]))
    captured.tree.given_up(second.ticket)
    assert captured.repeated(request([TASK])) == second.ticket
    captured.answer(first, FIRST)
    captured.tree.delivered(first.ticket)
    assert third.ticket not in (first.ticket, second.ticket)
    # An SDK's retry is marked; the gateway may not have seen yet that its first try was given up.
    marked = request([TASK], hints=Hints(retries=1))
    assert captured.repeated(marked) in (second.ticket, third.ticket)


def test_equal_requests_of_two_that_go_on_side_by_side_are_a_continuation_and_a_branch() -> None:
    captured = begun()
    history = [TASK, *echo("c1", FIRST), SHOWN]
    first, second = captured.place(request(history)), captured.place(request(history))
    assert (first.parent, first.link) == ("c1", CONTINUATION)
    assert (second.parent, second.detached, reason(second)) == ("c1", False, BRANCH)


def test_a_request_that_failed_may_end_after_that() -> None:
    captured = Captured()
    placed = captured.place(request([TASK]))
    captured.tree.failed(placed.ticket)
    captured.tree.given_up(placed.ticket)
    assert captured.place(request([TASK])).link == CONTINUATION


def test_a_retry_key_names_the_call() -> None:
    captured = Captured()
    hints = Hints(retry_key="k1")
    placed = captured.ask(request([TASK], hints=hints), FIRST)
    assert captured.repeated(request([TASK], hints=hints)) == placed.ticket
    assert captured.place(request([TASK], hints=Hints(retry_key="k2"))).ticket != placed.ticket


def test_a_failed_call_was_never_there() -> None:
    captured = Captured()
    placed = captured.place(request([TASK]))
    captured.tree.failed(placed.ticket)
    again = captured.ask(request([TASK]), FIRST)
    assert (again.link, again.actor) == (CONTINUATION, "")
    history = [TASK, *echo("c2", FIRST), output(wire_id("c2", 2), "a.py")]
    failed = captured.place(request(history))
    captured.tree.failed(failed.ticket)
    assert captured.place(request(history)).link == CONTINUATION


def test_two_continuations_of_one_call_are_a_branch() -> None:
    captured = begun()
    history = [TASK, *echo("c1", FIRST), SHOWN]
    captured.ask(request(history), SECOND)
    placed = captured.place(request([TASK, *echo("c1", FIRST), output(wire_id("c1", 2), "b.py")]))
    assert (placed.parent, placed.detached, reason(placed)) == ("c1", False, BRANCH)


def test_an_answer_that_is_left_out_is_a_rewritten_history() -> None:
    """mini-swe-agent leaves out its own answer without a call."""
    captured = begun()
    history = [TASK, *echo("c1", FIRST), SHOWN]
    captured.ask(request(history), SECOND)
    placed = captured.place(request([*history, message("user", "Call a tool.")]))
    assert (placed.parent, placed.detached, reason(placed)) == ("c1", False, REWRITTEN)
    assert placed.fork is not None
    assert "c2" in placed.fork.detail
    assert len(placed.items) == 2


def test_the_first_answer_left_out_is_a_rewritten_history_as_well() -> None:
    captured = Captured()
    captured.ask(request([TASK]), SECOND)
    placed = captured.place(request([TASK, message("user", "Call a tool.")]))
    assert (placed.parent, placed.detached, reason(placed)) == ("c1", True, REWRITTEN)


def test_a_fragment_that_is_kept_as_the_answer_is_respelled() -> None:
    """OpenCode keeps what it has of a stream that was cut."""
    captured = begun()
    history = [TASK, *echo("c1", FIRST), SHOWN]
    placed = captured.place(request(history))
    captured.answer(placed, SECOND)
    kept = [*history, message("assistant", "It is f"), message("user", "Go on.")]
    placed = captured.ask(request(kept), [message("assistant", "Done.")])
    assert (placed.parent, placed.detached, reason(placed)) == ("c1", False, RESPELLED)
    assert [item.WhichOneof("kind") for item in placed.items] == [
        "function_call_output",
        "message",
        "message",
    ]
    follow = request([*kept, message("assistant", "Done."), message("user", "Thanks.")])
    placed = captured.place(follow)
    assert (placed.parent, placed.link, len(placed.items)) == ("c3", CONTINUATION, 1)


def test_a_fragment_of_the_first_answer_hangs_on_nothing_recorded() -> None:
    captured = Captured()
    captured.answer(captured.place(request([TASK])), SECOND)
    kept = [TASK, message("assistant", "It is f"), message("user", "Go on.")]
    placed = captured.place(request(kept))
    assert (placed.parent, placed.detached, reason(placed)) == ("c1", True, RESPELLED)
    assert len(placed.items) == 4


def test_a_changed_tool_output_hangs_on_the_longest_recorded_prefix() -> None:
    captured = begun()
    third = (call("shell", b'{"cmd":"cat a.py"}', "x"),)
    history = [TASK, *echo("c1", FIRST), SHOWN]
    captured.ask(request(history), third)
    pruned = [
        TASK,
        *echo("c1", FIRST),
        output(wire_id("c1", 2), "[cleared]"),
        *echo("c2", third),
        output(wire_id("c2", 0), "pass"),
    ]
    placed = captured.place(request(pruned))
    assert (placed.parent, placed.detached, reason(placed)) == ("c1", False, REWRITTEN)
    # The answer out of its place is the recorded item, and the output has the recorded id.
    assert placed.items[1] is third[0] or placed.items[1] == third[0]
    assert placed.items[2] == output("x", "pass")


def test_a_changed_first_message_hangs_detached_on_what_the_ids_name() -> None:
    captured = begun()
    history = [message("user", "Something else."), *echo("c1", FIRST), SHOWN]
    placed = captured.place(request(history))
    assert (placed.parent, placed.detached, reason(placed)) == ("c1", True, REWRITTEN)
    assert placed.items[2:5] == FIRST


def test_a_changed_preamble_says_so() -> None:
    captured = begun()
    history = [TASK, *echo("c1", FIRST), SHOWN]
    placed = captured.place(request(history, system="You are another agent."))
    assert (placed.parent, placed.detached, reason(placed)) == ("c1", True, PREAMBLE)
    assert len(placed.items) == 2 + len(FIRST) + 1

    captured = begun()
    placed = captured.place(request(history, tools=({"type": "function", "name": "edit"},)))
    assert (placed.parent, placed.detached, reason(placed)) == ("c1", False, PREAMBLE)


def test_a_conversation_without_tools_continues_after_one_with_tools() -> None:
    captured = Captured()
    plan = [message("user", "Plan it.")]
    captured.ask(request(plan, tools=()), SECOND)
    captured.ask(request([TASK], system="You work."), FIRST)
    history = [*plan, *echo("c1", SECOND), message("user", "What next?")]
    placed = captured.place(request(history, tools=()))
    assert (placed.parent, placed.link, placed.fork) == ("c1", CONTINUATION, None)


def test_equal_answers_without_ids_cannot_be_told_apart() -> None:
    captured = Captured()
    captured.ask(request([TASK]), SECOND)
    captured.ask(request([TASK]), SECOND)
    history = [TASK, *SECOND, message("user", "Sure?")]
    placed = captured.ask(request(history), [message("assistant", "Yes.")])
    assert (placed.parent, placed.detached, placed.link) == ("", True, UNKNOWN)
    assert placed.trainable
    history += [message("assistant", "Yes."), message("user", "Good.")]
    placed = captured.place(request(history))
    assert (placed.parent, placed.link) == ("c3", CONTINUATION)


def test_answers_that_differ_in_white_space_alone_cannot_be_told_apart() -> None:
    """A program may have stripped the text."""
    captured = Captured()
    captured.ask(request([TASK]), [message("assistant", "ok")])
    captured.ask(request([TASK]), [message("assistant", "ok ")])
    placed = captured.place(request([TASK, message("assistant", "ok"), message("user", "Sure?")]))
    assert placed.link == UNKNOWN


def test_equal_answers_with_ids_are_told_apart() -> None:
    captured = begun()
    captured.ask(request([TASK]), FIRST)
    history = [TASK, *echo("c2", FIRST), output(wire_id("c2", 2), "a.py")]
    assert captured.place(request(history)).parent == "c2"
    assert captured.place(request([TASK, *echo("c1", FIRST), SHOWN])).parent == "c1"


def test_an_answer_that_begins_like_another_one_is_not_taken_for_it() -> None:
    captured = Captured()
    looks = message("assistant", "I look.")
    captured.ask(request([message("user", "Another task.")]), [looks])
    captured.ask(request([TASK]), FIRST[1:])
    history = [
        message("user", "Another task."),
        *echo("c2", FIRST[1:]),
        output(wire_id("c2", 1), "a"),
    ]
    placed = captured.place(request(history))
    assert (placed.parent, placed.detached, reason(placed)) == ("c1", True, REWRITTEN)
    assert placed.items[2:4] == FIRST[1:]


def test_what_is_asked_behind_an_equal_answer_is_left_out_of_no_other_branch() -> None:
    captured = begun()
    captured.ask(request([TASK]), FIRST)
    captured.ask(request([TASK, *echo("c1", FIRST), SHOWN]), SECOND)
    history = [TASK, *echo("c2", FIRST), output(wire_id("c2", 2), "a.py"), TASK]
    placed = captured.place(request(history))
    assert (placed.parent, placed.link) == ("c2", CONTINUATION)


def test_an_id_of_another_rollout_names_nothing() -> None:
    captured = begun()
    other = wire_id("c1", 2).replace("0123abcd", "ffffffff")
    history = [
        message("user", "Something else."),
        call("shell", b'{"cmd":"ls"}', other),
        output(other, "a.py"),
    ]
    placed = captured.place(request(history))
    assert placed.link == UNKNOWN


def test_the_model_may_go_on_from_its_own_answer() -> None:
    captured = Captured()
    captured.ask(request([TASK]), [message("assistant", "One, ")])
    placed = captured.ask(
        request([TASK, message("assistant", "One, ")]), [message("assistant", "two.")]
    )
    assert (placed.parent, placed.link, placed.items) == ("c1", CONTINUATION, ())
    history = [TASK, message("assistant", "One, "), message("assistant", "two."), TASK]
    placed = captured.place(request(history))
    assert (placed.parent, placed.link, placed.items) == ("c2", CONTINUATION, (TASK,))


def test_messages_of_one_role_in_a_row_are_one_text() -> None:
    captured = Captured()
    captured.ask(request([message("user", "One. ", "Two.")]), SECOND)
    history = [message("user", "One. "), message("user", "Two."), *SECOND, TASK]
    assert captured.place(request(history)).link == CONTINUATION


def test_a_new_conversation_has_an_actor_of_its_own() -> None:
    captured = begun()
    placed = captured.place(request([message("user", "Review the diff.")], system="Reviewer."))
    assert (placed.parent, placed.link, placed.actor) == ("", CONTINUATION, "conversation-1")
    assert placed.trainable


def test_a_sub_agent_is_known_by_its_prompt() -> None:
    captured = Captured()
    started = (call("task", b'{"prompt":"Find every use of parse()."}', "x"),)
    captured.ask(request([TASK]), started)
    prompt = message("user", "<env>", "Find every use of parse().")
    placed = captured.ask(request([prompt], system="Searcher."), SECOND)
    assert (placed.parent, placed.detached, reason(placed)) == ("c1", True, BRANCH)
    assert placed.actor == "subagent-1"
    follow = captured.place(request([prompt, *SECOND, TASK], system="Searcher."))
    assert (follow.parent, follow.link, follow.actor) == ("c2", CONTINUATION, "subagent-1")


def test_a_sub_agent_is_known_by_its_headers() -> None:
    captured = Captured()
    main, sub = Hints(session="s"), Hints(session="s", agent="a1", parent_agent="s")
    captured.ask(request([TASK], hints=main), FIRST)
    placed = captured.place(request([TASK], hints=sub))
    assert (placed.parent, placed.link, placed.actor) == ("", CONTINUATION, "subagent-1")
    history = [TASK, *echo("c1", FIRST), SHOWN]
    captured.ask(request(history, hints=main), SECOND)
    other = Hints(session="s", agent="a2")
    placed = captured.place(request([*history, *SECOND, TASK], hints=other))
    assert (placed.parent, placed.actor, reason(placed)) == ("c3", "subagent-2", BRANCH)


def test_parallel_calls_each_have_their_place() -> None:
    captured = begun()
    history = [TASK, *echo("c1", FIRST), SHOWN]
    one = captured.place(request([*history, message("user", "One.")]))
    two = captured.place(request([*history, message("user", "Two.")]))
    assert (one.link, two.parent, reason(two)) == (CONTINUATION, "c1", BRANCH)
    captured.answer(two, SECOND)
    captured.answer(one, SECOND)
    placed = captured.place(request([*history, message("user", "One."), *SECOND, TASK]))
    assert (placed.parent, placed.link) == ("c2", CONTINUATION)


def test_examples_that_the_program_wrote_are_context() -> None:
    captured = Captured()
    shots = [message("user", "2+2?"), message("assistant", "4"), message("user", "3+3?")]
    assert captured.ask(request(shots), [message("assistant", "6")]).link == CONTINUATION
    other = [*shots[:2], message("user", "4+4?")]
    placed = captured.place(request(other))
    assert (placed.link, placed.actor) == (CONTINUATION, "conversation-1")
    placed = captured.place(request([*shots[:1], message("assistant", "five"), TASK]))
    assert placed.link == UNKNOWN


SUMMARY = "The tests of the parser fail on empty input; a guard at line 12 is left to do."
OLD = "I read the parser first, and then its tests, to see what fails."
NEW = "The parser has no guard for empty input, so I add one at line 12."


def long_session(program: str = "") -> Captured:
    """A conversation of texts alone: the task, an answer, a request, the answer `SUMMARY`."""
    captured = Captured(program)
    captured.ask(request([TASK]), [message("assistant", OLD)])
    history = [TASK, message("assistant", OLD), message("user", "Summarize.")]
    captured.ask(request(history), [message("assistant", SUMMARY)])
    return captured


@pytest.mark.parametrize(
    "begun",
    [
        [message("user", SUMMARY)],
        [message("user", f"So far:\n{SUMMARY}\nGo on.")],
        [message("user", f"  {SUMMARY.replace('; ', ';  ')}")],
        [TASK, message("user", SUMMARY)],
        [message("user", SUMMARY), message("assistant", OLD), message("user", "Go on.")],
    ],
    ids=["the answer", "within a message", "white space", "behind the task", "with a tail"],
)
def test_a_program_that_is_not_known_begins_anew_with_an_answer(begun: list) -> None:  # type: ignore[type-arg]
    captured = long_session()
    placed = captured.ask(request(begun), [message("assistant", "ok")])
    assert (placed.parent, placed.detached, reason(placed)) == ("c2", True, COMPACTION)
    assert (placed.actor, placed.trainable) == ("", True)
    history = [*begun, message("assistant", "ok"), message("user", "More.")]
    follow = captured.place(request(history))
    assert (follow.parent, follow.link, follow.actor) == ("c3", CONTINUATION, "")


def test_a_summary_that_was_asked_for_without_tools_belongs_to_its_conversation() -> None:
    captured = Captured()
    captured.ask(request([TASK]), [message("assistant", OLD)])
    history = [TASK, message("assistant", OLD), message("user", "Summarize.")]
    captured.ask(request(history, tools=()), [message("assistant", SUMMARY)])
    placed = captured.place(request([message("user", SUMMARY)]))
    assert (placed.parent, reason(placed), placed.actor) == ("c2", COMPACTION, "")


def test_the_answers_of_two_calls_are_no_compaction_of_one() -> None:
    captured = long_session()
    placed = captured.place(request([message("user", f"{OLD} {SUMMARY}")]))
    assert (placed.link, placed.parent, placed.detached) == (UNKNOWN, "", True)

    captured = long_session()
    history = [TASK, message("assistant", OLD), message("user", "Summarize again.")]
    captured.ask(request(history), [message("assistant", SUMMARY)])
    assert captured.place(request([message("user", SUMMARY)])).link == UNKNOWN


def test_an_answer_within_the_summary_is_part_of_it() -> None:
    captured = Captured()
    captured.ask(request([TASK]), [message("assistant", OLD)])
    history = [TASK, message("assistant", OLD), message("user", "Summarize.")]
    captured.ask(request(history), [message("assistant", f"{OLD} {SUMMARY}")])
    placed = captured.place(request([message("user", f"So far: {OLD} {SUMMARY}")]))
    assert (placed.parent, reason(placed)) == ("c2", COMPACTION)


def test_words_that_the_program_gave_itself_are_no_summary() -> None:
    captured = Captured()
    captured.ask(request([message("user", f"Say: {SUMMARY}")]), [message("assistant", SUMMARY)])
    placed = captured.place(request([message("user", f"Say once more: {SUMMARY}")]))
    assert placed.link == UNKNOWN


@pytest.mark.parametrize(
    ("answer", "changed"),
    [
        ("Done.", {}),
        (SUMMARY, {"system": "You are a reviewer."}),
        (SUMMARY, {"tools": ()}),
        (SUMMARY, {"hints": Hints(session="another")}),
    ],
    ids=["short", "system", "tools", "session"],
)
def test_other_conversations_may_quote_an_answer(answer: str, changed: dict) -> None:  # type: ignore[type-arg]
    captured = Captured()
    captured.ask(request([TASK]), [message("assistant", answer)])
    placed = captured.place(request([message("user", f"Review this: {answer}")], **changed))
    assert (placed.parent, placed.link, placed.actor) == ("", CONTINUATION, "conversation-1")


def test_a_known_program_says_itself_that_it_compacts() -> None:
    captured = long_session("opencode")
    placed = captured.place(request([message("user", SUMMARY)]))
    assert (placed.link, placed.actor) == (CONTINUATION, "conversation-1")


def edited(*kept: str) -> list:  # type: ignore[type-arg]
    """A history of texts whose first message is changed."""
    items = [message("user", "Something else.")]
    for text in kept:
        items += [message("assistant", text), message("user", "Go on.")]
    return items


def two_answers() -> Captured:
    captured = Captured()
    captured.ask(request([TASK]), [message("assistant", OLD)])
    history = [TASK, message("assistant", OLD), message("user", "And?")]
    captured.ask(request(history), [message("assistant", NEW)])
    return captured


@pytest.mark.parametrize("kept", [(OLD, NEW), (NEW,)], ids=["all answers", "the last answers"])
def test_a_changed_first_message_before_answers_that_are_known_by_their_words(
    kept: tuple[str, ...],
) -> None:
    captured = two_answers()
    placed = captured.ask(request(edited(*kept)), [message("assistant", SUMMARY)])
    assert (placed.parent, placed.detached, reason(placed)) == ("c2", True, REWRITTEN)
    assert placed.fork is not None
    assert placed.fork.detail == "what came before the answer of c2 is changed"
    assert (placed.actor, placed.trainable) == ("", True)
    # A window that moves on: the branch is known across it.
    placed = captured.place(request([message("user", "Now."), *edited(NEW, SUMMARY)[1:]]))
    assert (placed.parent, reason(placed), placed.actor) == ("c3", REWRITTEN, "")


@pytest.mark.parametrize(
    "kept",
    [(NEW, OLD), (OLD, "Done."), (OLD, SUMMARY)],
    ids=["another order", "a short answer", "an answer of nobody"],
)
def test_answers_that_are_not_a_branch_are_unknown(kept: tuple[str, ...]) -> None:
    captured = two_answers()
    history = [TASK, *edited(OLD, NEW)[1:]]
    captured.ask(request(history), [message("assistant", "Done.")])
    assert captured.place(request(edited(*kept))).link == UNKNOWN


def test_equal_answers_of_two_calls_are_unknown() -> None:
    captured = two_answers()
    captured.ask(request([message("user", "Another task.")]), [message("assistant", NEW)])
    assert captured.place(request(edited(NEW))).link == UNKNOWN


def test_another_agent_with_the_same_answers_is_unknown() -> None:
    captured = two_answers()
    placed = captured.place(request(edited(OLD, NEW), system="You are a reviewer."))
    assert placed.link == UNKNOWN


@pytest.mark.parametrize(
    ("answer", "detail"),
    [
        (NEW, "it holds the answer of c2, and what comes before is changed"),
        ("Written anew.", "it holds an answer that no call of the rollout wrote as it stands"),
    ],
)
def test_the_detail_says_whether_the_model_wrote_what_stands_there(
    answer: str, detail: str
) -> None:
    captured = two_answers()
    history = [TASK, message("assistant", OLD), message("user", "Edited.")]
    placed = captured.place(request([*history, message("assistant", answer), TASK]))
    assert (placed.parent, reason(placed)) == ("c1", REWRITTEN)
    assert placed.fork is not None
    assert placed.fork.detail == detail


def test_a_summary_under_another_system_text_that_was_asked_with_before_is_unknown() -> None:
    """The program may go on with its compaction, or show the answer to another agent."""
    summary = "The first part is done, and the second part is left to do."
    begun_anew = message("user", f"Another model wrote: {summary} Go on.")
    captured = Captured()
    captured.ask(request([TASK]), SECOND)
    history = [TASK, *SECOND, message("user", "Summarize.")]
    captured.ask(request(history), [message("assistant", summary)])
    placed = captured.ask(request([begun_anew]), [message("assistant", "")])
    assert (placed.parent, reason(placed)) == ("c2", COMPACTION)
    placed = captured.place(request([begun_anew], system="Today is Tuesday."))
    assert (placed.parent, placed.detached, placed.link) == ("", True, UNKNOWN)
    assert placed.actor == ""
    # With nothing asked before, it is another agent's.
    reviewed = message("user", f"Review this: {summary}")
    placed = captured.place(request([reviewed], system="You review."))
    assert (placed.link, placed.actor) == (CONTINUATION, "conversation-1")


def test_of_equal_conversations_that_under_the_requests_system_text_continues() -> None:
    captured = Captured()
    for system in ("One.", "Two."):
        captured.ask(request([TASK], system=system), SECOND)
    history = [TASK, *SECOND, message("user", "Go on.")]
    for system, parent in (("Two.", "c2"), ("One.", "c1")):
        placed = captured.place(request(history, system=system))
        assert (placed.parent, placed.detached, placed.link) == (parent, False, CONTINUATION)
    # Neither has this one.
    placed = captured.place(request(history, system="Three."))
    assert (placed.parent, placed.detached, placed.link) == ("", True, UNKNOWN)


def test_which_of_several_answers_was_changed_is_not_guessed() -> None:
    captured = Captured()
    captured.ask(request([TASK]), [call("edit", b"{}", "x1"), call("shell", b"{}", "x2")])
    captured.ask(request([TASK]), [call("shell", b'{"cmd":"ls"}', "x1")])
    # One call of the first is left out, or the second has other arguments.
    history = [TASK, call("shell", b"{}", "own"), output("own", "a.py")]
    placed = captured.place(request(history))
    assert (placed.parent, placed.detached, reason(placed)) == ("", True, RESPELLED)


def test_a_conversation_is_known_again_though_its_beginning_was_sampled_since() -> None:
    """What stood in the place of an answer when it was asked is a recorded answer by now."""
    empty, edited = message("assistant", ""), message("user", "Fix another test.")
    captured = Captured()
    captured.ask(request([TASK]), [empty])
    captured.ask(request([edited, empty, TASK]), FIRST)
    captured.ask(request([edited]), [empty])
    shown = output(wire_id("c2", 2), "a.py")
    placed = captured.place(request([edited, empty, TASK, *echo("c2", FIRST), shown]))
    assert (placed.parent, placed.detached, placed.link) == ("c2", False, CONTINUATION)


@pytest.mark.parametrize("is_named", [True, False])
def test_an_answer_that_is_another_calls_by_its_id_respells_none(is_named: bool) -> None:
    """The same tool with other arguments: without an id it may be an answer that was changed."""
    captured = begun()
    listed = [call("shell", b'{"cmd":"cat a.py"}', "y")]
    captured.ask(request([TASK, *echo("c1", FIRST), SHOWN]), listed)
    edited = [message("user", "Fix another test.")]
    captured.ask(request(edited), [call("shell", b'{"cmd":"pwd"}', "z")])
    kept = echo("c2", listed) if is_named else [call("shell", b'{"cmd":"cat a.py"}', "own")]
    shown = output(kept[0].function_call.call_id, "assert False")
    placed = captured.place(request([*edited, *kept, shown]))
    expected = ("c3", REWRITTEN) if is_named else ("c3", RESPELLED)
    assert (placed.parent, reason(placed)) == expected
    assert placed.fork is not None
    said = "the answer of c2 stands where that of c3 was"
    assert placed.fork.detail == (said if is_named else "the answer of c3 is changed")
    # The outputs follow the answer that was kept.
    assert placed.items[-1] == output("y" if is_named else "own", "assert False")


def rewritten() -> tuple[Captured, list]:  # type: ignore[type-arg]
    """A rollout whose second call has another first message, and what that was asked with."""
    captured = begun()
    history = [message("user", "Something else."), *echo("c1", FIRST)[1:], SHOWN]
    captured.ask(request(history), SECOND)
    return captured, history


def test_a_conversation_that_holds_an_answer_does_not_begin_with_other_tools() -> None:
    captured, history = rewritten()
    placed = captured.place(request([*history, message("user", "Summarize.")], tools=()))
    assert (placed.parent, placed.detached, reason(placed)) == ("c1", True, REWRITTEN)
    assert placed.actor == ""


def test_an_answer_out_of_its_place_is_as_recorded_wherever_it_stands() -> None:
    captured, history = rewritten()
    placed = captured.place(request([*history, message("user", "Call a tool.")]))
    assert (placed.parent, placed.detached, reason(placed)) == ("c2", True, REWRITTEN)
    assert placed.items[2 : 2 + len(FIRST)] == FIRST


def test_part_of_an_answer_that_another_call_wrote_whole_is_that_calls() -> None:
    """Nothing that the program sends tells them apart."""
    captured = Captured()
    captured.ask(request([TASK]), [call("shell", b"{}", "x1"), call("edit", b"{}", "x2")])
    captured.ask(request([TASK]), [call("shell", b"{}", "x1")])
    history = [TASK, call("shell", b"{}", "own"), output("own", "a.py")]
    placed = captured.place(request(history))
    assert (placed.parent, placed.link, placed.items) == (
        "c2",
        CONTINUATION,
        (output("x1", "a.py"),),
    )


def thoughts(*texts: str) -> Captured:
    """A rollout with equal answers to equal conversations, after different reasoning."""
    captured = Captured()
    for text in texts:
        captured.ask(request([TASK]), [reasoning(text), *SECOND])
    return captured


def test_the_reasoning_that_is_sent_tells_equal_answers_apart() -> None:
    go_on = message("user", "Go on.")
    captured = thoughts("Look.", "Think.")
    placed = captured.place(request([TASK, reasoning("Think. "), *SECOND, go_on]))
    assert (placed.parent, placed.link) == ("c2", CONTINUATION)
    for unsure in ([], [reasoning("Another.")]):
        captured = thoughts("Look.", "Think.")
        assert captured.place(request([TASK, *unsure, *SECOND, go_on])).link == UNKNOWN
    captured = thoughts("Look.", "Look.")
    placed = captured.place(request([TASK, reasoning("Look."), *SECOND, go_on]))
    assert placed.link == UNKNOWN


def test_of_equal_answers_that_behind_the_answer_before_continues() -> None:
    """An id earlier in the history tells which branch it is, even under another system text."""
    captured = begun()
    captured.ask(request([TASK], system="Two."), FIRST)
    for one, system in (("c1", "You are an agent."), ("c2", "Two.")):
        history = [TASK, *echo(one, FIRST), output(wire_id(one, 2), "a.py")]
        captured.ask(request(history, system=system), SECOND)
    history = [TASK, *echo("c1", FIRST), SHOWN, *SECOND, message("user", "Go on.")]
    placed = captured.place(request(history, system="Two."))
    assert (placed.parent, placed.detached, reason(placed)) == ("c3", True, PREAMBLE)
