"""A collector's weights, pushed to the servers that its model names."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from gymmesh.model.v1 import model_pb2
from gymmesh_client import UserError
from gymmesh_model import ModelConfig
from gymmesh_trainers import SyncCollector, TrainerCollector
from gymmesh_trainers.weights import PushFailed, WeightsEndpoint, endpoints_of
from tests.support.weights_server import WeightsServer
from tests.unit.trainers.environments import Sums, rows
from tests.unit.trainers.trainer_collector.engines import CountingEngine


@pytest.fixture
def weights(tmp_path: Path) -> Path:
    folder = tmp_path / "weights"
    folder.mkdir()
    (folder / "model.safetensors").touch()
    return folder


@pytest.fixture
def adapter(tmp_path: Path) -> Path:
    folder = tmp_path / "adapter"
    folder.mkdir()
    (folder / "adapter_model.safetensors").touch()
    (folder / "adapter_config.json").write_text("{}")
    return folder


def model(server: WeightsServer) -> ModelConfig:
    return ModelConfig(backend="chat", url=f"{server.url}/v1", model="base")


async def announced(collector: TrainerCollector) -> model_pb2.GetModelResponse:
    policy = collector._opened()
    [peer] = policy._peers().values()
    about: model_pb2.GetModelResponse = await peer.GetModel(model_pb2.GetModelRequest(), timeout=30)
    return about


async def test_the_servers_are_those_of_the_model(weights: Path, adapter: Path) -> None:
    async with WeightsServer() as server, TrainerCollector(Sums, model=model(server)) as collector:
        done = await collector.push_weights(weights, 3)
        assert [one.url for one in done.endpoints] == [server.url]
        assert (server.weights, collector.weights_version) == (str(weights), 3)
        done = await collector.push_weights(adapter, 4, adapter="policy", in_flight="abort")
        assert (done.adapter, collector.weights_version) == ("policy@4", 4)
        about = await announced(collector)
        assert (about.weights_version, about.adapter) == (4, "policy@4")


async def test_other_servers_can_be_named(weights: Path) -> None:
    async with WeightsServer() as server:
        engine = CountingEngine(lambda prompt, number: "1")
        async with TrainerCollector(Sums, model=engine.model) as collector:
            with pytest.raises(UserError, match="endpoints: is empty"):
                await collector.push_weights(weights, 1)
            await collector.push_weights(weights, 1, endpoints=[WeightsEndpoint(server.url)])
    assert server.version == "1"


async def test_a_push_that_failed_is_no_new_version(weights: Path) -> None:
    async with WeightsServer() as server, TrainerCollector(Sums, model=model(server)) as collector:
        server.fails["/collective_rpc"] = (500, "no")
        with pytest.raises(PushFailed, match="no"):
            await collector.push_weights(weights, 1)
        assert collector.weights_version is None
        server.fails["/resume"] = (500, "stuck")
        with pytest.raises(PushFailed, match="stuck"):
            await collector.push_weights(weights, 1)
        # By then every model service had been told.
        assert collector.weights_version == 1


async def test_a_saved_state_keeps_the_adapter(adapter: Path) -> None:
    settings: dict[str, Any] = {"tasks": rows(1), "repeats": 1, "max_attempts": 1}
    async with WeightsServer() as server:
        async with TrainerCollector(Sums, model=model(server), **settings) as collector:
            await collector.push_weights(adapter, 4, adapter="policy")
            state = collector.state_dict()
        assert (state["weights_version"], state["weights_adapter"]) == (4, "policy@4")
        async with TrainerCollector(Sums, model=model(server), **settings) as collector:
            collector.load_state_dict(state)
            async with collector.step(groups=1, at_most=1) as step:
                async for group in step:
                    assert group.failed  # this server samples nothing
            about = await announced(collector)
            assert (about.weights_version, about.adapter) == (4, "policy@4")


def test_a_synchronous_collector_pushes_as_well(weights: Path) -> None:
    async def serve(server: WeightsServer, stop: asyncio.Event) -> None:
        async with server:
            started.set()
            await stop.wait()

    import threading

    server, started = WeightsServer(), threading.Event()
    loop, stop = asyncio.new_event_loop(), asyncio.Event()
    thread = threading.Thread(target=loop.run_until_complete, args=(serve(server, stop),))
    thread.start()
    try:
        assert started.wait(30)
        with SyncCollector(Sums, model=model(server)) as collector:
            done = collector.push_weights(weights, 2, timeout_s=60.0)
            assert done.version == collector.weights_version == 2
            collector.set_weights_version(3, adapter="other@3")
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join()
        loop.close()


def test_which_servers_a_configuration_names() -> None:
    urls = ["http://a:1/v1", "http://b:1/v1"]
    for backend, kind in (("vllm", "vllm"), ("vllm_tokens", "vllm"), ("sglang", "sglang")):
        config = ModelConfig(backend=backend, urls=urls, options={"tokenizer": "t"})
        found = endpoints_of(config)
        assert [(one.root, one.kind) for one in found] == [
            ("http://a:1", kind),
            ("http://b:1", kind),
        ]
    assert endpoints_of(ModelConfig(backend="openai", model="m")) == []
