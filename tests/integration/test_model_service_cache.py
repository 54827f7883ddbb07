"""The response cache of a model service, against a real endpoint that counts."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from gymmesh.model.v1 import model_pb2
from gymmesh_model import ModelConfig, metrics
from gymmesh_model.config import CacheConfig
from gymmesh_responses import text_of
from gymmesh_runtime.context import CallContext
from tests.integration.test_model_service import KEY, ask, failing, request, serving
from tests.integration.test_model_service_faults import streamed
from tests.support import endpoint as fake
from tests.support.endpoint import FakeEndpoint

BACKENDS = ("chat", "responses")


@pytest.fixture
async def server() -> AsyncIterator[FakeEndpoint]:
    async with FakeEndpoint() as running:
        yield running


def configured(server: FakeEndpoint, folder: Path, api: Any = "chat", **more: Any) -> ModelConfig:
    cache = CacheConfig(path=str(folder), any_temperature=more.pop("any_temperature", False))
    given = {"params": {"temperature": 0}, "max_retries": 0, "api_key": KEY, "model": "m", **more}
    return ModelConfig(backend=api, url=server.url, cache=cache, **given)


@pytest.mark.parametrize("api", BACKENDS)
async def test_the_same_call_is_answered_once(
    api: str, server: FakeEndpoint, tmp_path: Path
) -> None:
    server.script = [fake.text("4"), fake.text("5")]
    tokens = metrics.MODEL_TOKENS.labels("policy", "output")
    config = configured(server, tmp_path, api)
    async with serving(config) as service:
        before = tokens.value
        first = await ask(service, request(rollout_id="r1", call_id="a"))
        again = await ask(service, request(rollout_id="r2", call_id="b"))
        other = await ask(service, request({"input": "2 + 3?"}))
        spent = tokens.value - before
    async with serving(config) as service:
        later = await ask(service)
    assert [one.from_cache for one in (first, again, other, later)] == [False, True, False, True]
    assert first.response == again.response == later.response
    assert text_of(other.response.output[0]) == "5"
    assert (first.call_id, again.call_id) == ("a", "b")
    assert len(server.requests) == 2
    assert spent == 14, "tokens of a kept answer were counted before"


async def test_a_streamed_call_is_answered_whole(server: FakeEndpoint, tmp_path: Path) -> None:
    async with serving(configured(server, tmp_path)) as service:
        frames: list[Any] = []
        await streamed(service, frames)
        deltas = len(frames)
        await streamed(service, frames)
    assert deltas > 1
    assert len(frames) == deltas + 1
    assert frames[-1].completed.from_cache
    assert len(server.requests) == 1


async def test_sampled_calls_are_made_anew_unless_allowed(
    server: FakeEndpoint, tmp_path: Path
) -> None:
    async with serving(configured(server, tmp_path)) as service:
        for _ in range(2):
            assert not (await ask(service, request({"temperature": 0.7}))).from_cache
    allowed = configured(server, tmp_path, any_temperature=True, params={"temperature": 0.7})
    async with serving(allowed) as service:
        replies = [await ask(service, request(seed=seed)) for seed in (1, 1, 2)]
    assert [reply.from_cache for reply in replies] == [False, True, False]


async def test_what_is_no_whole_answer_is_not_kept(server: FakeEndpoint, tmp_path: Path) -> None:
    server.script = [fake.status(500), fake.text("half", finish="length")]
    async with serving(configured(server, tmp_path)) as service:
        assert (await failing(service)).reason_name == "MODEL_SERVER_ERROR"
        assert (await ask(service)).response.status == "incomplete"
        reply = await ask(service)
        assert (reply.from_cache, reply.response.status) == (False, "completed")


async def test_new_weights_answer_anew(server: FakeEndpoint, tmp_path: Path) -> None:
    async with serving(configured(server, tmp_path)) as service:
        await ask(service)
        swapped = model_pb2.SetWeightsVersionRequest(version=3)
        await service.SetWeightsVersion(swapped, CallContext("SetWeightsVersion"))
        assert not (await ask(service)).from_cache
        assert (await ask(service)).from_cache
