"""Append-only prompts of a trainer: on by default, off by a setting, and part of a run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gymmesh_client import UserError
from gymmesh_trainers import Generation, TokenBackend, TrainerCollector, collect
from gymmesh_trainers.trainer_collector.settings import Settings
from tests.support.vllm_server import encode
from tests.unit.model.templates import ToyTokenizer, supports
from tests.unit.trainers.char_model import CharTokenizer, ScriptEngine
from tests.unit.trainers.environments import Sums, rows


class Thinking:
    """Calls a tool after a thought, and answers after another."""

    def __init__(self, tokenizer: ToyTokenizer) -> None:
        self.prompts: list[str] = []
        self._tokenizer = tokenizer

    async def __call__(self, prompt: list[int], params: Any) -> Any:
        self.prompts.append(self._tokenizer.decode(prompt))
        call = '<tool_call>{"name": "add", "arguments": {"left": 0, "right": 1}}</tool_call>'
        text = f"<think>hm</think>{call}" if len(self.prompts) == 1 else "<think>ok</think>1"
        ids = [*encode(text), 2]
        return Generation(ids, [-0.5] * len(ids))


@pytest.mark.parametrize(("append_only", "samples"), [(True, 1), (False, 2)])
async def test_reasoning_that_the_template_drops_is_kept(append_only: bool, samples: int) -> None:
    tokenizer = ToyTokenizer(supports("drops"))
    engine = Thinking(tokenizer)
    model = TokenBackend(tokenizer, engine, think_tags=True)
    async with TrainerCollector(Sums, model=model, append_only=append_only) as collector:
        rollout: Any = await collector.one(rows(1)[0])
    assert rollout.reward == 1.0
    assert len(rollout.samples) == samples
    assert ("<think>hm</think>" in engine.prompts[1]) == append_only


def test_it_is_asked_for_by_default() -> None:
    assert Settings().rollout_options("").append_only
    off = Settings(append_only=False).rollout_options("")
    assert off.HasField("append_only")
    assert not off.append_only


async def test_a_run_is_not_resumed_with_another_value(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"output": tmp_path / "rollouts.jsonl", "repeats": 1}
    settings["model"] = TokenBackend(CharTokenizer(), ScriptEngine(lambda prompt: "1"))
    assert [one async for one in collect(Sums, rows(1), **settings)]
    other = {"resume": True, "append_only": False, **settings}
    with pytest.raises(UserError, match="accept_change=\\('config',\\)"):
        await anext(aiter(collect(Sums, rows(1), **other)))
    accepted = collect(Sums, rows(1), accept_change=["config"], **other)
    assert len([one async for one in accepted]) == 1
