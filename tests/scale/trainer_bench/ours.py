"""TrainerCollector, with an engine in the process; each rollout's tokens are read."""

from __future__ import annotations

import time

from gymmesh_trainers import Generation, SamplingParams, TokenBackend, TrainerCollector
from tests.scale.rollout_bench.adder import Adder
from tests.scale.trainer_bench.work import (
    QUESTION,
    REPEATS,
    WANTED,
    Engine,
    Measured,
    tokenizer,
)


async def measure(rollouts: int, in_flight: int, late_s: float) -> Measured:
    """Run so many."""
    tokens = tokenizer()
    engine = Engine(tokens, late_s)
    last: dict[str, float] = {}
    late: list[float] = []

    async def generate(prompt: list[int], params: SamplingParams) -> Generation:
        made = await engine.sample(prompt)
        last[params.request_id] = time.perf_counter()
        return Generation(made, [-0.1] * len(made))

    tasks = [
        {"task_id": f"t{at}", "prompt": QUESTION, "wanted": WANTED}
        for at in range(rollouts // REPEATS)
    ]
    async with TrainerCollector(
        Adder(), model=TokenBackend(tokens, generate), repeats=REPEATS, concurrency=in_flight
    ) as collector:
        async for _ in collector.step(tasks[: max(1, in_flight // REPEATS)]):
            pass  # the first rollouts warm up
        cpu_s, wall_s = time.process_time(), time.perf_counter()
        async for group in collector.step(tasks):
            late.append(time.perf_counter() - max(last[one.id] for one in group.rollouts))
            assert len(group.rollouts) == REPEATS
            assert all(one.reward == 1.0 and one.samples[0].mask for one in group.rollouts)
        return Measured(time.process_time() - cpu_s, time.perf_counter() - wall_s, late)
