"""The engine of a transformers model, with a tiny one."""

from __future__ import annotations

import asyncio

import pytest
import torch

from examples.grpo.tiny import make_model, make_tokenizer
from gymmesh.model.v1 import tokens_pb2
from gymmesh_model.backends.base import BackendCall
from gymmesh_trainers import SamplingParams
from gymmesh_trainers.engine import TransformersEngine


def test_a_call_that_is_cancelled_ends_at_its_next_token() -> None:
    """Its batch would else hold the model, and the trainer's next step, up to the limit."""
    tokenizer, model = make_tokenizer(), make_model(0)
    begun, cancelled = asyncio.Event(), asyncio.Event()
    steps = 0

    async def run() -> None:
        nonlocal steps
        loop = asyncio.get_running_loop()

        def count(*_: object) -> None:
            nonlocal steps
            steps += 1
            loop.call_soon_threadsafe(begun.set)
            asyncio.run_coroutine_threadsafe(cancelled.wait(), loop).result(60)

        handle = model.register_forward_hook(count)
        engine = TransformersEngine(model, tokenizer)
        # Greedy, from a stop token that is never sampled: only the limit would end it.
        engine._stop = -1
        call = asyncio.create_task(engine([5, 6], SamplingParams(temperature=0.0, max_tokens=20)))
        await begun.wait()
        call.cancel()
        await asyncio.wait([call])
        cancelled.set()
        assert engine._worker is not None
        await engine._worker
        handle.remove()

    asyncio.run(run())
    assert steps == 1


def test_log_probabilities_are_of_the_distribution_that_is_said() -> None:
    tokenizer, model = make_tokenizer(), make_model(0)

    async def run() -> None:
        engine = TransformersEngine(model, tokenizer)
        cut = SamplingParams(temperature=1.0, top_k=1, max_tokens=2)
        made = await engine([5, 6], cut)
        assert made.distribution == tokens_pb2.LOGPROB_DISTRIBUTION_RAW
        with torch.no_grad():
            raw = torch.log_softmax(model(torch.tensor([[5, 6]])).logits[0, -1], -1)
        assert abs(made.logprobs[0] - float(raw[made.token_ids[0]])) < 1e-4
        free = await engine([5, 6], SamplingParams(temperature=0.5, max_tokens=2))
        assert free.distribution == tokens_pb2.LOGPROB_DISTRIBUTION_SAMPLING

    asyncio.run(run())


def test_scores_are_those_of_one_pass_over_the_tokens() -> None:
    tokenizer, model = make_tokenizer(), make_model(0)
    call = BackendCall({}, "r", "", None, 60.0)

    async def run() -> None:
        engine = TransformersEngine(model, tokenizer)
        first, second = await engine.score([5, 6], [[7, 8, 9], [10]], call)
        with torch.no_grad():
            raw = torch.log_softmax(model(torch.tensor([[5, 6, 7, 8, 9]])).logits[0], -1)
        wanted = [float(raw[place, token]) for place, token in ((1, 7), (2, 8), (3, 9))]
        assert list(first.logprobs) == pytest.approx(wanted, abs=1e-5)
        assert list(second.logprobs) == pytest.approx([float(raw[1, 10])], abs=1e-5)
        best = int(raw[1].argmax())
        (greedy,) = await engine.score([5, 6], [[best]], call)
        assert greedy.greedy
        assert second.greedy == (best == 10)

    asyncio.run(run())
