"""Backends whose libraries are extras: each says in one sentence what to install."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from gymmesh_model import ModelConfig
from gymmesh_model.backends.factory import make_backend
from gymmesh_model.local import LocalServer, ServerError
from gymmesh_runtime.config import ConfigError


@pytest.mark.parametrize("backend", ["openai", "azure"])
async def test_a_backend_without_its_package_names_the_extra(
    backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "openai", None)
    config = ModelConfig(backend=backend, model="m", url="http://127.0.0.1:9")
    with pytest.raises(ConfigError) as caught:
        await make_backend("policy", config).open()
    problem = f"backend '{backend}' needs openai: pip install 'gymmesh[openai]'"
    assert str(caught.value) == f"models.policy: {problem}"


async def test_the_embedded_model_without_its_package_names_the_extra(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "xllamacpp", None)
    with pytest.raises(ServerError) as caught:
        await LocalServer(Path("model.gguf")).start()
    assert str(caught.value) == (
        "the embedded model needs xllamacpp: pip install 'gymmesh[local]', or give an endpoint "
        "with --model-url"
    )
