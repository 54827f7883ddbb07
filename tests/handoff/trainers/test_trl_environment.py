"""TRL's own loop over sessions of gymmesh environments, through `environment_factory`."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

import pytest
import torch
from datasets import Dataset
from transformers import Qwen2Config, Qwen2ForCausalLM
from transformers.utils import get_json_schema
from trl import GRPOConfig, GRPOTrainer
from trl.chat_template_utils import qwen3_chat_template

from gymmesh import Environment, Rollout, Session, tool
from gymmesh.rollout.v1 import rollout_pb2 as pb
from gymmesh_mesh import MeshConfig, up
from gymmesh_model.config import ModelConfig
from gymmesh_resource.config import EnvironmentConfig
from gymmesh_trainers.trainer_collector.loop_thread import LoopThread
from gymmesh_trainers.trl.environment import TrlEnvironments

SHOP = f"{Path(__file__).parents[3] / 'examples' / 'first_environment' / 'shop.py'}:Shop"
TASKS = [
    {"task_id": "apples", "prompt": "Put two apples into the basket.", "wanted": {"apple": 2}},
    {"task_id": "tea", "prompt": "Put a tea into the basket.", "wanted": {"tea": 1}},
]
END = "<|im_end|>"
Script = Callable[[str, int], str]


def call(name: str, **arguments: Any) -> str:
    said = json.dumps({"name": name, "arguments": arguments})
    return f"<tool_call>\n{said}\n</tool_call>{END}"


class ScriptedModel(Qwen2ForCausalLM):  # type: ignore[misc]  # transformers is not typed here
    """A real model of random weights, whose samples are scripted: by the prompt's text, and how
    often the same text came before in the batch.
    """

    script: Script
    reader: Any

    def generate(self, input_ids: Any, attention_mask: Any, **options: Any) -> Any:
        rows, seen = [], list[str]()
        for ids, mask in zip(input_ids, attention_mask, strict=True):
            text = self.reader.decode(ids[mask.bool()])
            rows.append(self.reader.encode(self.script(text, seen.count(text))))
            seen.append(text)
        width = max(map(len, rows))
        made = [row + [self.reader.pad_token_id] * (width - len(row)) for row in rows]
        return torch.cat([input_ids, torch.tensor(made)], dim=1)


@pytest.fixture
def chat(tokenizer: Any) -> Iterator[Any]:
    """The tokenizer with a template that TRL knows."""
    before = tokenizer.chat_template
    tokenizer.chat_template = qwen3_chat_template
    yield tokenizer
    tokenizer.chat_template = before
    tokenizer.response_schema = None


def scripted(chat: Any, script: Script) -> Any:
    """The model, always with the same weights."""
    torch.manual_seed(0)
    model = ScriptedModel(
        Qwen2Config(
            vocab_size=len(chat), hidden_size=32, intermediate_size=64, num_hidden_layers=2,
            num_attention_heads=2, num_key_value_heads=1, max_position_embeddings=4096,
            pad_token_id=0, eos_token_id=2,
        )
    )  # fmt: skip
    model.script, model.reader = script, chat
    return model


def settings(folder: Path, batch: int) -> Any:
    """For a processor: one step with this many rollouts, two of each row."""
    return GRPOConfig(
        output_dir=str(folder), max_steps=1, num_generations=2, temperature=1.0,
        per_device_train_batch_size=batch, max_completion_length=512, use_cpu=True,
        bf16=False, report_to=[], save_strategy="no", learning_rate=1e-2, logging_steps=1,
    )  # fmt: skip


def train(folder: Path, chat: Any, factory: Any, script: Script, **more: Any) -> Any:
    """Two rollouts of each row, one optimizer step; the trainer."""
    model = scripted(chat, script)
    config = settings(folder, 2 * len(more["train_dataset"]))
    trainer = GRPOTrainer(
        model, environment_factory=factory, processing_class=chat, args=config, **more
    )
    before = [one.clone() for one in model.parameters()]
    trainer.train()
    trainer.changed = any(
        (old != new).any() for old, new in zip(before, model.parameters(), strict=True)
    )
    return trainer


def shopping(text: str, repeat: int) -> str:
    """Every other shopper puts the right things into the basket."""
    if "<tool_response>" in text:
        return f"It is done.{END}"
    if "two apples" in text:
        return call("add", item="apple", count=2 - repeat)
    return call("add", item="tea") if repeat == 0 else call("buy", item="tea")


def assert_shopped(environments: TrlEnvironments, folder: Path, chat: Any) -> None:
    trainer = train(
        folder, chat, environments, shopping, reward_funcs=environments.reward,
        train_dataset=Dataset.from_list(environments.rows),
    )  # fmt: skip
    rewards: dict[str, list[float | None]] = {}
    for one in environments.outcomes:
        rewards.setdefault(one.task_id, []).append(one.reward)
    assert rewards == {"apples": [1.0, 0.0], "tea": [1.0, 0.0]}
    assert {one.stop_reason for one in environments.outcomes} == {pb.STOP_REASON_MODEL_FINISHED}
    assert environments.counts["rollouts"] == 4
    assert environments.counts["failed"] == 0
    [line] = [one for one in trainer.state.log_history if "reward" in one]
    assert line["reward"] == 0.5
    assert line["tools/call_frequency"] == 1.0
    assert line["tools/failure_frequency"] == 0.25  # the tool that is not there
    assert trainer.changed


def test_a_shop_in_this_process_is_an_environment_of_trl(tmp_path: Path, chat: Any) -> None:
    with TrlEnvironments(SHOP, TASKS, chat) as environments:
        assert environments.unsaid == {"add": ["parameters.properties.count.default"]}
        assert_shopped(environments, tmp_path, chat)


def test_the_snippet_of_the_docs_runs(
    tmp_path: Path, chat: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    page = (Path(__file__).parents[3] / "docs" / "how-to" / "training.md").read_text()
    begin = "```python\n# TRL with environment_factory\n"
    snippet = page.partition(begin)[2].partition("```")[0]
    assert snippet
    config = settings(tmp_path, 4)
    names = {"shop": SHOP, "tasks": TASKS, "tokenizer": chat, "config": config}
    libraries = {"GRPOTrainer": GRPOTrainer, "Dataset": Dataset}
    exec(  # noqa: S102
        compile(snippet, "training.md", "exec"),
        names | libraries | {"model": scripted(chat, shopping)},
    )
    assert "'rollouts': 4" in capsys.readouterr().out


def test_a_shop_at_an_address_is_an_environment_of_trl(tmp_path: Path, chat: Any) -> None:
    elsewhere = LoopThread()
    elsewhere.start()
    unused = ModelConfig(backend="chat", url="http://127.0.0.1:9/v1", model="m")
    shop = EnvironmentConfig(use=SHOP)
    mesh = up(MeshConfig(environments={"shop": shop}, models={"policy": unused}))
    try:
        services = elsewhere.run(mesh.__aenter__())
        try:
            address = services.address_of("environment", "shop")
            with TrlEnvironments(address, TASKS, chat) as environments:
                assert environments.name == "shop"
                assert_shopped(environments, tmp_path, chat)
        finally:
            elsewhere.run(mesh.__aexit__(None, None, None))
    finally:
        elsewhere.end()


class Broken(Environment[None]):
    """Has a tool that breaks for one task."""

    @tool
    async def look(self, session: Session[None], where: Literal["up", "down"]) -> str:
        """Look somewhere.

        Args:
            where: the direction.
        """
        if session.task.payload["breaks"]:
            raise RuntimeError("out of order")
        return f"nothing {where} there"

    async def verify(self, session: Session[None], rollout: Rollout) -> float:
        """1 for an answer after the tool's; it must be the model's last words."""
        return float(rollout.answer == "I looked.")


def looking(text: str, repeat: int) -> str:
    if "<tool_response>" in text or (repeat and "whole" in text):
        return f"I looked.{END}" if "whole" in text else f"I am not sure.{END}"
    return call("look", where="up")


def test_a_failed_rollout_has_no_reward_and_two_environments_train_together(
    tmp_path: Path, chat: Any
) -> None:
    tasks = [
        {"task_id": "whole", "prompt": "Look, whole.", "breaks": False},
        {"task_id": "half", "prompt": "Look, half.", "breaks": True},
    ]
    with (
        TrlEnvironments(Broken(), tasks, chat) as looks,
        TrlEnvironments(SHOP, TASKS[:1], chat) as shop,
    ):
        assert looks.unsaid == {}
        schema = get_json_schema(looks().look)["function"]  # type: ignore[attr-defined]  # a tool
        assert schema["parameters"]["properties"]["where"]["enum"] == ["up", "down"]

        def script(text: str, repeat: int) -> str:
            return shopping(text, repeat) if "apples" in text else looking(text, repeat)

        trainer = train(
            tmp_path, chat, {looks.name: looks, shop.name: shop}, script,
            reward_funcs=[looks.reward, shop.reward],
            train_dataset=Dataset.from_list(looks.rows + shop.rows),
        )  # fmt: skip
        by_task = {
            name: [one for one in looks.outcomes if one.task_id == name]
            for name in ("whole", "half")
        }
        assert [one.reward for one in by_task["whole"]] == [1.0, 1.0]
        assert [one.reward for one in by_task["half"]] == [None, None]
        for one in by_task["half"]:
            assert one.failure is not None
            assert one.failure.boundary == pb.BOUNDARY_RESOURCE
            assert "out of order" in one.why
        assert sorted(one.reward or 0 for one in shop.outcomes) == [0.0, 1.0]
        assert looks.counts["failed"] == 2
        # The mean is over what was judged: 1, 1, 0 and 1.
        [line] = [one for one in trainer.state.log_history if "reward" in one]
        assert line["reward"] == pytest.approx(0.75)
