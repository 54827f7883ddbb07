"""A backend's class says what it is, and is found by its name."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from typing import Any

import msgspec
import pytest

import gymmesh_model.backends
from gymmesh_model import ModelConfig
from gymmesh_model.backends.base import Backend
from gymmesh_model.backends.facts import backend_class, backend_kinds

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
    with pytest.raises(ValueError, match="did you mean 'responses'"):
        backend_class("response")


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
