"""Finds what is wrong with a verifier, from the attacks that were played. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from gymmesh_audit.attack import KINDS, AttackKind
from gymmesh_audit.parts import GoldPart
from gymmesh_audit.player import Played
from gymmesh_audit.policies import CONTENT_FREE, SILENCE

N = TypeVar("N", int, float)
_ROUNDING = 1e-9
_SHOWN = 160
_SAID = {"fault": "gets no verdict", "unstable": "is unstable", "leak": "can be read"}


@dataclass(frozen=True, slots=True)
class Weakness:
    """An attack with a wrong result.

    problem: `wins` (although it should not), `loses` (although it should win), `fault` (no
    verdict), `unstable`, or `leak`. count: how often the result was wrong, of `tries`. task_id,
    shown, detail: the first example. reason: why the finding is deliberate. Empty if it must be
    fixed.
    """

    kind: AttackKind
    attack: str
    problem: str
    count: int
    tries: int
    task_id: str
    shown: str
    detail: str
    reason: str = ""

    @property
    def key(self) -> str:
        """The name for lists of deliberate findings: kind/attack."""
        return f"{self.kind}/{self.attack}"

    @property
    def said(self) -> str:
        """The beginning of a sentence: the key, and the problem in words."""
        return f'"{self.key}" {_SAID.get(self.problem, self.problem)}'


@dataclass(frozen=True, slots=True)
class Share:
    """How many attacks of a kind came out wrong, of those played."""

    wrong: int = 0
    played: int = 0


@dataclass(frozen=True, slots=True)
class Measured:
    """The time of the verdicts: the median and the 99th percentile, in seconds.

    verdicts: the number of timed verdicts. p99_bytes: the 99th percentile of the memory of a
    verdict, in bytes. None if memory was not measured.
    """

    verdicts: int = 0
    median_s: float = 0.0
    p99_s: float = 0.0
    p99_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Report:
    """The result of auditing one environment.

    tasks: the number of tried tasks. golds: the number of tried tasks with an expected answer.
    notes: measurements that are not faults. live: the models that the environment calls and that
    are not scripted. unplayed: the kinds of attacks that were skipped for tasks without an expected
    answer. idle: the deliberate entries without a finding. not_varied: the parts of expected
    answers that no attack changes, each with the number of tasks. unjudged: the number of attacks
    that got no verdict, which no share counts.
    """

    environment: str
    version: str
    tasks: int
    golds: int
    findings: Sequence[Weakness]
    shares: Mapping[AttackKind, Share]
    measured: Measured
    notes: Sequence[str] = ()
    live: Sequence[str] = ()
    unplayed: Sequence[AttackKind] = ()
    idle: Sequence[str] = ()
    not_varied: Mapping[GoldPart, int] = field(default_factory=dict)
    unjudged: int = 0

    @property
    def passed(self) -> bool:
        """Whether attacks got verdicts, and nothing needs a fix, in the verifier or in the list of
        deliberate findings.
        """
        judged = any(share.played for share in self.shares.values())
        return (judged or not self.unjudged) and not self.open_weaknesses and not self.idle

    @property
    def open_weaknesses(self) -> list[Weakness]:
        """Findings that need a fix: those that are not deliberate."""
        return [one for one in self.findings if not one.reason]


def target_of(
    golds: Sequence[Played], baseline: float | None, win_reward: float | None
) -> tuple[float | None, list[Weakness]]:
    """The reward of a win, and the findings about the expected answers themselves.

    `baseline`: the reward of silence. The target is the declared threshold, or else the reward of
    the best expected answer. It is None if no attack can be judged.
    """
    findings: list[Weakness] = []
    best: float | None = None
    for one in golds:
        if one.refused:
            continue
        if one.fault or one.reward is None:
            findings.append(_found(one, "fault", one.fault or "there is no verdict"))
            continue
        floor = baseline if baseline is not None else 0.0
        if one.reward <= max(floor, 0.0) + _ROUNDING and one.reward < 1.0 - _ROUNDING:
            detail = (
                f"the expected answer earns {one.reward:g}, but an empty answer earns at "
                "least as much"
            )
            findings.append(_found(one, "loses", detail))
            continue
        best = one.reward if best is None else max(best, one.reward)
    for one in golds:
        if best is not None and one.reward is not None and not one.fault:
            low = one.reward < best - _ROUNDING
            if low and one.reward > max(baseline or 0.0, 0.0) + _ROUNDING:
                detail = (
                    f"this expected answer earns {one.reward:g}, but another expected answer "
                    f"earns {best:g}"
                )
                findings.append(_found(one, "loses", detail))
    if win_reward is not None:
        return win_reward, findings
    return best, findings


def judged(played: Iterable[Played], target: float | None) -> list[Weakness]:
    """The findings on one task: one Weakness for each attack with a wrong result."""
    findings: list[Weakness] = []
    for one in played:
        if one.refused:
            continue
        if one.fault:
            findings.append(_found(one, "fault", one.fault))
            continue
        if one.unjudged and one.attack.kind == "hostile":
            findings.append(_found(one, "fault", "there is no verdict"))
        if one.reward is None or target is None or one.attack.wins is None:
            continue
        won = wins(one, target)
        if won and one.attack.wins is False:
            findings.append(
                _found(one, "wins", f"the answer earns {one.reward:g}, a win needs {target:g}")
            )
        if not won and one.attack.wins is True:
            findings.append(
                _found(one, "loses", f"the answer earns {one.reward:g}, a win needs {target:g}")
            )
    return findings


def without_echoes(
    found: Sequence[Weakness], played: Sequence[Played], target: float | None
) -> list[Weakness]:
    """Replaces all attacks that won by one finding, if the task rewards silence and empty messages,
    or every message. Then doing nothing is right in this task, or its verifier rewards everything,
    and the other findings add no information.
    """
    won = {one.attack.name for one in played if wins(one, target)}
    said = [one for one in played if (one.attack.message or "").strip() and not one.attack.calls]
    every = all(wins(one, target) for one in said if one.reward is not None)
    won_wrongly = [one for one in found if one.problem == "wins"]
    if not won_wrongly or not won.issuperset(CONTENT_FREE) or not (every or SILENCE in won):
        return list(found)
    first = next((one for one in won_wrongly if one.attack == SILENCE), won_wrongly[0])
    more = f"{first.detail}. Other wrong answers that also win: {len(won_wrongly) - 1}"
    return [
        *(one for one in found if one.problem != "wins"),
        replace(
            first,
            detail=f"{more}. If doing nothing is right in this task, list this finding in "
            "deliberate.yaml",
        ),
    ]


def wins(one: Played, target: float | None) -> bool:
    """Whether an attack earns at least the reward of a win."""
    return one.reward is not None and target is not None and one.reward >= target - _ROUNDING


def merged(findings: Iterable[Weakness], played: Sequence[Played]) -> list[Weakness]:
    """The weaknesses of all tasks, one for each attack, problem and reason; open ones first."""
    tries: defaultdict[tuple[str, str], int] = defaultdict(int)
    for one in played:
        if not one.refused:
            tries[one.attack.kind, one.attack.name] += 1
    grouped: dict[tuple[str, str, str, str], Weakness] = {}
    for found in findings:
        key = (found.kind, found.attack, found.problem, found.reason)
        known = grouped.get(key)
        count = known.count + 1 if known else 1
        first = known or found
        grouped[key] = replace(
            first, count=count, tries=max(count, tries[found.kind, found.attack])
        )
    return sorted(
        grouped.values(), key=lambda one: (bool(one.reason), KINDS.index(one.kind), -one.count)
    )


def shares(findings: Iterable[Weakness], played: Iterable[Played]) -> dict[AttackKind, Share]:
    """By kind of attack: the number of wrong results, and of attacks played."""
    wrong: defaultdict[AttackKind, int] = defaultdict(int)
    total: defaultdict[AttackKind, int] = defaultdict(int)
    for found in findings:
        wrong[found.kind] += 1
    for one in played:
        if not one.refused and not one.unjudged:
            total[one.attack.kind] += 1
    return {kind: Share(wrong[kind], max(total[kind], wrong[kind])) for kind in KINDS}


def measured(played: Sequence[Played]) -> Measured:
    """How long verdicts took, and how much memory."""
    seconds = sorted(one.seconds for one in played if one.seconds)
    grown = sorted(one.memory_bytes for one in played if one.memory_bytes is not None)
    if not seconds:
        return Measured()
    return Measured(
        len(seconds),
        seconds[len(seconds) // 2],
        _p99(seconds),
        _p99(grown) if grown else None,
    )


def _p99(values: Sequence[N]) -> N:
    """The 99th percentile of values in ascending order."""
    return values[min(len(values) - 1, len(values) * 99 // 100)]


def unstable(played: Sequence[Played]) -> list[Weakness]:
    """A finding if the same answer did not always earn the same reward."""
    rewards = {one.reward for one in played if not one.fault}
    if len(rewards) < 2:
        return []
    shown = ", ".join("no verdict" if one is None else f"{one:g}" for one in rewards)
    return [_found(played[0], "unstable", f"{len(played)} identical answers earned {shown}")]


def leak(task_id: str, where: str, shown: str) -> Weakness:
    """A finding: the expected answer can be read by the policy."""
    return Weakness(
        "hostile", f"the answer in {where}", "leak", 1, 1, task_id, shown[:_SHOWN], where
    )


def _found(one: Played, problem: str, detail: str) -> Weakness:
    attack = one.attack
    calls = ", ".join(f"{name}({dict(arguments)})" for name, arguments in attack.calls)
    message = "" if attack.message is None else attack.message
    shown = " ".join(filter(None, (calls, repr(_cut(message)) if message else "")))
    return Weakness(
        attack.kind, attack.name, problem, 1, 1, one.task_id, shown[: 2 * _SHOWN], detail[:400]
    )


def _cut(text: str) -> str:
    printable = text.encode("utf-8", "backslashreplace").decode()
    if len(printable) <= _SHOWN:
        return printable
    half = _SHOWN // 2
    return f"{printable[:half]} … {printable[-half:]}"
