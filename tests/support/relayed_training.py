"""Rollouts of a remote mesh whose policy is an engine of this process, offered at a relay; and what
must hold of them, however often the connection breaks.

python -m tests.support.relayed_training '{"agent": …, "relay": …, "tasks": 64, "repeats": 8}'

runs it as a program, which prints `began N` as answers begin, and at the end what it found.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import msgspec

from gymmesh.rollout.v1 import rollout_pb2 as pb
from gymmesh_responses import TOKEN_BYTES
from gymmesh_runtime.security import SecurityConfig, TlsConfig
from gymmesh_trainers import (
    Generation,
    RolloutGroup,
    SamplingParams,
    TokenBackend,
    TrainerCollector,
)
from tests.unit.trainers.char_model import EOS, CharTokenizer

_Ids: TypeAlias = tuple[int, ...]
_TOKENS: Final = CharTokenizer()


def _nothing(began: int) -> None:
    """Nobody is told."""


@dataclass
class TalliedEngine:
    """Samples answers of which none is like another, and keeps each that it completed.

    Attributes:
        began: answers that were begun.
        sampled: the token ids of each completed answer, and of the prompt that it answers.
        aborted: how many answers were cancelled before their end.
        told: called with `began`.
    """

    seconds: tuple[float, float]
    told: Callable[[int], None] = _nothing
    began: int = 0
    aborted: int = 0
    sampled: list[tuple[_Ids, _Ids]] = field(default_factory=list)

    async def __call__(self, prompt: list[int], params: SamplingParams) -> Generation:
        self.began += 1
        number = self.began
        self.told(number)
        try:
            await asyncio.sleep(random.uniform(*self.seconds))
        except asyncio.CancelledError:
            self.aborted += 1
            raise
        ids = [*_TOKENS.encode(f"answer {number}, six"), EOS]
        self.sampled.append((tuple(ids), tuple(prompt)))
        return Generation(ids, [-0.5] * len(ids))


class Findings(msgspec.Struct):
    """What a run came to.

    Attributes:
        rollouts: with a reward; failed: without, and why.
        tokens_sampled: of all answers that the engine completed. tokens_in_rows: of the rollouts'
            calls. tokens_trained: with mask 1 in exactly one sample.
        aborted: answers that were cancelled; lost: completed ones that are in no rollout.
        problems: a sentence for each thing that is not as it must be.
        retried: rollouts by the number of their attempt, above the first.
    """

    rollouts: int = 0
    failed: dict[str, int] = {}
    unscored: int = 0
    rewards: dict[float, int] = {}
    calls: int = 0
    tokens_sampled: int = 0
    tokens_in_rows: int = 0
    tokens_trained: int = 0
    began: int = 0
    aborted: int = 0
    lost: int = 0
    offers: int = 0
    retried: int = 0
    problems: list[str] = []


async def train(
    agent: str | list[str],
    relay: str,
    *,
    tasks: int,
    repeats: int,
    concurrency: int | None = None,
    seconds: tuple[float, float] = (0.05, 0.3),
    told: Callable[[int], None] = _nothing,
    **options: Any,
) -> Findings:
    """Collects the groups of `Talk` over the relay; says what came of it."""
    engine = TalliedEngine(seconds, told)
    rows = [{"task_id": f"t{number}", "prompt": f"Talk {number}."} for number in range(tasks)]
    groups: list[RolloutGroup] = []
    async with TrainerCollector(
        agent,
        model=TokenBackend(_TOKENS, engine),
        relay=relay,
        repeats=repeats,
        concurrency=concurrency,
        **options,
    ) as collector:
        await collector.set_weights_version(7)
        async with collector.step(rows, number=1) as step:
            async for group in step:
                groups.append(group)
        own = None if collector._policy is None else collector._policy.own
        offers = 0 if own is None else own.offers
    found = judge(engine, groups, tasks, repeats)
    found.offers = offers
    return found


def judge(engine: TalliedEngine, groups: list[RolloutGroup], tasks: int, repeats: int) -> Findings:
    """What holds of the rollouts, and what does not."""
    found = Findings(began=engine.began, aborted=engine.aborted)
    found.tokens_sampled = sum(len(ids) for ids, _ in engine.sampled)
    prompts = dict(engine.sampled)  # no answer is like another
    seen = Counter[_Ids]()
    outcomes = Counter[tuple[str, int]]()
    failed = Counter[str]()
    rewards = Counter[float]()
    for group in groups:
        found.unscored += len(group.unscored) + len(group.stale)
        for failure in group.failed:
            outcomes[group.task.id, failure.message.repeat_index] += 1
            failed[failure.message.failed.failure.status.message] += 1
        for rollout in group.rollouts:
            outcomes[group.task.id, rollout.message.repeat_index] += 1
            found.rollouts += 1
            found.retried += rollout.message.attempt > 1
            rewards[float(rollout.reward or 0.0)] += 1
            found.tokens_trained += sum(sample.trained for sample in rollout.samples)
            if len(rollout.samples) != 1:
                found.problems.append(f"{rollout.id} has {len(rollout.samples)} samples")
            found.problems += _discontinuities(rollout.id, rollout.message, prompts)
            for call in rollout.message.model_calls:
                ids = ids_of(call.tokens.output_token_ids)
                seen[ids] += 1
                found.calls += 1
                found.tokens_in_rows += len(ids)
                versions = {span.version for span in call.tokens.weights}
                if versions != {7}:
                    found.problems.append(f"{rollout.id}: weights {sorted(versions)}")
    wanted = {(f"t{task}", repeat) for task in range(tasks) for repeat in range(repeats)}
    if set(outcomes) != wanted or set(outcomes.values()) != {1}:
        found.problems.append(f"{len(outcomes)} of {len(wanted)} outcomes, or some doubled")
    found.problems += [f"an answer in {count} calls" for count in seen.values() if count > 1]
    if strangers := [ids for ids in seen if ids not in prompts]:
        found.problems.append(f"{len(strangers)} answers that the engine never gave")
    found.lost = sum(ids not in seen for ids in prompts)
    found.failed, found.rewards = dict(failed), dict(rewards)
    return found


def _discontinuities(
    rollout_id: str, message: pb.Rollout, prompts: Mapping[_Ids, _Ids]
) -> list[str]:
    """Calls whose prompt, as the engine had it, is not all tokens of the call before and more."""
    problems = []
    before: _Ids = ()
    for call in message.model_calls:
        tokens = call.tokens
        answer = ids_of(tokens.output_token_ids)
        prompt = before[: tokens.prompt_prefix_tokens] + ids_of(tokens.prompt_token_ids)
        if prompt[: len(before)] != before or prompt != prompts.get(answer):
            problems.append(f"{rollout_id}: the prompt of {call.call_id} diverges")
        before = prompt + answer
    return problems


def ids_of(data: bytes) -> _Ids:
    """Token ids from their bytes."""
    return tuple(
        int.from_bytes(data[place : place + TOKEN_BYTES], "little")
        for place in range(0, len(data), TOKEN_BYTES)
    )


def main() -> None:
    asked = json.loads(sys.argv[1])
    if "tls" in asked:
        asked["security"] = SecurityConfig(tls=TlsConfig(**asked.pop("tls")))

    def told(began: int) -> None:
        print(f"began {began}", flush=True)

    found = asyncio.run(train(asked.pop("agent"), asked.pop("relay"), told=told, **asked))
    print(json.dumps(msgspec.to_builtins(found, str_keys=True)), flush=True)


if __name__ == "__main__":
    main()
