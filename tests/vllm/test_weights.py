"""Weights and adapters of a real vLLM change under rollouts in flight; each token's version is the
one whose weights give it the log probability that came with it, computed again by transformers.
"""

from __future__ import annotations

import asyncio
import sys
import urllib.request
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any, Final, Literal

import pytest

from gymmesh_model import ModelConfig
from gymmesh_trainers import Rollout, TrainerCollector
from gymmesh_trainers.weights import PushFailed, WeightsEndpoint, WeightsPush
from tests.vllm.serving import free_port, running
from tests.vllm.tiny import make_tiny
from tests.vllm.turns import Turns
from tests.vllm.variants import load, load_adapted, logprobs_of, make_adapter, make_weights

BOUND_S: Final = 500.0
CHANGES: Final = 3
MOST: Final = 200  # rollouts of a step
AFTER: Final = 4  # those that end after the last change
TOKENS: Final = 100  # of an answer, at most
NAME: Final = "policy"
# vLLM's float32 on a CPU and transformers' differ by rounding alone.
CLOSE: Final = 5e-3
APART: Final = 0.05

InFlight = Literal["continue", "abort"]


@dataclass(frozen=True)
class Server:
    """A running `vllm serve` with the folders of all weights. The first of each is there from the
    beginning of a test, the others are pushed while rollouts are in flight.
    """

    url: str
    base: Path
    weights: tuple[Path, ...]
    adapters: tuple[Path, ...]

    @property
    def root(self) -> str:
        return self.url.removesuffix("/v1")


@pytest.fixture(scope="module")
def server(
    environment: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    place = tmp_path_factory.mktemp("weights")
    base = place / "base"
    # On a CPU, vLLM 0.32 keeps the old output layer of a model that shares it with the embedding.
    make_tiny(base, ties=False)
    weights = [base, *(place / f"weights-{seed}" for seed in range(1, CHANGES + 1))]
    adapters = [place / f"adapter-{seed}" for seed in range(CHANGES + 1)]
    for seed, folder in enumerate(weights[1:], 1):
        make_weights(base, folder, seed)
    for seed, folder in enumerate(adapters):
        make_adapter(base, folder, 100 + seed)
    port = free_port()
    command = [str(Path(sys.executable).with_name("vllm")), "serve", str(base)]
    command += ["--host", "127.0.0.1", "--port", str(port), "--enforce-eager"]
    command += ["--dtype", "float32", "--max-model-len", "2048", "--max-num-seqs", "8"]
    command += ["--logprobs-mode", "processed_logprobs", "--enable-scale-out"]
    command += ["--enable-lora", "--max-lora-rank", "8", "--max-loras", "2"]
    needed = {"VLLM_SERVER_DEV_MODE": "1", "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "1"}
    url = f"http://127.0.0.1:{port}"
    with running(command, f"{url}/health", place / "log", environment | needed):
        yield Server(f"{url}/v1", base, tuple(weights), tuple(adapters))


def model_of(server: Server, backend: str) -> ModelConfig:
    """vLLM as that backend calls it; `generate` is vllm_tokens by the other path."""
    given: dict[str, Any] = {"url": server.url, "timeout_s": BOUND_S, "max_retries": 0}
    if backend == "vllm":
        return ModelConfig(backend="vllm", model=str(server.base), **given)
    options = {
        "tokenizer": str(server.base),
        "logprobs_mode": "processed_logprobs",
        "api": backend,
    }
    return ModelConfig(backend="vllm_tokens", options=options, **given)


def collector_of(server: Server, backend: str) -> TrainerCollector:
    return TrainerCollector(
        Turns(),
        model=model_of(server, backend),
        repeats=1,
        concurrency=6,
        max_attempts=1,
        params={"temperature": 1.0, "top_p": 1.0, "max_output_tokens": TOKENS},
        timeout_s=BOUND_S,
    )


def metric(server: Server, name: str) -> float:
    """The sum of a metric of vLLM's."""
    with urllib.request.urlopen(f"{server.root}/metrics", timeout=30) as answer:
        lines = answer.read().decode().splitlines()
    return sum(float(one.rpartition(" ")[2]) for one in lines if one.startswith(f"{name}{{"))


async def until(holds: Callable[[], bool]) -> None:
    """Asks in a thread, until it is so."""
    while not await asyncio.to_thread(holds):  # noqa: ASYNC110 - only the server knows
        await asyncio.sleep(0.1)


async def changed_under_way(
    server: Server, collector: TrainerCollector, push: Callable[[int], Awaitable[WeightsPush]]
) -> list[Rollout]:
    """The rollouts of a step during which `push` is awaited with 1, 2 and 3.

    Each push comes when three answers are being sampled, and two rollouts have ended since the last
    one. The step ends once some rollouts have tokens of the last.
    """
    found: list[Rollout] = []
    newest = 0
    ended, last = asyncio.Condition(), asyncio.Event()

    async def collected() -> None:
        after = 0
        tasks = [{"prompt": "begin", "task_id": f"t{place}"} for place in range(MOST)]
        async with collector.step(tasks, leftovers="drop") as step:
            async for group in step:
                assert not group.failed, [one.why for one in group.failed]
                async with ended:
                    found.extend(group.rollouts)
                    ended.notify_all()
                versions = {
                    version
                    for rollout in group.rollouts
                    for sample in rollout.samples
                    for version in sample.weights_versions
                }
                after += last.is_set() and newest in versions
                if after == AFTER:
                    return

    async def changed() -> None:
        nonlocal newest
        for place in range(1, CHANGES + 1):
            wanted = len(found) + 2
            async with ended:
                while len(found) < wanted:
                    await ended.wait()
            await until(lambda: metric(server, "vllm:num_requests_running") >= 3)
            newest = (await push(place)).version
        last.set()

    async with asyncio.TaskGroup() as group:
        group.create_task(collected())
        group.create_task(changed())
    assert last.is_set(), "the tasks ended before the weights had changed three times"
    return found


def stretches(rollouts: Sequence[Rollout]) -> Counter[int]:
    """How many calls were answered by how many versions: those with tokens of their own."""
    found: Counter[int] = Counter()
    for rollout in rollouts:
        for call in rollout.message.model_calls:
            starts = [one.first_token for one in call.tokens.weights]
            size = len(call.tokens.output_token_ids) // 4
            found[sum(a < b for a, b in zip(starts, [*starts[1:], size], strict=True))] += 1
    return found


def check(
    rollouts: Sequence[Rollout],
    models: Mapping[int, Any],
    say: Callable[[str], None],
) -> None:
    """Each sampled token has the log probability that the weights of its version give it, and
    no other weights give those of a version's tokens.
    """
    worst, tokens = 0.0, Counter[int]()
    wrong: dict[tuple[int, int], list[float]] = {}
    for rollout in rollouts:
        for sample in rollout.samples:
            scores = {version: logprobs_of(one, sample.tokens) for version, one in models.items()}
            for place, version in enumerate(sample.weights_versions):
                if not sample.mask[place]:
                    continue
                got = sample.logprobs[place]
                tokens[version] += 1
                worst = max(worst, abs(scores[version][place] - got))
                for other in models.keys() - {version}:
                    gap = abs(scores[other][place] - got)
                    wrong.setdefault((version, other), []).append(gap)
    nearest = min(fmean(gaps) for gaps in wrong.values())
    say(
        f"\n{sum(tokens.values())} tokens of versions {dict(sorted(tokens.items()))}: at most "
        f"{worst:.1e} from their version's log probabilities, on average at least {nearest:.2f} "
        f"from another's; calls by number of versions: {dict(stretches(rollouts))}"
    )
    assert set(tokens) == set(models), "some version sampled nothing"
    assert worst < CLOSE
    assert nearest > APART


_FIRST = iter(range(100, 10_000, 100))


@pytest.mark.parametrize(
    ("backend", "in_flight"),
    [("generate", "continue"), ("generate", "abort"), ("completions", "abort"), ("vllm", "abort")],
)
async def test_weights_change_under_rollouts(
    server: Server, say: Callable[[str], None], backend: str, in_flight: InFlight
) -> None:
    first = next(_FIRST)
    async with asyncio.timeout(BOUND_S), collector_of(server, backend) as collector:
        await collector.push_weights(server.base, first)

        async def push(place: int) -> WeightsPush:
            return await collector.push_weights(
                server.weights[place], first + place, in_flight=in_flight
            )

        rollouts = await changed_under_way(server, collector, push)
    models = {first + place: load(one) for place, one in enumerate(server.weights)}
    check(rollouts, models, say)
    # Answers were interrupted: those of token engines go on, those of the chat API begin again.
    assert (max(stretches(rollouts)) > 1) == (backend != "vllm")


@pytest.mark.parametrize(
    ("backend", "in_flight"),
    [("generate", "continue"), ("completions", "abort"), ("vllm", "continue"), ("vllm", "abort")],
)
async def test_an_adapter_changes_under_rollouts(
    server: Server, say: Callable[[str], None], backend: str, in_flight: InFlight
) -> None:
    first = next(_FIRST)
    async with asyncio.timeout(BOUND_S), collector_of(server, backend) as collector:
        await collector.push_weights(server.base, first - 1)
        await collector.push_weights(server.adapters[0], first, adapter=NAME)

        async def push(place: int) -> WeightsPush:
            return await collector.push_weights(
                server.adapters[place], first + place, adapter=NAME, in_flight=in_flight
            )

        rollouts = await changed_under_way(server, collector, push)
        # No call uses an older one any more.
        done = await collector.push_weights(
            server.adapters[CHANGES], first + CHANGES, adapter=NAME, unload_wait_s=30.0
        )
        assert done.in_use == []
    models = {
        first + place: load_adapted(server.base, one) for place, one in enumerate(server.adapters)
    }
    check(rollouts, models, say)
    for rollout in rollouts:
        for call in rollout.message.model_calls:
            for span in call.tokens.weights:
                assert span.adapter == f"{NAME}@{span.version}"
    assert (max(stretches(rollouts)) > 1) == (backend != "vllm" and in_flight == "abort")
    listed = await asyncio.to_thread(adapters_at, server)
    assert listed == [f"{NAME}@{first + CHANGES}"]


def adapters_at(server: Server) -> list[str]:
    import json

    with urllib.request.urlopen(f"{server.url}/models", timeout=30) as answer:
        models = json.loads(answer.read())["data"]
    return [one["id"] for one in models if one["parent"]]


async def test_what_a_server_does_not_load_is_not_announced(server: Server) -> None:
    first = next(_FIRST)
    nowhere = WeightsEndpoint(f"http://127.0.0.1:{free_port()}")
    async with asyncio.timeout(BOUND_S), collector_of(server, "completions") as collector:
        await collector.push_weights(server.base, first)
        with pytest.raises(PushFailed, match=r"adapter policy@\d+ failed at step load") as caught:
            await collector.push_weights(
                server.adapters[0],
                first + 1,
                adapter=NAME,
                folder_there="/nowhere/at-all",
            )
        [outcome] = caught.value.push.endpoints
        assert "HTTP 404" in outcome.cause
        with pytest.raises(PushFailed, match="cannot be reached"):
            await collector.push_weights(
                server.weights[1],
                first + 1,
                endpoints=[WeightsEndpoint(server.url), nowhere],
            )
        # Nothing was loaded, and the server samples again.
        async with collector.step([{"prompt": "begin", "task_id": "one"}]) as step:
            [group] = [one async for one in step]
        samples = [sample for rollout in group.rollouts for sample in rollout.samples]
        assert {one for sample in samples for one in sample.weights_versions} == {-1, first}
