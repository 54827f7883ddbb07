"""Helm, the chart as it is installed, and what it makes of each of its value files.

Opt-in (`make test-deploy`): GYMMESH_TEST_HELM names the program that tools/setup-helm.sh brought,
beside which its other tools are. Without it nothing is collected here; with it, a program that is
not there is a failure, never a skip.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import pytest

from tests.deploy.chart import Chart, Rendered

BINARY: Final = os.environ.get("GYMMESH_TEST_HELM", "")

collect_ignore_glob = [] if BINARY else ["test_*.py"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A loaded machine takes a while."""
    here = str(Path(__file__).parent)
    for item in items:
        if str(item.path).rpartition("/")[0] == here:
            item.add_marker(pytest.mark.timeout(300), append=False)


@pytest.fixture(scope="session")
def tools() -> Path:
    """The folder that tools/setup-helm.sh made; fails where it is not."""
    helm = Path(BINARY)
    if not helm.is_file() or not (helm.parent / "python").is_dir():
        pytest.fail(f"there is no Helm at GYMMESH_TEST_HELM={BINARY}: tools/setup-helm.sh")
    return helm.parent


@pytest.fixture(scope="session")
def chart(tools: Path, tmp_path_factory: pytest.TempPathFactory) -> Chart:
    """The chart, with a stand-in for the one that it depends on."""
    return Chart(tools / "helm", tmp_path_factory.mktemp("chart"))


@pytest.fixture(scope="session")
def rendered(chart: Chart, request: pytest.FixtureRequest) -> Rendered:
    """What the chart makes of a value file, by its name."""
    return chart.render(request.param)
