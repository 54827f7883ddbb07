"""Prompts that keep every sampled token, over the chat templates of eight model families."""

from __future__ import annotations

from typing import Any

import pytest

from gymmesh_resource import Environment, Rollout, Session, Task, Turn, tool
from gymmesh_trainers import Generation, SamplingParams, TokenBackend, TrainerCollector
from tests.handoff.trainers.families import FAMILIES, Family

TASK = {
    "task_id": "t",
    "responses_create_params": {
        "input": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "What is in there?"},
        ]
    },
}
# As a model may write it: other spaces, other order and other escapes than a template's.
CALL = '<tool_call>{"arguments":{"where":  "h\\u00fctte"},\n"name": "look"}</tool_call>'


class Hut(Environment[list[str]]):
    """Speaks twice, and shows what is in a place."""

    def create_state(self, task: Task, seed: int) -> list[str]:
        return []

    @tool
    async def look(self, session: Session[list[str]], where: str) -> str:
        """Look into a place.

        Args:
            where: the place.
        """
        return f"a chair in {where}"

    async def next_turn(self, session: Session[list[str]], new: Any) -> Turn:
        session.state.append("turn")
        turns = len(session.state)
        return Turn(f"And then, for the {turns}. time?", done=turns > 2)

    async def verify(self, session: Session[list[str]], rollout: Rollout) -> float:
        return 1.0


def written(family: Family) -> list[tuple[str, bool]]:
    """Six answers, and whether each calls a tool: two and two with user turns between them."""

    def thought(text: str) -> str:
        begin = "" if family.opened else "<think>"
        if family.kwargs.get("enable_thinking") is False:
            return text
        return f"{begin}Let me think.</think>{text}"

    return [
        (thought(f"First. {CALL}"), True),
        (thought(CALL), True),
        (thought("A chair."), False),
        (thought(CALL + CALL), True),
        (thought("  Two chairs.\n"), False),
        (thought("No more."), False),
    ]


class Engine:
    """Writes the answers in other tokens than the tokenizer chooses: letter by letter."""

    def __init__(self, family: Family, tokenizer: Any) -> None:
        self.prompts: list[list[int]] = []
        self.outputs: list[list[int]] = []
        self._answers = iter(written(family))
        self._family, self._tokenizer = family, tokenizer

    async def __call__(self, prompt: list[int], params: SamplingParams) -> Generation:
        text, calls = next(self._answers)
        ids = [one for letter in text for one in self._encode(letter)]
        stop = self._tokenizer.convert_tokens_to_ids(self._family.stops[calls])
        self.prompts.append(prompt)
        self.outputs.append([*ids, stop])
        return Generation([*ids, stop], [-0.5] * (len(ids) + 1))

    def _encode(self, text: str) -> list[int]:
        return list(self._tokenizer.encode(text, add_special_tokens=False))


async def collected(family: Family, **settings: Any) -> tuple[Any, Engine, Any]:
    tokenizer = family.tokenizer()
    engine = Engine(family, tokenizer)
    stops = [tokenizer.convert_tokens_to_ids(one) for one in family.stops]
    backend = TokenBackend(
        tokenizer, engine, stop_token_ids=stops, template=family.kwargs, think_tags=True
    )
    async with TrainerCollector(Hut, model=backend, max_attempts=1, **settings) as collector:
        rollout = await collector.one(TASK)
    return rollout, engine, tokenizer


@pytest.mark.parametrize("family", FAMILIES, ids=lambda one: one.name)
async def test_six_calls_are_one_sample_with_every_sampled_token(family: Family) -> None:
    rollout, engine, tokenizer = await collected(family)
    assert len(engine.prompts) == 6, rollout
    assert len(rollout.samples) == 1, [one.tokens.fork for one in rollout.message.model_calls]
    sample = rollout.samples[0]
    sampled = [one for one, on in zip(sample.tokens, sample.mask, strict=True) if on]
    assert sampled == [one for output in engine.outputs for one in output]
    for before, output, after in zip(
        engine.prompts, engine.outputs, engine.prompts[1:], strict=False
    ):
        assert after[: len(before) + len(output)] == before + output
    text = tokenizer.decode(sample.tokens)
    for said in ("a chair in hütte", "for the 1. time?", "for the 2. time?"):
        assert said in text, text
