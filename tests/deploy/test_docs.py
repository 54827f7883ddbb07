"""docs/how-to/deploy.md is true: its value files install, and its commands are ones that Helm
takes.
"""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from tests.deploy.chart import SOURCE, Chart
from tests.support.docs import ROOT, read_page

PAGE = read_page(ROOT / "docs" / "how-to" / "deploy.md")
VALUES = {block.after("values"): block.text for block in PAGE.of("yaml") if "values" in block.check}
COMMANDS = [
    shlex.split(line)
    for block in PAGE.of("sh")
    if "helm" in block.check
    for line in block.text.splitlines()
]
# What of Helm asks a cluster, or places that tests do not reach.
REMOTE = ("test",)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The page's value files."""
    for name, text in VALUES.items():
        (tmp_path / name).write_text(text)
    return tmp_path


def test_there_is_something_to_try() -> None:
    assert {"small.yaml", "gpu.yaml", "external.yaml", "consul.yaml"} <= VALUES.keys()
    assert {command[1] for command in COMMANDS} == {"install", "test", "upgrade"}


@pytest.mark.parametrize("name", VALUES)
def test_its_values_are_taken(chart: Chart, folder: Path, name: str) -> None:
    done = chart.run("template", "mesh", chart.path, "--values", folder / name)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_its_commands_are_helms(chart: Chart, folder: Path, command: list[str]) -> None:
    helm, verb, *rest = command
    assert helm == "helm"
    rest = [str(chart.path) if one == "deploy/helm/gymmesh" else one for one in rest]
    rest = [str(folder / one) if one in VALUES else one for one in rest]
    if verb in REMOTE:
        helped = chart.run(verb, *(one for one in rest if not one.startswith("-")), "--help")
        flags = [one for one in rest if one.startswith("--")]
        assert helped.returncode == 0
        assert all(re.search(rf"{flag}\b", helped.stdout) for flag in flags)
        return
    # An upgrade wants a release, which only a cluster has; what it renders is the same.
    asked = ["install", *(one for one in rest if one != "--install"), "--dry-run=client"]
    done = chart.run(*asked)
    assert done.returncode == 0, done.stderr
    assert "STATUS: pending-install" in done.stdout
    assert "helm test mesh --namespace rollouts" in done.stdout  # of its notes


def test_the_value_files_that_it_names_are_there() -> None:
    for path in re.findall(r"`(deploy/[\w./-]+)`", PAGE.text):
        assert (ROOT / path).exists(), path
    for name in ("small", "external-vllm", "gpu", "no-consul", "ha"):
        assert f"`{name}`" in PAGE.text
        assert (SOURCE / "ci" / f"{name}-values.yaml").exists()


def test_every_top_level_value_is_explained_where_it_stands() -> None:
    text = (SOURCE / "values.yaml").read_text()
    keys = re.findall(r"^([a-zA-Z]+):", text, re.MULTILINE)
    schema = (SOURCE / "values.schema.json").read_text()
    assert all(f'"{key}"' in schema for key in keys)
    assert "``" not in text
