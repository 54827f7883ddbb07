"""gym-cli models push-weights: servers load, running models are told, and failures are shown."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gymmesh_model.config import ModelConfig
from gymmesh_model.service import ModelService
from gymmesh_runtime.serve import ServeOptions, serving
from tests.support.cli import gym
from tests.support.weights_server import WeightsServer


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "adapter_model.safetensors").touch()
    (tmp_path / "adapter_config.json").write_text("{}")
    return tmp_path


async def test_weights_are_pushed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VLLM_KEY", "the-key")
    async with WeightsServer(key="the-key") as server:
        config = ModelConfig(backend="chat", url=f"{server.url}/v1", model="base")
        service = ModelService(config, "policy", "policy-0")
        async with serving(service, ServeOptions(metrics_port=None)) as served:
            address = served.instance.address
            push = ["models", "push-weights", "--endpoint", server.url, "--address", address]
            push += ["--adapter", "policy", "--api-key-env", "VLLM_KEY"]
            done = await gym(*push, str(folder), "3")
            assert done.code == 0, done.err
            loaded, told = done.out.splitlines()
            assert loaded.startswith(f"loaded on {server.url} in ")
            assert told == f"announced to {address}: none -> 3 policy@3"
            done = await gym(*push, str(folder), "4", "--json", "--in-flight", "abort")
            row = json.loads(done.out)
            assert row["unloaded"] == ["policy@3"]
            assert row["previous"] == {address: 3}
            assert "announced" not in row
            assert list(server.adapters) == ["policy@4"]

            server.fails["/v1/load_lora_adapter"] = (500, "out of memory")
            done = await gym(*push, str(folder), "5")
            assert done.code == 1
            assert "out of memory" in done.out + done.err
            done = await gym(*push[:-4], str(folder), "5")
            assert done.code == 1
            assert "--adapter NAME" in done.err
            done = await gym(*push, str(folder), "2", "--json")
            assert done.code == 1
            assert "already has version 4 of policy@4" in json.loads(done.out)["error"]
            done = await gym(*push, str(folder), "5", "--adapter", "a b")
            assert done.code == 1
            assert "is not a valid name" in done.err
            done = await gym(*push[:-2], "--api-key-env", "NO_SUCH", str(folder), "5")
            assert done.code == 2
            assert "the-key" not in done.out + done.err
