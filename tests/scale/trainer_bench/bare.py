"""The same work in a bare loop of asyncio."""

from __future__ import annotations

import asyncio
import time

from tests.scale.trainer_bench.work import (
    QUESTION,
    REPEATS,
    TOOL,
    WANTED,
    Engine,
    Measured,
    parsed,
    tokenizer,
)


async def measure(rollouts: int, in_flight: int, late_s: float) -> Measured:
    """Run so many."""
    tokens = tokenizer()
    engine = Engine(tokens, late_s)
    places = asyncio.Semaphore(in_flight)
    late: list[float] = []
    # What the template puts between an answer and the next one.
    plain = {"tokenize": True, "return_dict": False}

    async def one() -> float:
        async with places:
            messages = [{"role": "user", "content": QUESTION}]
            ids = list(
                tokens.apply_chat_template(
                    messages, tools=[TOOL], add_generation_prompt=True, **plain
                )
            )
            mask, logprobs = [0] * len(ids), [0.0] * len(ids)
            while True:
                made = await engine.sample(ids)
                ids, mask = ids + made, mask + [1] * len(made)
                logprobs += [-0.1] * len(made)
                text, calls = parsed(tokens.decode(made[:-1]))
                if not calls:
                    assert float(WANTED in text) == 1.0
                    return time.perf_counter()
                for _, given in calls:
                    reply = [{"role": "tool", "content": str(given["left"] + given["right"])}]
                    more = list(
                        tokens.apply_chat_template(reply, add_generation_prompt=True, **plain)
                    )
                    ids, mask = ids + more, mask + [0] * len(more)
                    logprobs += [0.0] * len(more)

    async def group() -> None:
        ended = await asyncio.gather(*(one() for _ in range(REPEATS)))
        late.append(time.perf_counter() - max(ended))

    cpu_s, wall_s = time.process_time(), time.perf_counter()
    await asyncio.gather(*(group() for _ in range(rollouts // REPEATS)))
    return Measured(time.process_time() - cpu_s, time.perf_counter() - wall_s, late)
