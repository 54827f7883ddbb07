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
import os
import sys
from pathlib import Path

os.environ.update(TRL_EXPERIMENTAL_SILENCE="1", HF_HUB_OFFLINE="1")
sys.path.insert(0, str(Path(__file__).parents[2]))


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
    # Here, so that --help works without torch and TRL.
    from examples.grpo.trl_training import run

    if options.output is None:
        for seed in range(options.seeds):
            run(seed, options, sys.stdout)
        return
    with options.output.open("w") as file:
        for seed in range(options.seeds):
            run(seed, options, file)


if __name__ == "__main__":
    main()
