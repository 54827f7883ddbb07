"""GRPO by a loop of one's own: dynamic sampling, evaluation between steps, and checkpoints.

    python examples/grpo/loop.py --folder out --steps 40 --seed 0
    python examples/grpo/loop.py --folder out --steps 40 --agent program

The model is the tiny one. Each step trains on groups whose rewards differ; after every fifth an
evaluation follows, of the policy as it samples. A checkpoint after each step holds the model, the
optimizer and the collector's state: run the same command again after the process was killed, and it
continues from there, on the rollouts that it would have had.

The agent is the built-in `tool_loop`, or, with `--agent program`, the program agent.py in a sandbox
(which needs bubblewrap). The training is the same.

Appends a line of JSON for each step to `out/steps.jsonl`. Needs torch, transformers and tokenizers.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import sys
from pathlib import Path
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).parents[2]))

import gymmesh
from examples.grpo.program import program_tasks, through_program
from examples.grpo.sums import Sums, tasks

GROUPS: Final = 6
REPEATS: Final = 8
EVALUATE_EVERY: Final = 5


def loss_of(model: Any, group: gymmesh.RolloutGroup) -> Any:
    """The policy gradient of a group's rollouts."""
    import torch

    total = torch.zeros(())
    for rollout, advantage in zip(group.rollouts, group.advantages, strict=True):
        for sample in rollout.samples:
            scores = torch.log_softmax(model(torch.tensor([sample.tokens])).logits[0, :-1], -1)
            chosen = scores.gather(-1, torch.tensor(sample.tokens[1:])[:, None])[:, 0]
            total = total - advantage * (chosen * torch.tensor(sample.mask[1:])).sum()
    return total


def digest_of(groups: list[gymmesh.RolloutGroup]) -> str:
    """What the step was trained on: its tasks, tokens and rewards, in order."""
    found = hashlib.sha256()
    for group in groups:
        for rollout in group.rollouts:
            found.update(repr((group.task.id, rollout.tokens, rollout.reward)).encode())
    return found.hexdigest()


async def train(options: argparse.Namespace) -> None:
    """Train up to `options.steps` in all, from the last checkpoint."""
    # Here, so that --help works without them.
    import torch

    from examples.grpo.tiny import make_model, make_tokenizer, warm_start
    from gymmesh_trainers.engine import TransformersEngine

    torch.set_num_threads(1)
    folder: Path = options.folder
    folder.mkdir(parents=True, exist_ok=True)
    rows = tasks(options.most)
    place: gymmesh.Environment[None] | gymmesh.MeshConfig = Sums()
    if options.agent == "program":
        rows, place = program_tasks(rows), through_program()
    tokenizer, model = make_tokenizer(), make_model(options.seed)
    optimizer = torch.optim.AdamW(model.parameters(), lr=options.rate)
    checkpoint = folder / "checkpoint.pt"
    saved = torch.load(checkpoint, weights_only=False) if checkpoint.exists() else None
    if saved is None:
        warm_start(model, tokenizer, rows, options.seed)
    else:
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
    engine = TransformersEngine(model, tokenizer, most=options.together, max_tokens=4)
    collector = gymmesh.TrainerCollector(
        place,
        tasks=gymmesh.TaskSet(rows, shuffle=options.seed, seed=options.seed),
        model=gymmesh.TokenBackend(tokenizer, engine),
        repeats=REPEATS,
        concurrency=options.concurrency,
        params={"temperature": 1.0},
        max_staleness=0,
        output=folder / "rollouts.jsonl",
        resume=True,
        start_step=1,
    )
    if saved is not None:
        collector.load_state_dict(saved["collector"])
    async with collector:
        while collector.next_step <= options.steps:
            groups = []
            async with collector.step(
                groups=GROUPS,
                keep=gymmesh.spread,
                at_most=4 * GROUPS,
                leftovers="drop",
                ordered=True,
            ) as step:
                async for group in step:
                    groups.append(group)
                    (loss_of(model, group) / (GROUPS * REPEATS)).backward()
            optimizer.step()
            optimizer.zero_grad()
            await collector.set_weights_version(step.number)
            line: dict[str, Any] = {
                "step": step.number,
                "groups": len(groups),
                "rejected": sum(step.rejected.values()),
                "trained_on": digest_of(groups),
            }
            if step.number % EVALUATE_EVERY == 0:
                found = await collector.evaluate(rows, repeats=8, params={"temperature": 1.0})
                line["evaluation"] = found.mean_reward
            state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
            torch.save(state | {"collector": collector.state_dict()}, folder / "checkpoint.new")
            (folder / "checkpoint.new").replace(checkpoint)
            with (folder / "steps.jsonl").open("a") as file:
                file.write(f"{json.dumps(line)}\n")
            sys.stdout.write(f"{json.dumps(line)}\n")
            sys.stdout.flush()


def parsed(arguments: list[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--folder", type=Path, required=True, help="checkpoints, rows, the curve")
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--agent", choices=("tool_loop", "program"), default="tool_loop")
    parser.add_argument("--concurrency", type=int, help="the most rollouts in flight")
    parser.add_argument("--most", type=int, default=3, help="the largest number in a sum")
    parser.add_argument("--rate", type=float, default=1e-3)
    parser.add_argument("--together", type=int, default=1, help="the most sampled in one batch")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    asyncio.run(train(parsed()))
