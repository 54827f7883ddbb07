"""TRL trains on rollouts through `rollout_func`, and a plain torch loop on collected groups."""

from __future__ import annotations

import io
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

ROOT = Path(__file__).parents[3]


def test_grpo_raises_the_reward_on_exact_tokens() -> None:
    from examples.grpo import train
    from examples.grpo.trl_training import run

    options = train.parsed(["--steps", "40", "--most", "3", "--batch", "32", "--rate", "3e-3"])
    lines = run(0, options, io.StringIO())
    assert len(lines) == 40
    assert all(line["failed"] == 0 and line["forks"] == 0 for line in lines)
    assert {line["staleness"] for line in lines} == {0.0, 1.0}
    begin = sum(line["reward"] for line in lines[:6]) / 6
    end = sum(line["reward"] for line in lines[-6:]) / 6
    assert end > begin + 0.1, (begin, end)


def test_what_trl_gets_is_what_was_sampled() -> None:
    from examples.grpo.sums import Sums, tasks
    from examples.grpo.tiny import make_model, make_tokenizer
    from gymmesh_trainers.engine import TransformersEngine
    from gymmesh_trainers.trl import TrlRollouts

    tokenizer, model = make_tokenizer(), make_model(0)
    rows = tasks(2)
    sampled: list[tuple[list[int], list[int]]] = []
    engine = TransformersEngine(model, tokenizer)

    async def watched(prompt: list[int], params: Any) -> Any:
        made = await engine(prompt, params)
        sampled.append((prompt, list(made.token_ids)))
        return made

    rollouts = TrlRollouts(Sums(), rows, engine=watched)
    trainer = SimpleNamespace(
        args=SimpleNamespace(
            temperature=1.0,
            top_p=1.0,
            top_k=0,
            min_p=None,
            repetition_penalty=1.0,
            generation_kwargs=None,
            max_completion_length=4,
            use_vllm=False,
        ),
        state=SimpleNamespace(global_step=0),
        processing_class=tokenizer,
        model=model,
        accelerator=SimpleNamespace(process_index=0),
    )
    prompts = [row["prompt"] for row in rollouts.rows for _ in range(3)]
    try:
        found = rollouts(prompts, trainer)
    finally:
        rollouts.close()
    pairs = list(zip(found["prompt_ids"], found["completion_ids"], strict=True))
    assert sorted(pairs) == sorted(sampled)
    assert [tokenizer.decode(ids) for ids in found["prompt_ids"]] == [
        tokenizer.apply_chat_template(prompt, add_generation_prompt=True, tokenize=False)
        for prompt in prompts
    ]
    assert all(
        all(mask) and len(mask) == len(ids)
        for mask, ids in zip(found["env_mask"], found["completion_ids"], strict=True)
    )
    # The log probabilities are those of the model itself, token by token.
    import torch

    for (prompt, completion), logprobs in zip(pairs, found["logprobs"], strict=True):
        with torch.no_grad():
            logits = model(torch.tensor([prompt + completion])).logits[0].float()
        scores = torch.log_softmax(logits, -1)
        at = range(len(prompt) - 1, len(prompt) + len(completion) - 1)
        own = [float(scores[place, token]) for place, token in zip(at, completion, strict=True)]
        assert logprobs == pytest.approx(own, abs=1e-4)


def snippet(first_line: str) -> str:
    """A snippet of the README by its first line."""
    _, found, rest = (ROOT / "README.md").read_text().partition(f"```python\n{first_line}\n")
    assert found, first_line
    return rest.partition("```")[0]


def test_ten_lines_of_torch_learn_from_groups() -> None:
    import torch

    import gymmesh
    from examples.grpo.sums import Sums, tasks
    from examples.grpo.tiny import make_model, make_tokenizer, warm_start
    from gymmesh_trainers.engine import TransformersEngine

    tokenizer, model = make_tokenizer(), make_model(1)
    rows, means = tasks(2), list[float]()
    warm_start(model, tokenizer, rows, 1)
    names: dict[str, Any] = {
        "gymmesh": gymmesh,
        "torch": torch,
        "engine": TransformersEngine(model, tokenizer, max_tokens=4),
        "tokenizer": tokenizer,
        "model": model,
        "optimizer": torch.optim.AdamW(model.parameters(), lr=2e-3),
        "environment": Sums(),
        "tasks": rows,
        "steps": 25,
        "print": lambda step, mean: means.append(mean),
    }
    exec(compile(snippet("# A loop of your own"), "README.md", "exec"), names)  # noqa: S102
    names["train"]()
    assert len(means) == 25
    assert sum(means[-5:]) / 5 > sum(means[:5]) / 5 + 0.1, means


def test_ten_lines_of_trl_train(tmp_path: Path) -> None:
    from trl import GRPOConfig

    from examples.grpo.sums import Sums, tasks
    from examples.grpo.tiny import make_model, make_tokenizer, warm_start

    model, tokenizer = make_model(2), make_tokenizer()
    warm_start(model, tokenizer, tasks(2), 2)
    before = [one.clone() for one in model.parameters()]
    names: dict[str, Any] = {
        "tokenizer": tokenizer,
        "model": model,
        "environment": Sums(),
        "tasks": tasks(2),
        "config": GRPOConfig(
            output_dir=str(tmp_path), max_steps=2, num_generations=4, temperature=1.0,
            per_device_train_batch_size=8, max_completion_length=4, use_cpu=True, bf16=False,
            report_to=[], save_strategy="no", learning_rate=1e-2,
        ),
    }  # fmt: skip
    exec(compile(snippet("# TRL"), "README.md", "exec"), names)  # noqa: S102
    assert any((old != new).any() for old, new in zip(before, model.parameters(), strict=True))
