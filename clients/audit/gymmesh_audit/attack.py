"""One attack of a policy, and its expected result. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal, get_args

from gymmesh_audit.gold import MadeCall

AttackKind = Literal["gold", "nothing", "elsewhere", "nearly", "clothes", "hostile", "stability"]
KINDS: Final[tuple[AttackKind, ...]] = get_args(AttackKind)
#: What each kind is, for reports.
MEANS: Final[dict[AttackKind, str]] = {
    "gold": "the expected answer itself; must win",
    "nothing": "answers made without knowing the task; must not win",
    "elsewhere": "other tasks' answers, hedges, denials; must not win",
    "nearly": "the expected answer with one change; must not win",
    "clothes": "the expected answer in another usual form; must win",
    "hostile": "huge, broken or manipulative text; must not win, and must get a verdict",
    "stability": "the same answer many times; must always earn the same reward",
}
JudgeScript = Literal["oracle", "refuses", "obeys"]


@dataclass(frozen=True, slots=True)
class Attack:
    """The actions of an attacking policy: calls, then a message.

    name: the attack's name, the same for all tasks. wins: whether it should earn the gold's reward;
    None: check only that there is a verdict. calls: the calls before the message. message: None for
    no message. turns: the calls of each further turn, before the message is sent again. raw_calls:
    calls whose arguments are bytes as a model wrote them. echo: the message repeats the answers of
    the tools. judge: how a scripted judge behaves.
    """

    name: str
    kind: AttackKind
    message: str | None = None
    wins: bool | None = False
    calls: Sequence[MadeCall] = ()
    raw_calls: Sequence[tuple[str, bytes]] = ()
    echo: bool = False
    judge: JudgeScript = "oracle"
    turns: Sequence[Sequence[MadeCall]] = ()
