"""A backend's class says what it is, and is found by its name."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from pathlib import Path
from typing import Any

import msgspec
import pytest

import gymmesh_model.backends
from gymmesh.model.v1 import model_pb2
from gymmesh_model import ModelConfig, ModelService
from gymmesh_model.backends.base import Backend
from gymmesh_model.backends.factory import make_backend
from gymmesh_model.backends.facts import backend_class, backend_kinds
from gymmesh_runtime.context import CallContext
from gymmesh_runtime.peers import PeerDirectory

HOME = gymmesh_model.backends


def defined() -> set[type[Backend]]:
    """The backends that the folder defines at its first level, or in its folders."""
    found = set()
    for module in pkgutil.walk_packages(HOME.__path__, f"{HOME.__name__}."):
        one = importlib.import_module(module.name)
        for _, kind in inspect.getmembers(one, inspect.isclass):
            if issubclass(kind, Backend) and kind.__module__ == one.__name__ and kind.kind:
                found.add(kind)
    return found


def test_every_kind_is_found_by_its_name() -> None:
    kinds = backend_kinds()
    lost = [
        f"{one.__module__}:{one.__name__} ({one.kind})"
        for one in defined()
        if one.kind not in kinds
    ]
    assert not lost, f"a backend's `kind` is the name of its module, unlike those of {lost}"
    for kind in kinds:
        assert backend_class(kind).kind == kind


@pytest.mark.parametrize("name", ["base", "making", "scripted", "endpoint", "", "__init__", "chta"])
def test_what_is_not_a_backend_is_refused(name: str) -> None:
    with pytest.raises(msgspec.ValidationError, match="there is no backend"):
        msgspec.convert({"backend": name}, ModelConfig)


def test_a_wrong_name_gets_the_nearest_one() -> None:
    with pytest.raises(ValueError, match="did you mean 'responses'") as caught:
        backend_class("response")
    assert str(caught.value).endswith(
        "name a class of your own as 'module:Class'); did you mean 'responses'?"
    )


@pytest.mark.parametrize(
    ("raw", "computes", "metrics", "names"),
    [
        ({}, True, False, False),
        ({"backend": "chat", "url": "http://a"}, False, False, True),
        ({"backend": "vllm", "url": "http://a"}, False, True, True),
        ({"backend": "vllm", "serve": {"model": "m"}}, True, True, True),
        ({"backend": "replay", "path": "p"}, False, False, False),
    ],
)
def test_facts_of_what_there_is(
    raw: dict[str, Any], computes: bool, metrics: bool, names: bool
) -> None:
    config = msgspec.convert(raw, ModelConfig)
    assert config.computes_here is computes
    assert config.facts.has_metrics is metrics
    assert config.facts.names_model is names


async def test_weights_are_fetched_by_the_backend_that_has_some() -> None:
    assert await backend_class("chat").fetch_weights("m") is None
    with pytest.raises(ValueError, match=r"none\.gguf"):
        await backend_class("local").fetch_weights("/nowhere/none.gguf")


@pytest.mark.parametrize("given", [True, False])
async def test_a_model_says_its_backend_or_that_a_program_gave_it(
    given: bool, tmp_path: Path
) -> None:
    (tmp_path / "answers.jsonl").write_text('{"match": "a", "answers": []}\n')
    config = ModelConfig(backend="replay", path=str(tmp_path / "answers.jsonl"))
    backend = make_backend("policy", config) if given else None
    service = ModelService(config, "policy", "policy-0", backend=backend)
    await service.open(PeerDirectory())
    try:
        about = await service.GetModel(model_pb2.GetModelRequest(), CallContext("GetModel"))
    finally:
        await service.close()
    assert about.backend == ("program" if given else "replay")
