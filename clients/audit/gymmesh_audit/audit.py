"""The audit of one environment: which attacks on which tasks, and the report."""

from __future__ import annotations

import asyncio
import contextlib
import random
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from gymmesh.rollout.v1 import rollout_pb2
from gymmesh_audit.answers import AS_PATTERN, GENERATORS, Variant
from gymmesh_audit.attack import Attack, AttackKind
from gymmesh_audit.deliberate import Meant, idle, with_reasons
from gymmesh_audit.gold import Gold
from gymmesh_audit.hostile import hostile
from gymmesh_audit.judgement import (
    Report,
    Weakness,
    judged,
    leak,
    measured,
    merged,
    shares,
    target_of,
    unstable,
    wins,
    without_echoes,
)
from gymmesh_audit.memory import PeakMemory
from gymmesh_audit.parts import GoldPart, message_first, not_varied, varied, without_other_part
from gymmesh_audit.player import Played, Player
from gymmesh_audit.policies import CONSTANTS, SILENCE, free_forms, from_elsewhere, from_nothing
from gymmesh_audit.retarget import retargeted, with_patterns
from gymmesh_responses import text_of
from gymmesh_runtime.errors import MeshError

_AT_ONCE: Final = 8
_STABLE: Final = 20
# Of each, how many verdicts are measured one at a time.
_MEASURED: Final = 5
_CROSS: Final = 12
# The shortest answer whose appearance in the prompt says something.
_TELLING: Final = 4
# Prompts that ask for the bare answer, so that nothing around it is a usual form.
_BARE: Final = re.compile(r"\b(alone|only|nothing else|without|exactly|no other text)\b", re.I)
_AROUND: Final = (
    "after a paragraph",
    "in a fence",
    "line breaks around it",
    "Windows line ends",
    "a trailing dot",
)
_EACH_TOOL: Final = "each tool once, with defaults"
_CAPITALS: Final = ("in capitals", "in small letters")


@dataclass(frozen=True, slots=True)
class AuditOptions:
    """The extent of an audit.

    seed: the seed of all random choices. The same seed tries the same attacks in the same order.
    tasks: the maximum number of tasks. cheap: try only attacks that need no expected answer, and
    the expected answers themselves. deal: try each constant answer on one task only. retarget: also
    try the same tasks with different expected answers. deliberate: the environment's intended
    findings. None: the environment's own list, if it has one. must_find: the entries of
    `deliberate` that a complete audit must find.
    """

    seed: int = 0
    tasks: int = 50
    cheap: bool = False
    deal: bool = False
    retarget: bool = True
    deliberate: Sequence[Meant] | None = None
    must_find: Sequence[Meant] = ()


@dataclass(frozen=True, slots=True)
class Tried:
    """A task with its expected answers.

    own: whether the task is the environment's, and not one with a changed answer. for_patterns:
    whether the changed answer means something as a regular expression.
    """

    task: rollout_pb2.Task
    golds: Sequence[Gold]
    own: bool = True
    for_patterns: bool = False

    @property
    def prompt(self) -> str:
        """Everything that the policy reads before it answers."""
        params = self.task.params
        texts = (params.instructions, params.input_text, *map(text_of, params.input))
        return "\n".join(filter(None, texts))

    @property
    def unusual_forms(self) -> frozenset[str]:
        """Forms that the task itself rules out."""
        around = _AROUND if _BARE.search(self.prompt) else ()
        cased = b'"case_sensitive":true' in self.task.payload_json.replace(b" ", b"")
        return frozenset((*around, *(_CAPITALS if cased else ())))


GoldsOf = Callable[[rollout_pb2.Task], Sequence[Gold]]
"""Expected answers that the caller knows, for environments that give none."""


async def audit(
    player: Player,
    name: str,
    tasks: Sequence[rollout_pb2.Task],
    options: AuditOptions = AuditOptions(),
    *,
    known: GoldsOf | None = None,
    scripted: bool = True,
    memory: PeakMemory | None = None,
) -> Report:
    """Audit an environment. Its player must be open.

    known: expected answers for tasks whose environment provides none. scripted: whether scripted
    models replace the models that the environment calls. memory: measures the memory of verdicts,
    if the environment is in this process.

    Raises MeshError if the environment cannot be called at all.
    """
    return await _Audit(player, name, options, known, scripted, memory).run(tasks)


class _Audit:
    def __init__(
        self,
        player: Player,
        name: str,
        options: AuditOptions,
        known: GoldsOf | None,
        scripted: bool,
        memory: PeakMemory | None,
    ) -> None:
        self._player = player
        self._memory = memory
        self._name = name
        self._options = options
        self._known = known
        self._scripted = scripted
        self._random = random.Random(options.seed)
        self._places = asyncio.Semaphore(_AT_ONCE)
        self._played: list[Played] = []
        self._findings: list[Weakness] = []
        self._notes: list[str] = []
        self._losses: Counter[str] = Counter()
        self._not_varied: Counter[GoldPart] = Counter()
        self._own_golds: list[Gold] = []
        self._target: float | None = None

    async def run(self, tasks: Sequence[rollout_pb2.Task]) -> Report:
        chosen = list(tasks)
        if len(chosen) > self._options.tasks:
            chosen = self._random.sample(chosen, self._options.tasks)
        tried = [Tried(task, await self._golds(task)) for task in chosen]
        self._own_golds = [
            part for one in tried for gold in one.golds for part in varied(gold, both=True)
        ]
        more = await self._retargeted(tried)
        for one in (*tried, *more):
            await (self._pattern(one) if one.for_patterns else self._task(one, tried))
        if not self._options.cheap:
            await self._stability(tried)
        about = self._player.about
        self._notes += [
            f'the attack "{name}" loses on {count} task{"" if count == 1 else "s"}. A verifier may '
            "reject this form of the answer"
            for name, count in self._losses.items()
        ]
        found = with_reasons(self._findings, self._options.deliberate or ())
        return Report(
            environment=self._name,
            version=about.verifier_version or about.version,
            tasks=len(tried),
            golds=sum(bool(one.golds) for one in tried),
            findings=merged(found, self._played),
            shares=shares([one for one in found if not one.reason], self._played),
            measured=measured(self._played),
            notes=self._notes,
            live=() if self._scripted else tuple(about.models),
            unplayed=self._unplayed(tried),
            not_varied=dict(self._not_varied),
            unjudged=sum(one.unjudged for one in self._played),
            idle=self._idle() if len(tried) == len(tasks) else (),
        )

    def _idle(self) -> list[str]:
        """Entries of what is deliberate without a finding, where everything was tried."""
        if self._options.cheap or not self._options.retarget:
            return []
        return [str(one) for one in idle(self._findings, self._options.must_find)]

    async def _golds(self, task: rollout_pb2.Task) -> Sequence[Gold]:
        golds = await self._player.golds(task)
        return golds or (self._known(task) if self._known is not None else [])

    async def _retargeted(self, tried: Sequence[Tried]) -> list[Tried]:
        """For each kind and form, other expected answers, each on the first task that has one of
        its shape.
        """
        if self._options.cheap or not self._options.retarget:
            return []
        more: list[Tried] = []
        seen: set[tuple[str, str, str]] = set()
        pairs = [(one, gold) for one in tried for gold in one.golds]
        for one, gold in pairs:
            plain = [Tried(task, (), own=False) for task in retargeted(one.task, gold)]
            meaning = [
                Tried(task, (), own=False, for_patterns=True)
                for task in with_patterns(one.task, gold)
            ]
            for new in (*plain, *meaning):
                named = new.task.task_id.removeprefix(one.task.task_id)
                if (gold.kind, gold.form, named) not in seen:
                    seen.add((gold.kind, gold.form, named))
                    more += await self._taken(one.task, new, gold)
        return more

    async def _taken(self, original: rollout_pb2.Task, new: Tried, old: Gold) -> list[Tried]:
        """The changed task with its expected answers, where the environment takes it."""
        with contextlib.suppress(MeshError):
            golds = await self._golds(new.task)
            if golds and await self._expects(original, new.task, old):
                return [replace(new, golds=golds)]
        return []

    async def _expects(self, original: rollout_pb2.Task, task: rollout_pb2.Task, old: Gold) -> bool:
        """Whether the verifier reads the changed answer: the old one must not win any more."""
        attack = Attack("the old answer", "gold", old.message or None, None, old.calls)
        before, after = [await self._player.play(one, attack) for one in (original, task)]
        return not after.refused and before.reward != after.reward

    async def _task(self, one: Tried, all_tried: Sequence[Tried]) -> None:
        """Play everything on one task and judge it."""
        golds = [
            Attack(
                "the expected answer",
                "gold",
                gold.message or None,
                wins=True,
                calls=gold.calls,
                turns=gold.turns,
            )
            for gold in one.golds
        ]
        silent = Attack(SILENCE, "nothing")
        first = await self._play(one.task, [silent, *golds])
        baseline = first[0].reward
        about = self._player.about
        declared = about.win_reward if about.HasField("win_reward") else None
        target, wrong = target_of(first[1:], baseline, declared)
        if not one.own and (target is None or (baseline or 0.0) >= target):
            return  # the verifier is not made for this answer
        self._findings += wrong
        if target is None and not one.golds:
            target = 1.0
        parts = await self._parts(one, target)
        attacks = [attack for attack in self._attacks(one, parts, all_tried) if attack != silent]
        attacks += await self._tool_policies(one)
        played = await self._play(one.task, attacks)
        if one.own and target is not None:
            self._target = max(target, self._target or 0.0)
        played = [first[0], *played]
        self._findings += without_echoes(judged(played, target), played, target)
        self._measure(played, target)
        told = next(
            (result.told for result in played if result.attack.kind == "nothing" and result.told),
            "",
        )
        self._leaks(one, "a tool's answer", told)

    async def _parts(self, one: Tried, target: float | None) -> list[Gold]:
        """The expected answers to vary, each under every kind by which it is varied."""
        golds = list(one.golds)[:2]
        if self._options.cheap:
            return []
        parts: list[Gold] = []
        for gold in golds:
            both = one.own and await self._reads_both_parts(one.task, gold, target)
            parts += [part for part in varied(gold, both=both) if part not in parts]
        if one.own:
            self._not_varied.update(not_varied(golds, parts))
        return parts

    async def _reads_both_parts(
        self, task: rollout_pb2.Task, gold: Gold, target: float | None
    ) -> bool:
        """Whether the verifier reads the calls and the message of an expected answer."""
        attack = without_other_part(gold)
        if attack is None:
            return False
        return not wins(await self._player.play(task, attack), target)

    async def _pattern(self, one: Tried) -> None:
        """Play a match of the expected answer as a pattern. The expected answer itself may lose: as
        a pattern it need not match itself.
        """
        attacks = [
            attack
            for gold in one.golds
            for attack in _nearly(gold, GENERATORS[gold.kind].nearly(gold), one.golds)
            if attack.name == AS_PATTERN
        ]
        silent, *played = await self._play(one.task, [Attack(SILENCE, "nothing"), *attacks])
        target = self._target
        if target is not None and silent.reward is not None and silent.reward < target:
            self._findings += [found for found in judged(played, target) if found.problem == "wins"]

    def _usual(self, gold: Gold, variant: Variant) -> bool:
        """Whether a verifier of this environment must take a form, by its expected answers."""
        return variant.usual and any(
            re.search(variant.where, one.answer) for one in self._own_golds if one.kind == gold.kind
        )

    def _unplayed(self, tried: Sequence[Tried]) -> list[AttackKind]:
        """The kinds that need an expected answer, where a task has none."""
        if all(one.golds for one in tried):
            return []
        return ["gold"] if self._options.cheap else ["gold", "elsewhere", "nearly", "clothes"]

    def _measure(self, played: Sequence[Played], target: float | None) -> None:
        """Count forms that a verifier may take or not: losing by them is no fault."""
        for one in played:
            lost = one.reward is not None and target is not None and one.reward < target
            if one.attack.kind == "clothes" and one.attack.wins is None and lost:
                self._losses[one.attack.name] += 1

    def _attacks(
        self, one: Tried, parts: Sequence[Gold], all_tried: Sequence[Tried]
    ) -> Iterator[Attack]:
        golds = one.golds
        constants = CONSTANTS
        if self._options.deal and one in all_tried:
            constants = CONSTANTS[all_tried.index(one) :: len(all_tried)]
        yield from from_nothing(one.prompt, golds, constants)
        if self._options.cheap:
            return
        others = [gold for other in all_tried if other is not one for gold in list(other.golds)[:1]]
        if len(others) > _CROSS:
            others = self._random.sample(others, _CROSS)
        yield from from_elsewhere(message_first([*parts, *list(golds)[2:]]), others)
        for gold in parts:
            generator = GENERATORS[gold.kind]
            yield from _nearly(gold, generator.nearly(gold), golds)
            yield from free_forms(gold, tools=bool(one.task.params.tools or gold.calls))
            for variant in generator.clothes(gold):
                if variant.name not in one.unusual_forms:
                    yield _attack(gold, variant, "clothes", wins=self._usual(gold, variant) or None)
        if one.own:
            yield from hostile(golds, judged=bool(self._player.about.models) and self._scripted)

    async def _tool_policies(self, one: Tried) -> list[Attack]:
        """Each tool called with defaults, and its outputs echoed; and what the tools told."""
        if not one.own:
            return []
        try:
            opened = await self._player.session(one.task)
        except MeshError:
            return []
        await self._player.close(opened.session_id)
        calls = self._player.default_calls(opened, one.task)
        self._leaks(one, "the prompt", one.prompt)
        self._leaks(one, "the opening", "\n".join(map(text_of, opened.items)))
        if not calls or any(list(gold.calls) == list(calls) for gold in one.golds):
            return []
        return [
            Attack(_EACH_TOOL, "nothing", "Done.", calls=calls),
            Attack("the tools' answers echoed", "nothing", calls=calls, echo=True),
        ]

    def _leaks(self, one: Tried, where: str, text: str) -> None:
        """A finding where the bare answer can be read. Not for choices, which prompts list."""
        for gold in one.golds:
            bare = gold.answer.strip()
            telling = gold.kind in ("text", "number", "json", "sql", "code")
            if telling and len(bare) >= _TELLING and bare.casefold() in text.casefold():
                self._findings.append(leak(one.task.task_id, where, bare))
                return

    async def _stability(self, tried: Sequence[Tried]) -> None:
        """The same answers many times, in another order and side by side."""
        for one in tried[:3]:
            answers = [
                Attack(
                    "the expected answer again",
                    "stability",
                    gold.message or None,
                    None,
                    gold.calls,
                    turns=gold.turns,
                )
                for gold in one.golds[:1]
            ]
            answers.append(Attack("a wrong answer again", "stability", "Harbour 17", None))
            again = [attack for attack in answers for _ in range(_STABLE)]
            self._random.shuffle(again)
            played = await self._play(one.task, again)
            for attack in answers:
                mine = [result for result in played if result.attack is attack]
                found = unstable(mine)
                if self._scripted or not self._player.about.models:
                    self._findings += found
                else:
                    self._notes += [f'"{item.attack}": {item.detail}' for item in found]
            await self._alone(one.task, answers)

    async def _alone(self, task: rollout_pb2.Task, answers: Sequence[Attack]) -> None:
        """The same answers one at a time, so that each verdict's memory is its own."""
        if self._memory is None:
            return
        for attack in [*answers] * _MEASURED:
            self._memory.start()
            played = await self._player.play(task, attack)
            self._played.append(replace(played, memory_bytes=self._memory.grown_bytes()))

    async def _play(self, task: rollout_pb2.Task, attacks: Sequence[Attack]) -> list[Played]:
        """Plays side by side; the results in the order of the attacks."""

        async def one(attack: Attack) -> Played:
            async with self._places:
                return await self._player.play(task, attack)

        played = await asyncio.gather(*map(one, attacks))
        self._played += played
        return played


def _nearly(gold: Gold, variants: Iterator[Variant], golds: Sequence[Gold]) -> Iterator[Attack]:
    """The attacks of wrong answers; those that another expected answer allows are left."""
    for variant in variants:
        # Letter by letter: what is nearly right may be the same by a broad reading.
        if variant.calls is None:
            right = any(variant.answer == one.answer for one in golds)
        else:
            right = any(list(variant.calls) == list(one.calls) for one in golds)
        if not right:
            yield _attack(gold, variant, "nearly", wins=False)


def _attack(gold: Gold, variant: Variant, kind: AttackKind, *, wins: bool | None) -> Attack:
    message = variant.message
    if message is None and variant.answer is not None:
        message = gold.say(variant.answer)
    if variant.calls is None:
        return Attack(variant.name, kind, message, wins, gold.calls, turns=gold.turns)
    turns = gold.turns if kind == "clothes" else ()
    return Attack(variant.name, kind, message, wins, variant.calls, turns=turns)
