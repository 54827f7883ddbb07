"""The trainer's own engine gets what the trainer asks for: nothing between them has a limit."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from gymmesh.responses.v1 import responses_pb2
from gymmesh_mesh import Defaults, MeshConfig
from gymmesh_model.backends.base import BackendCall
from gymmesh_model.config import ModelConfig
from gymmesh_resource.config import EnvironmentConfig
from gymmesh_trainers import (
    FailedRollout,
    Generation,
    Rollout,
    SamplingParams,
    TokenBackend,
    TrainerCollector,
)
from gymmesh_trainers.skyrl import GymmeshGenerator
from tests.unit.trainers.char_model import EOS, CharTokenizer
from tests.unit.trainers.environments import Sums, rows

IN_FLIGHT = 2048
_LOST_S = 300.0  # of a machine that is busy; a call that a limit holds back never comes


class HoldingEngine:
    """Answers nothing before `expected` calls have reached it."""

    def __init__(self, expected: int) -> None:
        self.reached = 0
        self._expected = expected
        self._all = asyncio.Event()

    async def __call__(self, prompt: list[int], params: SamplingParams) -> Generation:
        self.reached += 1
        if self.reached == self._expected:
            self._all.set()
        await self._all.wait()
        return Generation([*CharTokenizer().encode("1"), EOS], [-0.5, -0.5])

    async def all_reach(self, work: Callable[[], Awaitable[Any]]) -> Any:
        """What the work gives, after all calls were here at a time."""
        task = asyncio.ensure_future(work())
        try:
            async with asyncio.timeout(_LOST_S):
                await self._all.wait()
            return await task
        except TimeoutError:
            pytest.fail(f"{self.reached} of {self._expected} calls reached the engine")
        finally:
            task.cancel()


async def test_a_step_has_as_many_calls_at_the_engine_as_rollouts_in_flight() -> None:
    engine = HoldingEngine(IN_FLIGHT)
    model = TokenBackend(CharTokenizer(), engine)
    async with TrainerCollector(
        Sums, model=model, repeats=8, concurrency=IN_FLIGHT, timeout_s=2 * _LOST_S
    ) as collector:

        async def step() -> list[int]:
            tasks = rows(IN_FLIGHT // 8)
            return [len(group.rollouts) async for group in collector.step(tasks)]

        assert await engine.all_reach(step) == [8] * (IN_FLIGHT // 8)
        assert collector.counts["failed"] == 0


async def test_many_are_all_in_flight_where_no_number_is_set() -> None:
    engine = HoldingEngine(300)
    async with TrainerCollector(Sums, model=TokenBackend(CharTokenizer(), engine)) as collector:
        rollouts = await engine.all_reach(lambda: collector.many(rows(1) * 300))
    assert not [one for one in rollouts if isinstance(one, FailedRollout)]


async def test_many_keep_to_the_number_that_is_set() -> None:
    now = most = 0

    async def engine(prompt: list[int], params: SamplingParams) -> Generation:
        nonlocal now, most
        now += 1
        most = max(most, now)
        await asyncio.sleep(0)
        now -= 1
        return Generation([*CharTokenizer().encode("1"), EOS], [-0.5, -0.5])

    model = TokenBackend(CharTokenizer(), engine)
    async with TrainerCollector(Sums, model=model, concurrency=3) as collector:
        assert len(await collector.many(rows(1) * 12)) == 12
    assert 1 <= most <= 3


async def test_a_batch_of_skyrl_is_all_in_flight() -> None:
    engine = HoldingEngine(200)

    class Client:
        async def generate(self, batch: dict[str, Any]) -> dict[str, Any]:
            made = await engine(batch["prompt_token_ids"][0], SamplingParams())
            return {
                "response_ids": [made.token_ids],
                "response_logprobs": [made.logprobs],
                "stop_reasons": ["stop"],
            }

    generator = GymmeshGenerator(Sums, CharTokenizer(), Client())
    tasks = rows(200)
    batch = {
        "prompts": [[{"role": "user", "content": task["prompt"]}] for task in tasks],
        "env_extras": [{"task": task} for task in tasks],
    }
    try:
        output = await engine.all_reach(lambda: generator.generate(batch))
    finally:
        await generator.close()
    assert output["rewards"] == [1.0] + [0.0] * 199


class TimedBackend(TokenBackend):
    """Keeps the seconds that its calls may take."""

    def __init__(self) -> None:
        super().__init__(CharTokenizer(), self._one)
        self.seconds: list[float] = []

    async def create(self, call: BackendCall) -> responses_pb2.Response:
        self.seconds.append(call.timeout)
        return await super().create(call)

    async def _one(self, prompt: list[int], params: SamplingParams) -> Generation:
        return Generation([*CharTokenizer().encode("1"), EOS], [-0.5, -0.5])


async def test_a_call_may_take_as_long_as_its_rollout() -> None:
    model = TimedBackend()
    async with TrainerCollector(Sums(), model=model, timeout_s=7200.0) as collector:
        assert isinstance(await collector.one(rows(1)[0]), Rollout)
    assert model.seconds[0] == pytest.approx(7200.0, abs=600.0)


async def test_the_limits_of_a_configured_model_are_not_those_of_a_backend() -> None:
    """The rollout's own budget, which the configuration has, still ends it."""
    config = MeshConfig(
        environments={"sums": EnvironmentConfig(use=f"{Sums.__module__}:{Sums.__qualname__}")},
        models={"policy": ModelConfig(timeout_s=5.0, max_concurrency=1, max_queue=0)},
        defaults=Defaults(environment="sums"),
    )
    model = TimedBackend()
    async with TrainerCollector(config, model=model) as collector:
        rollouts = await collector.many(rows(8))
    assert not [one for one in rollouts if isinstance(one, FailedRollout)]
    assert min(model.seconds) == pytest.approx(600.0, abs=200.0)


@pytest.mark.parametrize("key", ["max_steps", "max_total_output_tokens"])
@pytest.mark.parametrize("value", [0, -1])
def test_a_limit_that_no_rollout_can_keep_is_refused(key: str, value: int) -> None:
    limits: dict[str, Any] = {key: value}
    with pytest.raises(ValueError, match=f"{key}: must be at least 1, not {value}"):
        TrainerCollector(Sums, **limits)


@pytest.mark.parametrize("seconds", [0.0, -1.0, float("inf"), float("nan")])
def test_a_time_that_no_rollout_can_have_is_refused(seconds: float) -> None:
    with pytest.raises(ValueError, match="timeout_s: must be a positive number of seconds"):
        TrainerCollector(Sums, timeout_s=seconds)
