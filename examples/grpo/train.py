"""GRPO with TRL and gymmesh: the trainer's model is the policy, gymmesh runs and verifies.

    python examples/grpo/train.py                              a tiny model, on a CPU, in minutes
    python examples/grpo/train.py --model PATH --steps 500     a model of yours, on a GPU
    python examples/grpo/train.py --model SmolLM2-135M-Instruct.Q4_1.gguf --steps 24 --batch 32 \\
        --reuse 1 --tokens 16 --rate 2e-5 --output curve.jsonl

PATH is a folder of transformers, or a GGUF file, as that of the embedded model, whose weights are
unpacked (needs `gguf`). It is asked with `--question` and needs more `--tokens`.

Writes a line of JSON for each step: mean reward, staleness (the versions by which the weights that
sampled are behind those that learn) and how many rollouts failed.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

os.environ.update(TRL_EXPERIMENTAL_SILENCE="1", HF_HUB_OFFLINE="1")
sys.path.insert(0, str(Path(__file__).parents[2]))

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


def parsed(arguments: list[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--model", help="a folder or a GGUF file; by default a tiny model")
    parser.add_argument("--question", default="What is {} + {}?", help="of a model of yours")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--batch", type=int, default=64, help="rollouts of an optimizer step")
    parser.add_argument("--reuse", type=int, default=2, help="optimizer steps for each generation")
    parser.add_argument("--most", type=int, default=6, help="the largest number in a sum")
    parser.add_argument("--tokens", type=int, default=4, help="the most tokens of an answer")
    parser.add_argument("--rate", type=float, default=1e-3)
    parser.add_argument("--output", type=Path, help="where the curve goes; by default stdout")
    return parser.parse_args(arguments)


def main() -> None:
    """Train for each seed."""
    options = parsed()
    if options.output is None:
        for seed in range(options.seeds):
            run(seed, options, sys.stdout)
        return
    with options.output.open("w") as file:
        for seed in range(options.seeds):
            run(seed, options, file)


if __name__ == "__main__":
    main()
