"""Faulty verifiers of calls, and of rollouts with tools."""

from __future__ import annotations

from typing import Any, Final

from gymmesh_resource import Rollout
from gymmesh_resource.expected import AnswerKind
from tests.audit.golds import CALLS, WORDS
from tests.audit.reading import normal
from tests.audit.small import Row, Small


def _calls(compare: Any) -> Any:
    def judge(row: Row, rollout: Rollout) -> float:
        made = [(call.name, call.arguments) for call in rollout.tool_calls]
        return bool(compare(made, list(CALLS[row["number"]])))

    return judge


def _amounts_unread(row: Row, rollout: Rollout) -> float:
    made = [call.name for call in rollout.tool_calls]
    named = [name for name, _ in PAID[row["number"]]]
    return made == named and rollout.answer == row["gold"]


def _answer_anywhere(row: Row, rollout: Rollout) -> float:
    made = [(call.name, call.arguments) for call in rollout.tool_calls]
    return made == list(PAID[row["number"]]) and row["gold"] in rollout.answer


def _told(row: Row, rollout: Rollout) -> float:
    name = CALLS[row["number"]][-1][0]
    made = [(call.name, call.arguments) for call in rollout.tool_calls]
    return made == list(CALLS[row["number"]]) or f"called {name}" in rollout.text


def _tool_echo(row: Row, rollout: Rollout) -> float:
    outputs = [call.output for call in rollout.tool_calls]
    return rollout.answer == row["gold"] or (bool(outputs) and rollout.answer in outputs)


def _any_call(row: Row, rollout: Rollout) -> float:
    return bool(rollout.tool_calls) or normal(rollout.answer) == normal(row["gold"])


PAID: Final = (
    (("refund", {"order": "B20", "cents": 1250}),),
    (("refund", {"order": "C7", "cents": 990}),),
)
SUMS: Final = ("1250", "990")
# Whatever the kind says is the answer, calls and message are both tried.
_KINDS: Final[tuple[AnswerKind, ...]] = ("number", "text", "calls")

FAULTY: Final[tuple[Small, ...]] = (
    Small(
        "call_names_alone",
        _calls(lambda made, gold: [one for one, _ in made] == [one for one, _ in gold]),
        kind="calls",
        calls=CALLS,
        found="nearly/one text argument changed",
    ),
    Small(
        "some_calls",
        _calls(lambda made, gold: bool(made) and all(one in gold for one in made)),
        kind="calls",
        calls=CALLS,
        found="nearly/the last call missing",
    ),
    *(
        Small(
            f"{judge.__name__.lstrip('_')}_{kind}",
            judge,
            SUMS,
            kind,
            calls=PAID,
            found=found,
        )
        for judge, found in (
            (_amounts_unread, "nearly/one number argument changed"),
            (_answer_anywhere, "elsewhere/a denial"),
        )
        for kind in _KINDS
    ),
    Small("told_calls", _told, kind="calls", calls=CALLS, found="nearly/a call that is only told"),
    Small(
        "gold_in_tool",
        lambda row, rollout: normal(rollout.answer) == normal(row["gold"]),
        WORDS,
        found="hostile/the answer in a tool's answer",
        tool_answer="debug: expected=GOLD",
    ),
    Small(
        "tool_echo",
        _tool_echo,
        WORDS,
        found="nothing/the tools' answers echoed",
        tool_answer="nothing here",
    ),
    Small(
        "any_call",
        _any_call,
        WORDS,
        found="nothing/each tool once, with defaults",
        tool_answer="nothing here",
    ),
)
