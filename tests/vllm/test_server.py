"""A real `vllm serve` that the model service has started, and an engine that it has loaded."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest

from gymmesh_model import ModelConfig, ModelService
from gymmesh_model.backends.vllm.managed import ManagedVllmBackend
from gymmesh_model.vllm.process import VllmProcess
from gymmesh_runtime.config import ConfigError, Secret
from gymmesh_runtime.peers import PeerDirectory
from tests.vllm.conftest import configured
from tests.vllm.talk import ADD, BOUND_S, Talk, call_of, said, user, whole

only_serve = pytest.mark.parametrize("kind", ["serve"], indirect=True, scope="session")
only_engine = pytest.mark.parametrize("kind", ["engine"], indirect=True, scope="session")


def process_of(service: ModelService) -> VllmProcess:
    backend = service._opened().backend
    assert isinstance(backend, ManagedVllmBackend)
    return backend._process


@asynccontextmanager
async def calling(process: VllmProcess, backend: Any) -> AsyncIterator[ModelService]:
    """A model service that calls the running server as one that somebody else has started."""
    key = Secret(process.api_key)
    config = ModelConfig(
        backend=backend, url=process.base_url, model="small", api_key=key, timeout_s=100.0
    )
    service = ModelService(config, "other", "other-0")
    await service.open(PeerDirectory())
    try:
        yield service
    finally:
        await service.close()


@only_serve
@pytest.mark.parametrize("backend", ["chat", "responses", "vllm"])
async def test_it_can_be_called_by_every_backend(service: ModelService, backend: str) -> None:
    async with calling(process_of(service), backend) as other:
        talk = Talk(other)
        assert "Paris" in said(await talk.ask(user("What is the capital of France?")))
        question = user("What is 2 + 3? Use the tool.")
        reply = await Talk(other).ask(question, tools=[ADD], tool_choice="required")
        assert sorted(json.loads(call_of(reply).arguments)) == ["a", "b"]


@only_serve
async def test_another_replica_goes_on_from_the_tokens(service: ModelService) -> None:
    talk = Talk(service)
    await talk.ask(user("What is the capital of France?"))
    async with calling(process_of(service), "vllm") as other:
        talk.service = other
        await talk.ask(user("And of Italy?"), whole=True)
        await talk.ask(user("And of Spain?"))
    whole(talk)


@only_serve
async def test_an_answer_that_nobody_wants_is_not_computed(service: ModelService) -> None:
    process, talk = process_of(service), Talk(service)
    asked = talk.ask(user("Tell me a long story."), temperature=1, max_output_tokens=1500)
    call = asyncio.ensure_future(asked)
    async with asyncio.timeout(BOUND_S):
        while not await _running(process):  # noqa: ASYNC110 - told by the server alone
            await asyncio.sleep(0.05)
        call.cancel()
        while await _running(process):  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    await asyncio.gather(call, return_exceptions=True)
    assert call.cancelled()


async def _running(process: VllmProcess) -> float:
    url = process.base_url.removesuffix("/v1") + "/metrics"
    async with aiohttp.ClientSession() as session, session.get(url) as response:
        page = await response.text()
    [line] = [line for line in page.splitlines() if line.startswith("vllm:num_requests_running{")]
    return float(line.split()[-1])


@only_serve
async def test_its_log_is_kept_without_its_key(service: ModelService, log: Path) -> None:
    text = log.read_text()
    assert "Application startup complete" in text
    assert process_of(service).api_key not in text


@only_serve
async def test_a_model_that_is_not_there_is_told(kind: str, tmp_path: Path) -> None:
    config = configured(kind, tmp_path / "log")
    assert config.serve is not None
    nowhere = msgspec.structs.replace(config.serve, model=str(tmp_path / "nowhere"))
    service = ModelService(msgspec.structs.replace(config, serve=nowhere), "policy", "p-1")
    with pytest.raises(ConfigError) as caught:
        await service.open(PeerDirectory())
    first, *tail = str(caught.value).split("\n")
    assert "nowhere` ended with status 1; the end of its log:" in first
    assert any("nowhere" in line for line in tail)


@only_engine
async def test_arguments_that_vllm_does_not_know_are_told(kind: str, tmp_path: Path) -> None:
    config = configured(kind, tmp_path / "log")
    assert config.engine is not None
    wrong = msgspec.structs.replace(config.engine, args=["--no-such-thing"])
    service = ModelService(msgspec.structs.replace(config, engine=wrong), "policy", "p-1")
    with pytest.raises(ConfigError, match=r"vLLM refuses 'engine.args': .*no-such-thing"):
        await service.open(PeerDirectory())
