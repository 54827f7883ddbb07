"""The training of train.py: TRL's trainer with a rollout function of gymmesh, and the curve."""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback
from trl import GRPOConfig, GRPOTrainer

from examples.grpo.sums import Sums, tasks
from examples.grpo.tiny import make_model, make_tokenizer, warm_start
from gymmesh_trainers.rollouts import Rollout
from gymmesh_trainers.trl import TrlRollouts


class Curve(TrainerCallback):  # type: ignore[misc]  # transformers is not typed here
    """Keeps a line for each optimizer step."""

    def __init__(self, rollouts: TrlRollouts, seed: int, file: Any) -> None:
        self._rollouts = rollouts
        self._seed = seed
        self._file = file
        self.lines: list[dict[str, Any]] = []

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """The step that has just been made, with the rollouts that it learnt from."""
        done = [one for one in self._rollouts.rollouts if isinstance(one, Rollout)]
        rewards = [one.reward for one in done if one.reward is not None]
        behind = [state.global_step - 1 - (one.oldest_weights or 0) for one in done]
        line = {
            "seed": self._seed,
            "step": state.global_step,
            "reward": sum(rewards) / len(rewards) if rewards else None,  # none was judged
            "staleness": sum(behind) / max(1, len(behind)),
            "failed": len(self._rollouts.rollouts) - len(done),
            "forks": sum(len(one.samples) > 1 for one in done),
        }
        self.lines.append(line)
        print(json.dumps(line), file=self._file, flush=True)


def loaded(model: str, on_cpu: bool) -> tuple[Any, Any]:
    """The tokenizer and the model of a folder, or of a GGUF file."""
    path = Path(model)
    where: dict[str, Any] = {"pretrained_model_name_or_path": model}
    if path.suffix == ".gguf":
        where = {"pretrained_model_name_or_path": str(path.parent), "gguf_file": path.name}
    tokenizer = AutoTokenizer.from_pretrained(**where)
    kind = torch.float32 if on_cpu else torch.bfloat16
    found = AutoModelForCausalLM.from_pretrained(**where, dtype=kind)
    if path.suffix == ".gguf":
        # Of SmolLM2's file transformers 5.10 reads the end into the model, and the token that
        # begins a message into the tokenizer.
        tokenizer.eos_token = tokenizer.convert_ids_to_tokens(found.config.eos_token_id)
    return tokenizer, found


def run(seed: int, options: argparse.Namespace, file: Any) -> list[dict[str, Any]]:
    """Train once; the curve's lines."""
    on_cpu = not torch.cuda.is_available()
    rows = tasks(options.most, options.question) if options.model else tasks(options.most)
    if options.model:
        torch.manual_seed(seed)
        tokenizer, model = loaded(options.model, on_cpu)
    else:
        tokenizer, model = make_tokenizer(), make_model(seed)
        warm_start(model, tokenizer, rows, seed)
    rollouts = TrlRollouts(Sums(), rows)
    with tempfile.TemporaryDirectory() as folder:
        config = GRPOConfig(
            output_dir=folder,
            max_steps=options.steps,
            num_generations=8,
            per_device_train_batch_size=options.batch,
            steps_per_generation=options.reuse,
            max_completion_length=options.tokens,
            learning_rate=options.rate,
            lr_scheduler_type="constant",
            beta=0.0,
            temperature=1.0,
            seed=seed,
            use_cpu=on_cpu,
            bf16=not on_cpu,
            report_to=[],
            save_strategy="no",
            logging_strategy="no",
            disable_tqdm=True,
        )
        curve = Curve(rollouts, seed, file)
        trainer = GRPOTrainer(
            model,
            reward_funcs=rollouts.reward,
            rollout_func=rollouts,
            train_dataset=Dataset.from_list(rollouts.rows),
            processing_class=tokenizer,
            args=config,
            callbacks=[curve],
        )
        try:
            trainer.train()
        finally:
            rollouts.close()
    return curve.lines
