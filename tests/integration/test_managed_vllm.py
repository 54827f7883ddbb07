"""A model whose vLLM server the model service starts; a small script stands in for the server."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from gymmesh.errors.v1 import errors_pb2 as errors
from gymmesh.model.v1 import model_pb2
from gymmesh_cli.main import cli
from gymmesh_mesh import MeshConfig, MeshSettings, up
from gymmesh_mesh.model_checks import check as check_models
from gymmesh_mesh.processes import StartError
from gymmesh_model import ModelConfig, ModelService
from gymmesh_model.vllm import ServeConfig
from gymmesh_responses import params_from_json, text_of
from gymmesh_runtime.config import ConfigError, Secret
from gymmesh_runtime.context import CallContext
from gymmesh_runtime.errors import MeshError
from gymmesh_runtime.peers import PeerDirectory
from tests.support.fake_vllm import child_of, gone, install, processes

BOUND_S = 120.0


def configured(folder: Path, mode: str, model: str | None = None, **more: Any) -> ModelConfig:
    given: dict[str, Any] = {"model": "/weights/small", "ready_s": 30.0, "stop_s": 1.0, **more}
    serve = ServeConfig(
        executable=str(install(folder)),
        log=str(folder / "log"),
        env={"FAKE_VLLM": Secret(mode), "FAKE_SECONDS": Secret("2")},
        **given,
    )
    return ModelConfig(backend="vllm", serve=serve, model=model, timeout_s=10.0)


@asynccontextmanager
async def serving(config: ModelConfig) -> AsyncIterator[ModelService]:
    service = ModelService(config, "policy", "policy-0")
    await service.open(PeerDirectory())
    try:
        yield service
    finally:
        await service.close()


async def ask(service: ModelService) -> str:
    params = params_from_json({"input": "who?", "model": "another"})
    asked = model_pb2.CreateResponseRequest(params=params)
    async with asyncio.timeout(BOUND_S):
        reply = await service.CreateResponse(asked, CallContext("CreateResponse"))
    return "".join(text_of(item) for item in reply.response.output)


@pytest.mark.parametrize(("model", "name"), [(None, "small"), ("mine", "mine")])
async def test_it_answers_under_its_name(tmp_path: Path, model: str | None, name: str) -> None:
    async with serving(configured(tmp_path, "serve", model)) as service:
        assert await ask(service) == f"I am {name}"
        said = await service.GetModel(model_pb2.GetModelRequest(), CallContext("GetModel"))
        assert (said.backend, said.endpoint_model) == ("vllm", name)
        group, child = processes(tmp_path / "log")
    await gone(group)
    await gone(child)


async def test_a_death_is_typed_and_told_at_once(tmp_path: Path) -> None:
    async with serving(configured(tmp_path, "serve")) as service:
        await ask(service)
        group, child = processes(tmp_path / "log")
        os.kill(group, signal.SIGKILL)
        for _ in range(3):
            with pytest.raises(MeshError) as caught:
                await ask(service)
            assert caught.value.reason == errors.ERROR_REASON_MODEL_UNREACHABLE
            assert "`vllm serve /weights/small` was killed by SIGKILL" in caught.value.message
        await gone(child)


async def test_a_start_that_fails_is_a_sentence_of_the_configuration(tmp_path: Path) -> None:
    service = ModelService(configured(tmp_path, "fail"), "policy", "policy-0")
    with pytest.raises(ConfigError) as caught:
        await service.open(PeerDirectory())
    said = str(caught.value)
    assert "models.policy" in said
    assert "ended with status 3; the end of its log:" in said
    assert said.endswith("ValueError: no such model")


def mesh(model: ModelConfig, **settings: Any) -> MeshConfig:
    return MeshConfig(models={"policy": model}, mesh=MeshSettings(drain_s=2.0, **settings))


async def test_a_mesh_of_processes_waits_for_it_and_ends_it(tmp_path: Path) -> None:
    lines: list[str] = []
    # The mesh's own patience would not be enough.
    config = mesh(configured(tmp_path, "late"), ready_s=1.0)
    async with up(config, echo=lines.append) as running:
        assert running.address_of("model", "policy")
        group, child = processes(tmp_path / "log")
    assert any("[policy] fake vllm: " in line for line in lines)
    await gone(group)
    await gone(child)


async def test_a_mesh_says_why_it_did_not_start(tmp_path: Path) -> None:
    with pytest.raises(StartError) as caught:
        async with up(mesh(configured(tmp_path, "fail"))):
            raise AssertionError("it came up")
    said = str(caught.value)
    assert said.startswith("the model service 'policy' could not start: ")
    assert said.endswith("ValueError: no such model")


async def test_none_outlives_a_killed_model_service(tmp_path: Path) -> None:
    async with up(mesh(configured(tmp_path, "stubborn"))) as running:
        group, child = processes(tmp_path / "log")
        [pid] = [info.pid for info in running.infos if info.kind == "model"]
        os.kill(pid, signal.SIGKILL)
        async with asyncio.timeout(BOUND_S):
            assert "model service 'policy'" in await running.wait_for_death()
        await gone(group)
        await gone(child)


def test_it_is_listed_by_what_it_loads(tmp_path: Path) -> None:
    path = tmp_path / "mesh.yaml"
    path.write_text(
        "models:\n"
        "  policy: {backend: vllm, serve: {model: org/one}}\n"
        "  judge: {backend: vllm, model: mine, engine: {model: org/two}}\n"
    )
    done = CliRunner().invoke(cli, ["models", "list", "--config", str(path), "--json"])
    assert done.exit_code == 0, done.output
    assert [one["model"] for one in json.loads(done.stdout)["models"]] == ["org/one", "mine"]


async def test_trying_it_starts_and_ends_it(tmp_path: Path) -> None:
    [check] = await check_models({"policy": configured(tmp_path, "serve")})
    assert (check.text, check.reason) == ("I am small", "")
    await gone(child_of(tmp_path / "log"))
