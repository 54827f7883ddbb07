"""A real Kubernetes control plane for all tests here, and a namespace for each.

Opt-in (`make test-kubernetes`): GYMMESH_TEST_KUBERNETES names the folder of the programs. Without
it nothing is collected here; with it, a program that is not there is a failure, never a skip.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

if TYPE_CHECKING:
    from tests.kubernetes.cluster import Cluster

PROGRAMS: Final = os.environ.get("GYMMESH_TEST_KUBERNETES", "")

collect_ignore_glob = [] if PROGRAMS else ["test_*.py"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A loaded machine takes a while."""
    for item in items:
        if item.path.parent == Path(__file__).parent:
            item.add_marker(pytest.mark.timeout(600), append=False)


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A control plane whose parts a test may kill and start again."""
    from tests.kubernetes.cluster import NODE, ZONE, Cluster

    folder = Path(PROGRAMS)
    missing = [
        name
        for name in ("etcd", "kube-apiserver", "kube-controller-manager")
        if not os.access(folder / name, os.X_OK)
    ]
    if missing:
        pytest.fail(
            f"there is no {', '.join(missing)} in GYMMESH_TEST_KUBERNETES={PROGRAMS}:"
            " tools/setup-kubernetes.sh"
        )
    running = Cluster(folder, tmp_path_factory.mktemp("kubernetes"))
    try:
        running.start()
        labels = {"topology.kubernetes.io/zone": ZONE}
        node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE, "labels": labels}}
        running.call("POST", "/api/v1/nodes", node)
        yield running
    finally:
        running.close()


@pytest.fixture
def namespace(cluster: Cluster, request: pytest.FixtureRequest) -> str:
    """A namespace of the test's own."""
    name = "".join(one if one.isalnum() else "-" for one in request.node.name.lower())
    name = name[:63].strip("-")
    cluster.call("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
    return name
