"""A `vllm` model's three ways: a server's URL, a server of its own, an engine in the process."""

from __future__ import annotations

import sys
from typing import Any

import msgspec
import pytest

from gymmesh_mesh import MeshConfig, MeshSettings
from gymmesh_mesh.processes.restarting import ready_seconds
from gymmesh_model import ModelConfig, ModelService
from gymmesh_model.backends.factory import make_backend
from gymmesh_model.vllm import EngineConfig, ServeConfig
from gymmesh_model.vllm.command import served_name
from gymmesh_model.vllm.engine import EngineError, InProcessVllm
from gymmesh_runtime.config import ConfigError
from gymmesh_runtime.peers import PeerDirectory

URL = "http://127.0.0.1:9/v1"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"backend": "vllm"}, "needs 'url', a server's base URL, or 'serve' or 'engine'"),
        (
            {"backend": "chat", "url": URL, "serve": {"model": "m"}},
            "'serve' is only for the backend",
        ),
        (
            {"backend": "local", "engine": {"model": "m"}},
            "'engine' is only for the backend 'vllm'",
        ),
        (
            {"backend": "vllm", "url": URL, "serve": {"model": "m"}},
            "give only one of 'url', 'urls'",
        ),
        (
            {"backend": "vllm", "urls": [URL], "engine": {"model": "m"}},
            "give only one of 'url', 'urls'",
        ),
        (
            {"backend": "vllm", "serve": {"model": "m"}, "engine": {"model": "m"}},
            "give only one of 'url', 'urls'",
        ),
    ],
)
def test_exactly_one_way(given: dict[str, Any], said: str) -> None:
    with pytest.raises(msgspec.ValidationError) as caught:
        msgspec.convert(given, ModelConfig)
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("given", "kind"),
    [
        ({"url": URL}, "VllmBackend"),
        ({"serve": ServeConfig(model="m")}, "ManagedVllmBackend"),
        ({"engine": EngineConfig(model="m")}, "EngineVllmBackend"),
    ],
)
def test_each_way_has_its_backend(given: dict[str, Any], kind: str) -> None:
    backend = make_backend("policy", ModelConfig(backend="vllm", model="mine", **given))
    assert type(backend).__name__ == kind
    assert backend.endpoint_model == "mine"
    assert backend.capabilities.token_ids


@pytest.mark.parametrize(
    ("model", "name"),
    [
        ("org/model", "org/model"),
        ("model", "model"),
        ("/somewhere/model", "model"),
        ("./model/", "model"),
        ("~/model", "model"),
        ("/", "/"),
    ],
)
def test_a_path_is_no_name(model: str, name: str) -> None:
    assert served_name(model) == name


@pytest.mark.parametrize(
    ("given", "seconds"),
    [
        ({"url": URL}, 50.0),
        ({"serve": ServeConfig(model="m", ready_s=500)}, 530.0),
        ({"engine": EngineConfig(model="m", ready_s=500)}, 530.0),
        ({"serve": ServeConfig(model="m", ready_s=1)}, 50.0),
    ],
)
def test_a_mesh_waits_as_long_as_its_models_may_take(given: dict[str, Any], seconds: float) -> None:
    model = ModelConfig(backend="vllm", **given)
    config = MeshConfig(models={"policy": model}, mesh=MeshSettings(ready_s=50.0))
    assert ready_seconds(config) == seconds


async def test_an_engine_without_vllm_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "vllm", None)
    with pytest.raises(EngineError, match="'engine' needs vllm: pip install"):
        await InProcessVllm(EngineConfig(model="m"), "m").start()
    config = ModelConfig(backend="vllm", engine=EngineConfig(model="m"))
    service = ModelService(config, "policy", "policy-0")
    with pytest.raises(ConfigError, match=r"models.policy.*set 'serve' instead of 'engine'"):
        await service.open(PeerDirectory())
