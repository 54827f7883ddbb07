"""A real Kubernetes control plane for all tests here, and a namespace for each.

Opt-in (`make test-kubernetes`): GYMMESH_TEST_KUBERNETES names the folder of the programs, and
GYMMESH_TEST_HELM the Helm beside which kubectl is. Without the first nothing is collected here;
with it, a program that is not there is a failure, never a skip.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest
import yaml

if TYPE_CHECKING:
    from tests.deploy.chart import Chart
    from tests.kubernetes.cluster import Cluster

PROGRAMS: Final = os.environ.get("GYMMESH_TEST_KUBERNETES", "")
HELM: Final = os.environ.get("GYMMESH_TEST_HELM", "")

collect_ignore_glob = [] if PROGRAMS else ["test_*.py"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A loaded machine takes a while."""
    here = str(Path(__file__).parent)
    for item in items:
        if str(item.path).rpartition("/")[0] == here:
            item.add_marker(pytest.mark.timeout(600), append=False)


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A control plane whose parts a test may kill and start again."""
    from tests.kubernetes.cluster import Cluster

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
        yield running
    finally:
        running.close()


@pytest.fixture
def namespace(cluster: Cluster, request: pytest.FixtureRequest) -> str:
    """A namespace of the test's own, in which pods can be made."""
    name = "".join(one if one.isalnum() else "-" for one in request.node.name.lower())
    name = name[:63].strip("-")
    cluster.make_namespace(name)
    return name


@pytest.fixture(scope="session")
def chart(tmp_path_factory: pytest.TempPathFactory) -> Chart:
    """The chart, with a stand-in for the one that it depends on."""
    from tests.deploy.chart import Chart

    helm = Path(HELM)
    if not helm.is_file() or not os.access(helm.parent / "kubectl", os.X_OK):
        pytest.fail(f"there is no Helm at GYMMESH_TEST_HELM={HELM}: tools/setup-helm.sh")
    return Chart(helm, tmp_path_factory.mktemp("chart"))


@pytest.fixture(scope="session")
def claiming(cluster: Cluster) -> Cluster:
    """A cluster with the definitions of kubernetes-sigs/agent-sandbox."""
    from tests.kubernetes import agent_sandbox

    agent_sandbox.define(cluster)
    return cluster


@pytest.fixture(scope="session")
def furnished(cluster: Cluster) -> Cluster:
    """A cluster with what the chart's value files want of one: cert-manager's, KEDA's and the
    Prometheus operator's definitions (and nobody who acts upon them), a namespace and priorities.
    """
    paths = sorted(Path(PROGRAMS, "crds").glob("*.yaml"))
    if not paths:
        pytest.fail(f"there is no {PROGRAMS}/crds: tools/setup-kubernetes.sh")
    definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    for path in paths:
        definition = yaml.safe_load(path.read_text())
        cluster.call("POST", definitions, definition)
        spec = definition["spec"]
        served = next(one["name"] for one in spec["versions"] if one["served"])
        cluster.wait_for(f"/apis/{spec['group']}/{served}/{spec['names']['plural']}")
    # Of the sandboxes that are pods; the chart makes no namespace.
    cluster.call("POST", "/api/v1/namespaces", {"metadata": {"name": "sandboxes"}})
    for name in ("batch", "inference"):
        priority = {"metadata": {"name": name}, "value": 1}
        cluster.call("POST", "/apis/scheduling.k8s.io/v1/priorityclasses", priority)
    return cluster
