"""Our environments in prime-rl: its environment server plays them, and its orchestrator makes
training samples of the traces.

Tried with prime-rl 559b447 of 21 August 2026.
"""

from __future__ import annotations

from pathlib import Path

from tests.handoff.prime_tinker_art.exact import times_trained
from tests.handoff.prime_tinker_art.prime_rl_source import need_prime_rl


async def test_prime_rl_trains_each_sampled_token_once(tmp_path: Path) -> None:
    need_prime_rl()
    from prime_rl.trainer.batch import build_bin_cost, prepare_batch

    from tests.handoff.prime_tinker_art.prime_rl_run import CALLS, trained_batch

    gone = RuntimeError("the engine is gone")
    said: list[str | Exception] = ["No more.", "I don't know.", gone, "It is broken."]
    batch, server, episodes = await trained_batch(tmp_path, said, 2)
    right, wrong, failed, unjudged = (trace for episode in episodes for trace in episode.traces)
    assert (right.ok, right.reward, wrong.ok, wrong.reward) == (True, 1.0, True, 0.0)
    # Neither is a reward of 0: prime-rl drops them before it computes advantages.
    assert not failed.ok
    assert not unjudged.ok
    assert "the verifier is broken" in str(unjudged.errors)
    assert [len(one.branches) for one in (right, wrong)] == [3, 3]

    calls = server.calls[: 2 * CALLS]
    rows = [(one.token_ids, [int(on) for on in one.mask]) for one in batch.samples]
    assert len(rows) == 6
    assert times_trained(calls, rows) == [1] * 2 * CALLS
    sampled = sum(len(ids) for _, ids in calls)
    [micro_batches] = prepare_batch(batch.samples, 1 << 14, 1, build_bin_cost(None))
    assert sum(sum(one.loss_mask) for one in micro_batches) == sampled

    advantages, logprobs = [], []
    for sample in batch.samples:
        both = zip(sample.mask, sample.advantages, sample.logprobs, strict=True)
        trained = [(advantage, logprob) for on, advantage, logprob in both if on]
        advantages.append({advantage for advantage, _ in trained})
        logprobs += [logprob for _, logprob in trained]
    assert advantages == [{0.5}] * 3 + [{-0.5}] * 3
    places = [place for _, ids in calls for place in range(len(ids))]
    assert sorted(logprobs) == sorted(-0.25 * (place + 1) for place in places)
    assert {asked["sampling_params"]["temperature"] for asked in server.asked} == {1.0}
