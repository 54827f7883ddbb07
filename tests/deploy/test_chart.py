"""The chart as a whole: Helm's linter, Kubernetes' schemas, and what it is made of."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

from gymmesh_mesh.processes.prometheus import JOB
from gymmesh_runtime.contract import CONTRACT_VERSION
from gymmesh_runtime.wire.options import KEEPALIVE_KEY, KEEPALIVE_S
from tests.deploy.chart import BOUND_S, SOURCE, VALUE_FILES, Chart, Rendered
from tests.support.docs import ROOT, read_page

every_values = pytest.mark.parametrize("rendered", VALUE_FILES, indirect=True)
# The oldest Kubernetes that the chart is for, and the newest.
VERSIONS = ("1.30", "1.37")
# Kinds that others define; Kubernetes has no schemas of theirs.
FOREIGN = {
    "Certificate": "cert-manager.io/v1",
    "PrometheusRule": "monitoring.coreos.com/v1",
    "ScaledObject": "keda.sh/v1alpha1",
    "ServiceMonitor": "monitoring.coreos.com/v1",
}


def test_the_value_files_are_those_that_are_promised() -> None:
    assert VALUE_FILES == ["external-vllm", "gpu", "ha", "no-consul", "sandboxes", "small"]


@pytest.mark.parametrize("name", VALUE_FILES)
def test_helm_lint_is_strict_and_content(chart: Chart, name: str) -> None:
    done = chart.run("lint", "--strict", chart.path, "--values", chart.values(name))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 chart(s) failed" in done.stdout
    # When it lints, Helm only mentions what `fail` says.
    assert "funcMap fail" not in done.stderr


@every_values
@pytest.mark.parametrize("version", VERSIONS)
def test_kubernetes_takes_the_manifests(
    rendered: Rendered, version: str, tools: Path, tmp_path: Path
) -> None:
    own = [one for one in rendered.manifests if one["kind"] not in FOREIGN]
    path = tmp_path / "manifests.yaml"
    path.write_text(yaml.safe_dump_all(own))
    done = _validate(tools, path, version)
    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    assert len(re.findall(r"^INFO .* passed ", said, re.MULTILINE)) == len(own), said
    for one in rendered.manifests:
        if one["kind"] in FOREIGN:
            assert one["apiVersion"] == FOREIGN[one["kind"]]


def test_what_is_wrong_with_a_manifest_is_found(chart: Chart, tools: Path, tmp_path: Path) -> None:
    deployment = chart.render("small").of("Deployment")[0]
    deployment["spec"]["template"]["spec"]["containers"][0]["imagePullpolicy"] = "Always"
    path = tmp_path / "manifests.yaml"
    path.write_text(yaml.safe_dump(deployment))
    done = _validate(tools, path, VERSIONS[-1])
    assert done.returncode != 0
    assert "imagePullpolicy" in done.stdout + done.stderr


def _validate(tools: Path, path: Path, version: str) -> subprocess.CompletedProcess[str]:
    script = tools / "python" / "bin" / "kubernetes-validate"
    return subprocess.run(
        [sys.executable, script, "--strict", "-k", version, path],
        env=os.environ | {"PYTHONPATH": str(tools / "python")},
        capture_output=True, text=True, timeout=2 * BOUND_S, check=False,
    )  # fmt: skip


@every_values
def test_names_are_unique_and_short_enough(rendered: Rendered) -> None:
    names = [(one["kind"], one["metadata"]["name"]) for one in rendered.manifests]
    assert len(set(names)) == len(names)
    # A pod's name has 11 characters more, and is a label's value.
    assert max(len(name) for _, name in names) <= 52


@every_values
def test_every_object_is_the_releases(rendered: Rendered) -> None:
    for one in rendered.manifests:
        labels = one["metadata"]["labels"]
        assert labels["app.kubernetes.io/instance"] == "mesh"
        assert labels["app.kubernetes.io/managed-by"] == "Helm"
        assert "app.kubernetes.io/component" in labels


@every_values
def test_services_carry_what_discovery_over_kubernetes_reads(rendered: Rendered) -> None:
    roles = {"agent": "agent", "environment": "resource", "model": "model"}
    roles |= {"sandbox": "sandbox", "discovery": "discovery"}
    found = {}
    for service in rendered.of("Service"):
        labels = service["metadata"]["labels"]
        component = labels["app.kubernetes.io/component"]
        if component == "vllm":
            assert "gymmesh.io/service" not in labels
            continue
        assert labels["gymmesh.io/service"] == roles[component]
        assert labels["gymmesh.io/contract"] == CONTRACT_VERSION
        assert labels[f"gymmesh.io/{KEEPALIVE_KEY}"] == str(KEEPALIVE_S)
        found[component, labels["gymmesh.io/name"]] = service["spec"]
    values = rendered.values()
    wanted = {("agent", one) for one in values["agents"]}
    wanted |= {("environment", one) for one in values["environments"]}
    wanted |= {("model", one) for one in values["models"]}
    wanted |= {("sandbox", one) for one in values.get("sandboxes", ())}
    assert found.keys() - {("discovery", "registry")} == wanted
    for (component, _), spec in found.items():
        assert ("clusterIP" in spec) == (component != "discovery")


def test_its_version_is_the_projects() -> None:
    chart = yaml.safe_load((SOURCE / "Chart.yaml").read_text())
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert chart["version"] == chart["appVersion"] == project["version"]


def test_dashboards_and_rules_are_taken_as_they_are(chart: Chart) -> None:
    rendered = chart.render("ha", "--set", "nameOverride=gymmesh")
    dashboards = {
        name: (text, one["metadata"]["labels"]["grafana_dashboard"])
        for one in rendered.of("ConfigMap")
        for name, text in one["data"].items()
        if name.endswith(".json")
    }
    # Their legends have braces, which are Grafana's and not Helm's.
    files = {path.name: path.read_text() for path in (SOURCE / "dashboards").iterdir()}
    assert any("{{agent}}" in text for text in files.values())
    assert {name: json.loads(text) for name, (text, _) in dashboards.items()} == {
        name: json.loads(text) for name, text in files.items()
    }
    assert {label for _, label in dashboards.values()} == {"1"}
    (rule,) = rendered.of("PrometheusRule")
    rules = (SOURCE / "rules" / "gymmesh.yaml").read_text()
    # But for where the runbooks are, which a value says.
    rules = rules.replace("docs/how-to/alerts.md#", "https://wiki.example/gymmesh/alerts#")
    assert rule["spec"] == yaml.safe_load(rules)
    assert rule["metadata"]["labels"]["release"] == "prometheus"


def test_the_mesh_is_known_to_prometheus_as_rules_and_dashboards_know_it(chart: Chart) -> None:
    (monitor,) = chart.render("ha").of("ServiceMonitor")
    (endpoint,) = monitor["spec"]["endpoints"]
    labels = {one["targetLabel"]: one for one in endpoint["relabelings"]}
    assert labels["job"]["replacement"] == JOB
    assert {"kind", "service_name"} <= labels.keys()


def test_the_values_of_the_page_about_dashboards_are_taken(chart: Chart, tmp_path: Path) -> None:
    page = read_page(ROOT / "docs" / "how-to" / "dashboards.md")
    (block,) = (one for one in page.of("yaml") if "values" in one.check)
    values = tmp_path / "values.yaml"
    values.write_text(block.text)
    rendered = chart.render("small", "--values", str(values))
    assert len(rendered.of("PrometheusRule")) == len(rendered.of("ServiceMonitor")) == 1
    assert sum("-dashboard-" in one["metadata"]["name"] for one in rendered.of("ConfigMap")) == 5
