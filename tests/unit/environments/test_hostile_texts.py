"""What reads a model's text ends soon and gives a verdict, whatever the text.

The texts are long enough that anything but linear work would outlast the test's time-out.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gymmesh_resource.environments.code.answers import program_of
from gymmesh_resource.environments.game.answer import find_move
from gymmesh_resource.environments.llm_judge import texts
from gymmesh_resource.environments.llm_judge.fences import fence
from gymmesh_resource.environments.llm_judge.verdicts import (
    SCORE_LABEL,
    read_criterion,
    read_equivalence,
    read_score,
)
from gymmesh_resource.environments.math.answers.extraction import last_box
from gymmesh_resource.environments.math.equivalence import comparison, read_label
from gymmesh_resource.environments.mcp.verdict import judgement, matches
from gymmesh_resource.environments.reasoning_gym.answers import extract_answer
from gymmesh_resource.environments.user_simulator.facts import normalised, spoken
from gymmesh_resource.environments.user_simulator.simulator import heard, read_reply
from gymmesh_resource.environments.web_search import verdict as web

READERS: dict[str, Callable[[str], object]] = {
    "game": find_move,
    "exact text": lambda text: texts.grade("exact", text, "Paris"),
    "fence": lambda text: fence({"response": text}, [SCORE_LABEL]).code,
    "equivalence": lambda text: read_equivalence(text, "[[A=B]]", "[[A!=B]]"),
    "criterion": read_criterion,
    "score": lambda text: read_score(text, 1, 10),
    "math label": read_label,
    "math prompt": lambda text: comparison("1+1?", "2", text),
    "box": last_box,
    "mcp judge": judgement,
    "mcp exact": lambda text: matches(text, ["Paris"], contains=False),
    "mcp contains": lambda text: matches(text, ["Paris", "5"], contains=True),
    "program": program_of,
    "puzzle": extract_answer,
    "facts": lambda text: normalised(spoken(text)),
    "heard": lambda text: heard([text], "###STOP###"),
    "simulated user": lambda text: read_reply(text, "###STOP###"),
    "web answer": web.extract_answer,
    "web match": lambda text: web.match_answer(web.extract_answer(text), ["Paris"], "f1"),
}
PIECES = [
    *("<think>", "</think>", "<answer>", "</answer>", "<move>", "</move>", "\\boxed{", "}", "{"),
    *("[[", "]]", "[[A=B]]", "[[YES]]", "[[7]]", "JUDGEMENT:", "Answer:", "###STOP###", "Paris"),
    *("```", "~~~", "```py\n", "a,\n", "a=", "def "),
    *(" ", "\n", "\t", "*", "_", "-", ".", "5", "a", "\x00", "\ud800", "\u0130", "\ufdfa", "<"),
]


@pytest.mark.parametrize("name", READERS)
def test_any_text(name: str) -> None:
    @settings(max_examples=60, deadline=None)
    @given(st.lists(st.sampled_from(PIECES), max_size=12).map("".join))
    def reads(text: str) -> None:
        READERS[name](text)

    reads()


@pytest.mark.parametrize("name", READERS)
def test_long_texts(name: str) -> None:
    for piece in PIECES:
        READERS[name](piece * 60_000)
