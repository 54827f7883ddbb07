"""Compares the tokens per second of an embedded mesh with vLLM's benchmark on the same server.

    python tests/scale/bench_tokens.py --url http://HOST:PORT/v1 --model NAME [--vllm PATH] …

Needs a running vLLM server. Two clients send the same prompts to Chat Completions, with the same
number of prompts in flight and the same number of tokens per answer (the model ignores the
end-of-text token). One client is `vllm bench serve`. The other client is the embedded mesh, where
each prompt is a rollout with its row on disk. The clients take turns. The first round is not
counted, so that both clients find the same prefix cache. With `--exact`, the mesh captures token
ids and log probabilities, which vLLM's benchmark does not. Prints the tokens per second of both
clients and the ratio. Exits 1 if the ratio is below 0.98.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Final

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from gymmesh.rollout.v1 import rollout_pb2
from gymmesh_agent.config import AgentConfig
from gymmesh_client import CollectOptions, Collector, OutputFiles, RunIdentity, RunOutput
from gymmesh_mesh import MeshConfig, embedded
from gymmesh_mesh.config import Defaults
from gymmesh_model.config import ModelConfig
from gymmesh_resource.config import EnvironmentConfig
from gymmesh_responses import params_from_json
from gymmesh_runtime.config import Secret
from gymmesh_runtime.serving.loop import run

GOAL: Final = 0.98
_WORDS: Final = ("river", "stone", "seven", "cloud", "lamp", "green", "under", "paper", "north")
_QUIET: Final = Path(__file__).with_name("tokens_bench") / "quiet.py"
_ROUND_S: Final = 3600.0


def make_prompts(count: int, words: int) -> list[str]:
    """Prompts of so many words, no two alike, the same each time."""
    draw = random.Random(1)
    return [
        f"Story {number}: " + " ".join(draw.choices(_WORDS, k=words)) for number in range(count)
    ]


def theirs(arguments: argparse.Namespace, prompts: list[str], folder: Path) -> float:
    """Output tokens a second by `vllm bench serve`."""
    dataset = folder / "prompts.jsonl"
    dataset.write_text("".join(json.dumps({"prompt": one}) + "\n" for one in prompts))
    command = [
        *(arguments.vllm, "bench", "serve", "--backend", "openai-chat"),
        *("--base-url", arguments.url.removesuffix("/v1"), "--endpoint", "/v1/chat/completions"),
        *("--model", arguments.model, "--tokenizer", arguments.tokenizer or arguments.model),
        *("--dataset-name", "custom", "--dataset-path", str(dataset), "--disable-shuffle"),
        *("--skip-chat-template", "--custom-output-len", str(arguments.tokens), "--ignore-eos"),
        *("--num-prompts", str(len(prompts)), "--max-concurrency", str(arguments.in_flight)),
        *("--temperature", "0", "--disable-tqdm", "--save-result"),
        *("--result-dir", str(folder), "--result-filename", "theirs.json"),
    ]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=_ROUND_S, env=_keyed(), check=False
    )
    if done.returncode:
        last = (done.stderr.strip() or done.stdout.strip() or "it said nothing").splitlines()[-1]
        hint = " (its package for benchmarks is vllm[bench])" if "No module" in last else ""
        raise SystemExit(f"vllm bench serve failed: {last[:500]}{hint}")
    result = json.loads((folder / "theirs.json").read_text())
    if result["completed"] != len(prompts):
        raise SystemExit(f"vllm bench serve completed {result['completed']} of {len(prompts)}")
    return float(result["output_throughput"])


async def ours(arguments: argparse.Namespace, prompts: list[str], folder: Path) -> float:
    """Output tokens a second of rollouts of the embedded mesh."""
    params = {"max_output_tokens": arguments.tokens, "temperature": 0, "ignore_eos": True}
    policy = ModelConfig(
        backend="vllm",
        url=arguments.url,
        model=arguments.model,
        api_key=Secret(os.environ.get("VLLM_API_KEY", "")) or None,
        max_concurrency=max(arguments.in_flight, 1),
        timeout_s=_ROUND_S,
        params=params,
    )
    agent = AgentConfig(
        capture_tokens=arguments.exact, model_timeout_s=_ROUND_S, max_wall_s=_ROUND_S
    )
    config = MeshConfig(
        models={"policy": policy},
        environments={"quiet": EnvironmentConfig(use=f"{_QUIET}:Quiet", session_limit=0)},
        agents={"tool_loop": agent},
        defaults=Defaults(environment="quiet"),
    )
    tasks = [
        rollout_pb2.Task(
            task_id=f"t-{number}",
            environment="quiet",
            agent="tool_loop",
            params=params_from_json({"input": [{"role": "user", "content": prompt}]}),
        )
        for number, prompt in enumerate(prompts)
    ]
    rows = folder / f"{time.monotonic_ns()}.jsonl"
    async with embedded(config) as mesh:
        output = RunOutput.open(OutputFiles(rows), RunIdentity("", ""))
        options = CollectOptions(concurrency=arguments.in_flight, timeout_s=_ROUND_S)
        connect = partial(mesh.agents.connect, held=True)
        collector = Collector(connect, output, options, stored=mesh.agents.stored)
        started = time.perf_counter()
        tally = await collector.run(tasks)
        wall_s = time.perf_counter() - started
    if tally.completed != len(prompts):
        raise SystemExit(f"not all rollouts completed: {tally}")
    written = await asyncio.to_thread(rows.read_text)
    answers = [json.loads(line)["response"] for line in written.splitlines()]
    return sum(int(one["usage"]["output_tokens"]) for one in answers) / wall_s


def _keyed() -> dict[str, str]:
    """vLLM's benchmark takes the server's key from the variable of OpenAI's clients."""
    key = os.environ.get("VLLM_API_KEY")
    return {**os.environ, **({"OPENAI_API_KEY": key} if key else {})}


def main() -> int:
    """Prints the figures."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--url", required=True, help="base URL of the server, ending in /v1")
    parser.add_argument("--model", required=True, help="the model's name on the server")
    parser.add_argument(
        "--tokenizer", help="the model's tokenizer, if the model's name is not a tokenizer's name"
    )
    parser.add_argument(
        "--vllm",
        default=shutil.which("vllm") or ".cache/vllm/env/bin/vllm",
        help="path of the program vllm (default: %(default)s)",
    )
    parser.add_argument("--prompts", type=int, default=512, help="prompts per round (default: 512)")
    parser.add_argument("--words", type=int, default=200, help="words in a prompt (default: 200)")
    parser.add_argument(
        "--tokens", type=int, default=256, help="tokens in an answer (default: 256)"
    )
    parser.add_argument("--in-flight", type=int, default=64, help="prompts in flight (default: 64)")
    parser.add_argument("--rounds", type=int, default=3, help="rounds (default: 3)")
    parser.add_argument(
        "--exact", action="store_true", help="the mesh captures token ids and log probabilities"
    )
    arguments = parser.parse_args()
    prompts = make_prompts(arguments.prompts, arguments.words)
    found: list[tuple[float, float]] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for number in range(arguments.rounds + 1):
            pair = theirs(arguments, prompts, folder), run(ours(arguments, prompts, folder))
            print(
                f"{'warm-up' if not number else f'round {number}'}: vLLM's benchmark "
                f"{pair[0]:.1f} tokens/s, mesh {pair[1]:.1f} tokens/s",
                flush=True,
            )
            if number:
                found.append(pair)
    ratio = statistics.median(mesh / own for own, mesh in found)
    print(
        f"{arguments.prompts} prompts, {arguments.tokens} tokens each, {arguments.in_flight} in "
        f"flight{', tokens captured' if arguments.exact else ''}: the mesh's rate is {ratio:.3f} "
        f"times the rate of vLLM's benchmark (target: at least {GOAL})"
    )
    return 0 if ratio >= GOAL else 1


if __name__ == "__main__":
    raise SystemExit(main())
