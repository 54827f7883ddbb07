"""Calls beside the conversation, and compactions, as the known programs make them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from gymmesh.model.v1 import tokens_pb2
from gymmesh_agent.gateway.request import Hints
from gymmesh_agent.gateway.tree import SideCallRule
from gymmesh_agent.gateway.tree.side_calls import PROGRAM_HABITS
from gymmesh_responses import dumps
from tests.unit.gateway_tree.law import (
    COMPACTION,
    CONTINUATION,
    FORK,
    PREAMBLE,
    SIDE,
    TASK,
    UNKNOWN,
)
from tests.unit.gateway_tree.wire import Captured, call, echo, message, output, request, wire_id

FIRST = (call("shell", b'{"cmd":"ls"}', "x"),)
TITLE = (message("assistant", "Fix a test"),)
SUMMARY = "The test in a.py fails since parse() drops the last line."


def test_the_table_names_each_program_once_and_each_line_has_a_condition() -> None:
    assert len({habits.program for habits in PROGRAM_HABITS}) == len(PROGRAM_HABITS)
    for habits in PROGRAM_HABITS:
        for rule in habits.calls:
            assert rule.kind
            assert rule.trained == (rule.kind == "compaction")
            assert rule.request_kind or rule.system or rule.first or rule.last or rule.no_tools


def test_a_title_is_beside_the_conversation_whenever_it_comes() -> None:
    captured = Captured("opencode")
    title = request(
        [message("user", "Generate a title for this conversation:\n"), TASK], system="", tools=()
    )
    one = captured.place(title)
    assert (one.link, one.side_call, one.trainable, one.parent) == (SIDE, "title", False, "")
    assert one.actor == "title"
    main = captured.ask(request([TASK]), FIRST)
    assert (main.link, main.actor) == (CONTINUATION, "")
    captured.answer(one, TITLE)


def test_a_suggestion_hangs_on_the_conversation_and_does_not_continue_it() -> None:
    captured = Captured("claude-code")
    captured.ask(request([TASK]), FIRST)
    history = [TASK, *echo("c1", FIRST), output(wire_id("c1", 0), "a.py")]
    asked = [*history, message("user", "[SUGGESTION MODE: what would the user type next?]")]
    placed = captured.ask(request(asked), TITLE)
    assert (placed.link, placed.side_call, placed.parent) == (SIDE, "suggestion", "c1")
    assert not placed.detached
    placed = captured.place(request(history))
    assert (placed.link, placed.parent) == (CONTINUATION, "c1")  # and no branch


def test_what_continues_a_side_call_is_beside_the_conversation_too() -> None:
    captured = Captured("claude-code")
    asked = [message("user", "Please write a 5-10 word title for this.")]
    captured.ask(request(asked, tools=()), TITLE)
    placed = captured.place(request([*asked, *TITLE, message("user", "Shorter.")], tools=()))
    assert (placed.link, placed.side_call, placed.parent) == (SIDE, "title", "c1")
    assert not placed.trainable


def test_the_table_is_not_asked_about_unknown_programs() -> None:
    captured = Captured()
    asked = [message("user", "Please write a 5-10 word title for this.")]
    placed = captured.place(request(asked, tools=()))
    assert (placed.link, placed.side_call, placed.trainable) == (CONTINUATION, "", True)


OWN_TITLE = SideCallRule(kind="title", last="Write a short title", no_tools=True)


def test_a_title_that_an_agents_own_line_names_is_beside_the_conversation() -> None:
    captured = Captured(side_calls=[OWN_TITLE])
    asked = [message("user", "Write a short title for: Fix the failing test.")]
    placed = captured.ask(request(asked, tools=()), TITLE)
    assert (placed.link, placed.side_call, placed.trainable) == (SIDE, "title", False)
    main = captured.ask(request([TASK]), FIRST)
    assert (main.link, main.actor, main.trainable) == (CONTINUATION, "", True)
    captured = Captured(side_calls=[OWN_TITLE])
    placed = captured.place(request(asked))  # it offers tools
    assert (placed.link, placed.side_call, placed.actor) == (CONTINUATION, "", "")


def test_own_lines_go_before_the_tables_which_stay() -> None:
    own = [SideCallRule(kind="name", last="a 5-10 word title"), OWN_TITLE]
    captured = Captured("claude-code", own)
    asked = message("user", "Please write a 5-10 word title for this.")
    assert captured.place(request([asked], tools=())).side_call == "name"
    asked = message("user", "[SUGGESTION MODE: go]")
    assert captured.place(request([asked])).side_call == "suggestion"


def test_an_own_line_says_how_an_unknown_program_asks_for_its_summary() -> None:
    rule = SideCallRule(kind="compaction", last="Sum it up", trained=True)
    captured = Captured(side_calls=[rule])
    captured.ask(request([TASK]), FIRST)
    history = [TASK, *echo("c1", FIRST), output(wire_id("c1", 0), "a.py")]
    asked = request([*history, message("user", "Sum it up.")])
    placed = captured.ask(asked, [message("assistant", SUMMARY)])
    assert (placed.parent, placed.side_call, placed.trainable) == ("c1", "", True)
    begun = [message("user", f"Go on from here: {SUMMARY}")]
    placed = captured.place(request(begun))
    assert (placed.parent, placed.actor, placed.link) == ("c2", "", FORK)
    assert placed.fork is not None
    assert placed.fork.reason == COMPACTION


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ({"kind": "", "last": "x"}, "kind: .* is not a word of at most"),
        ({"kind": "Title", "last": "x"}, "kind: .* is not a word of at most"),
        ({"kind": "subagent-1", "last": "x"}, "kind: .* is not a word of at most"),
        ({"kind": "title"}, "kind: the side call has no condition"),
        ({"kind": "title", "most_output_tokens": 9}, "kind: the side call has no condition"),
        ({"kind": "title", "last": "x", "trained": True}, "trained: "),
        ({"kind": "compaction", "last": "x"}, "trained: "),
    ],
)
def test_a_line_that_cannot_be_meant_is_refused(line: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=f"^{said}"):
        SideCallRule(**line)


@pytest.mark.parametrize(
    ("program", "system", "last"),
    [
        ("claude-code", "You are Claude Code.", "Please write a 5-10 word title for this."),
        ("claude-code", "Write a 5-10 word title.", "Find parse()."),
        ("claude-code", "Generate a sentence-case title.", "Find parse()."),
        ("claude-code", "Is it a new conversation topic?", "Find parse()."),
        ("opencode", "You are a title generator.", "Find parse()."),
        ("opencode", "Work.", "Generate a title for this conversation"),
        ("opencode", "Summarize what was done in this conversation.", "Find parse()."),
        ("qwen-code", "Generate a sentence-case title.", "Find parse()."),
        ("qwen-code", "Work.", "Now determine who should logically speak next."),
        ("gemini-cli", "Work.", "What is the primary intent or goal in this conversation?"),
        ("gemini-cli", "You are the Task Routing AI.", "Find parse()."),
        ("openhands", "Work.", "Give a short title for the conversation."),
    ],
)
def test_a_call_that_offers_tools_is_no_title_whatever_it_says(
    program: str, system: str, last: str
) -> None:
    captured = Captured(program)
    captured.ask(request([TASK]), FIRST)
    placed = captured.place(request([message("user", last)], system=system))
    assert (placed.side_call, placed.trainable) == ("", True)
    placed = captured.place(request([message("user", f"{last} So.")], system=system, tools=()))
    assert placed.side_call
    assert (placed.link, placed.trainable) == (SIDE, False)


def test_the_tool_that_is_the_form_of_an_answer_is_none_that_is_offered() -> None:
    captured = Captured("qwen-code")
    form = {"type": "function", "name": "respond_in_schema"}
    system = "Generate a concise, sentence-case title."
    placed = captured.place(request([TASK], system=system, tools=(form,)))
    assert (placed.link, placed.side_call) == (SIDE, "title")
    both = (form, {"type": "function", "name": "shell"})
    placed = captured.place(request([TASK], system=system, tools=both))
    assert (placed.side_call, placed.trainable) == ("", True)


@pytest.mark.parametrize("parts", [(), ("<system-reminder>Today is Monday.</system-reminder>",)])
def test_a_sub_agent_whose_prompt_the_model_wrote_is_no_side_call(parts: tuple[str, ...]) -> None:
    """The words of a side call, chosen by the policy, would hide its work from the trainer."""
    captured = Captured("claude-code")
    prompt = "[SUGGESTION MODE: repair parse() and run the tests]"
    start = (call("Task", dumps({"prompt": prompt}), "x"),)
    captured.ask(request([TASK]), start)
    placed = captured.place(request([message("user", *parts, prompt)], system="You search."))
    assert (placed.side_call, placed.actor, placed.trainable) == ("", "subagent-1", True)
    assert (placed.link, placed.parent) == (FORK, "c1")


def test_a_user_agent_names_the_program() -> None:
    captured = Captured()
    hints = Hints(program="claude-cli")
    asked = [message("user", "Please write a 5-10 word title for this.")]
    assert captured.place(request(asked, tools=(), hints=hints)).side_call == "title"


def test_a_call_without_tools_that_no_line_explains_is_unknown_and_not_trained() -> None:
    captured = Captured("qwen-code")
    placed = captured.place(request([message("user", "Is that safe?")], tools=()))
    assert (placed.link, placed.trainable) == (UNKNOWN, False)
    assert captured.ask(request([TASK]), FIRST).actor == ""
    history = [TASK, *echo("c2", FIRST), output(wire_id("c2", 0), "a.py")]
    placed = captured.place(request(history, tools=()))
    assert (placed.link, placed.parent, placed.trainable) == (UNKNOWN, "c2", False)
    assert placed.actor.startswith("unknown")


def codex(window: int, kind: str = "turn") -> Hints:
    return Hints(program="codex_exec", session="t1", request_kind=kind, window=window)


def test_codex_compacts_without_tools_and_counts_its_windows() -> None:
    captured = Captured("codex")
    captured.ask(request([TASK], hints=codex(0)), FIRST)
    history = [TASK, *echo("c1", FIRST), output(wire_id("c1", 0), "a.py")]
    asked = [*history, message("user", "You are performing a CONTEXT CHECKPOINT COMPACTION.")]
    placed = captured.ask(
        request(asked, tools=(), hints=codex(0, "compaction")), [message("assistant", SUMMARY)]
    )
    assert (placed.parent, placed.link, placed.side_call) == ("c1", FORK, "")
    assert placed.fork is not None
    assert placed.fork.reason == PREAMBLE
    assert placed.trainable
    begun = [TASK, message("user", f"Another model wrote:\n{SUMMARY}")]
    placed = captured.ask(request(begun, hints=codex(1)), FIRST)
    assert (placed.parent, placed.detached, placed.link) == ("c2", True, FORK)
    assert placed.fork is not None
    assert placed.fork.reason == COMPACTION
    assert placed.actor == ""
    history = [*begun, *echo("c3", FIRST), output(wire_id("c3", 0), "a.py")]
    placed = captured.place(request(history, hints=codex(1)))
    assert (placed.parent, placed.link) == ("c3", CONTINUATION)


def test_a_summary_that_is_said_again_behind_a_second_sample_is_no_compaction() -> None:
    rule = SideCallRule(kind="compaction", last="Sum it up", trained=True)
    captured = Captured(side_calls=[rule])
    captured.ask(request([TASK]), FIRST)
    history = [TASK, *echo("c1", FIRST), output(wire_id("c1", 0), "a.py")]
    asked = request([*history, message("user", "Sum it up.")])
    captured.ask(asked, [message("assistant", SUMMARY)])
    begun = [message("user", f"Go on from here: {SUMMARY}")]
    for _ in range(2):
        captured.ask(request(begun), FIRST)
    history = [*begun, *echo("c4", FIRST), output(wire_id("c4", 0), "a.py")]
    placed = captured.ask(request(history), [message("assistant", "Done.")])
    assert (placed.parent, placed.link) == ("c4", CONTINUATION)
    placed = captured.place(request([*history, message("user", f"You wrote: {SUMMARY}")]))
    assert (placed.parent, placed.detached, placed.link) == ("c4", False, FORK)
    assert placed.fork is not None
    assert placed.fork.reason == tokens_pb2.FORK_REASON_HISTORY_REWRITTEN  # c5 is left out


def test_a_new_window_is_a_compaction_even_where_the_summary_is_not_found() -> None:
    captured = Captured("codex")
    captured.ask(request([TASK], hints=codex(0)), FIRST)
    history = [TASK, *echo("c1", FIRST), output(wire_id("c1", 0), "a.py")]
    captured.ask(
        request(history, tools=(), hints=codex(0, "compaction")), [message("assistant", "Short.")]
    )
    placed = captured.place(request([message("user", "Carry on.")], hints=codex(1)))
    assert (placed.parent, placed.link) == ("c2", FORK)
    assert placed.fork is not None
    assert placed.fork.reason == COMPACTION


def test_claude_code_compacts_with_an_instruction_and_begins_anew() -> None:
    captured = Captured("claude-code")
    hints = Hints(session="s")
    captured.ask(request([TASK], hints=hints), FIRST)
    history = [TASK, *echo("c1", FIRST), output(wire_id("c1", 0), "a.py")]
    asked = [
        *history,
        message("user", "Your task is to create a detailed summary of the conversation so far."),
    ]
    wrote = f"<analysis>Long.</analysis>\n\n<summary>\n{SUMMARY}\n</summary>"
    placed = captured.ask(request(asked, hints=hints), [message("assistant", wrote)])
    assert (placed.parent, placed.link, placed.trainable) == ("c1", CONTINUATION, True)
    begun = [message("user", f"It is continued. Summary:\n{SUMMARY}\n\nGo on.")]
    placed = captured.place(request(begun, hints=hints))
    assert (placed.parent, placed.detached, placed.actor) == ("c2", True, "")
    assert placed.fork is not None
    assert placed.fork.reason == COMPACTION


def test_opencode_keeps_the_summary_as_an_answer() -> None:
    captured = Captured("opencode")
    hints = Hints(session="s")
    captured.ask(request([TASK], hints=hints), FIRST)
    history = [TASK, *echo("c1", FIRST), output(wire_id("c1", 0), "a.py")]
    wrote = [message("assistant", SUMMARY)]
    captured.ask(
        request(
            [*history, message("user", "Summarize.")],
            system="You are an anchored context summarization assistant for coding sessions.",
            tools=(),
            hints=hints,
        ),
        wrote,
    )
    begun = [message("user", "What did we do so far?"), *wrote, message("user", "Go on.")]
    placed = captured.place(request(begun, hints=hints))
    assert (placed.parent, placed.detached, placed.actor) == ("c2", True, "")
    assert placed.fork is not None
    assert placed.fork.reason == COMPACTION


def test_gemini_answers_its_own_summary() -> None:
    captured = Captured("gemini-cli")
    captured.ask(request([TASK]), FIRST)
    history = [TASK, *echo("c1", FIRST), output(wire_id("c1", 0), "a.py")]
    asked = [*history, message("user", "Generate the <state_snapshot>.")]
    wrote = [message("assistant", f"<state_snapshot>{SUMMARY}</state_snapshot>")]
    captured.ask(request(asked), wrote)
    begun = [
        message("user", f"<state_snapshot>{SUMMARY}</state_snapshot>"),
        message("assistant", "Got it. Thanks for the additional context!"),
        message("user", "Go on."),
    ]
    placed = captured.place(request(begun))
    assert (placed.parent, placed.detached, placed.actor) == ("c2", True, "")
    assert placed.fork is not None
    assert placed.fork.reason == COMPACTION


def test_a_strange_answer_behind_a_summary_may_be_a_later_one_that_was_changed() -> None:
    captured = Captured("claude-code")
    hints = Hints(session="s")
    captured.ask(request([TASK], hints=hints), FIRST)
    history = [TASK, *echo("c1", FIRST), output(wire_id("c1", 0), "a.py")]
    last = message("user", "Your task is to create a detailed summary of the conversation.")
    captured.ask(request([*history, last], hints=hints), [message("assistant", SUMMARY)])
    begun = [message("user", f"Summary: {SUMMARY}")]
    captured.ask(request(begun, hints=hints), TITLE)
    changed = [message("user", f"Edited. Summary: {SUMMARY}"), message("assistant", "Changed.")]
    placed = captured.place(request([*changed, TASK], hints=hints))
    assert placed.link == UNKNOWN


@pytest.mark.parametrize("kept", [True, False], ids=["kept as an answer", "in a message"])
def test_a_summary_that_is_quoted_behind_itself_begins_nothing_anew(kept: bool) -> None:
    """Another branch of the conversation that the summary began tells the model what it wrote."""
    captured = Captured("opencode")
    hints = Hints(session="s")
    captured.ask(request([TASK], hints=hints), FIRST)
    history = [TASK, *echo("c1", FIRST), output(wire_id("c1", 0), "a.py")]
    system = "You are an anchored context summarization assistant for coding sessions."
    asked = request([*history, message("user", "Summarize.")], system=system, tools=(), hints=hints)
    wrote = [message("assistant", SUMMARY)]
    captured.ask(asked, wrote)
    begun = [message("user", "What did we do so far?"), *wrote, message("user", "Go on.")]
    if not kept:
        begun = [message("user", f"What we did so far: {SUMMARY}")]
    captured.ask(request(begun, hints=hints), FIRST)
    history = [*begun, *echo("c3", FIRST), output(wire_id("c3", 0), "a.py")]
    captured.ask(request(history, hints=hints), [message("assistant", "Done.")])
    quotes = message("user", f"You wrote: {SUMMARY} Is that so?")
    placed = captured.place(request([*history[:-1], quotes], hints=hints))
    assert (placed.parent, placed.detached, placed.link) == ("c3", False, FORK)
    assert placed.fork is not None
    assert placed.fork.reason == tokens_pb2.FORK_REASON_BRANCH


def test_a_second_beginning_in_one_session_is_unknown() -> None:
    captured = Captured("claude-code")
    hints = Hints(session="s")
    captured.ask(request([TASK], hints=hints), FIRST)
    placed = captured.place(request([message("user", "Something else.")], hints=hints))
    assert (placed.link, placed.actor, placed.trainable) == (UNKNOWN, "", True)


@pytest.mark.parametrize("behind", [(), (message("system", "Today is Monday."),)])
def test_system_text_behind_the_last_message_hides_nothing(behind: tuple) -> None:  # type: ignore[type-arg]
    captured = Captured("claude-code")
    asked = [message("user", "[SUGGESTION MODE: go]"), *behind]
    assert captured.place(request(asked)).side_call == "suggestion"


def test_the_page_shows_the_table() -> None:
    page = (Path(__file__).parents[3] / "docs" / "ideas" / "capture.md").read_text(encoding="utf-8")
    shown = set(re.findall(r"^\| (\S+) \| ([a-z_, ]+) \| compaction \|$", page, re.MULTILINE))
    kinds = {
        (
            habits.program,
            ", ".join(dict.fromkeys(rule.kind for rule in habits.calls if not rule.trained)),
        )
        for habits in PROGRAM_HABITS
    }
    assert shown == kinds


def test_a_side_call_behind_one_of_two_equal_answers_hangs_on_neither() -> None:
    captured = Captured("claude-code")
    for _ in range(2):
        captured.ask(request([TASK]), TITLE)
    asked = [TASK, *TITLE, message("user", "[SUGGESTION MODE: go]")]
    placed = captured.place(request(asked))
    assert (placed.side_call, placed.parent, placed.detached) == ("suggestion", "", True)
    assert (placed.link, placed.trainable) == (SIDE, False)
