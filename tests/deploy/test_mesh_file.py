"""The mesh file that the chart makes is one that services read, and says what the values say."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from gymmesh_mesh import MeshConfig
from gymmesh_mesh.compose import specs_of
from gymmesh_model.vllm.command import exact_tokens
from gymmesh_runtime.config import load_config
from tests.deploy.chart import NAMESPACE, VALUE_FILES, Chart, Rendered

every_values = pytest.mark.parametrize("rendered", VALUE_FILES, indirect=True)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A pod's folder: the mesh file's variables are those of a pod, and no others."""
    for name in list(os.environ):
        if name.startswith("GYMMESH_KEY_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOST_IP", "10.0.0.7")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def load(rendered: Rendered, folder: Path) -> MeshConfig:
    """The mesh file, through the loader that services use."""
    path = folder / "mesh.yaml"
    path.write_text(rendered.file("mesh.yaml"))
    return load_config([path], [], MeshConfig)


@every_values
def test_the_loader_takes_it_and_finds_the_services_that_pods_serve(
    rendered: Rendered, folder: Path
) -> None:
    config = load(rendered, folder)
    specs = {(spec.kind, spec.name) for spec in specs_of(config)}
    served = {tuple(one.container["args"][1:3]) for one in rendered.services()}
    assert served | {("discovery", "registry")} == specs
    drain = rendered.values().get("drainSeconds", 180)
    assert config.mesh.drain_s == drain


@every_values
def test_what_a_service_is_given_is_what_it_gets(rendered: Rendered, folder: Path) -> None:
    config = msgspec.to_builtins(load(rendered, folder), enc_hook=str)
    values = rendered.values()
    for kind in ("agents", "environments", "models", "sandboxes"):
        for name, said in values.get(kind, {}).items():
            for key, value in said.get("config", {}).items():
                assert _holds(config[kind][name][key], value), f"{kind}.{name}.{key}"


def _holds(found: Any, said: Any) -> bool:
    """Whether what was said is there; what was not said has its default."""
    if isinstance(said, dict):
        return all(_holds(found[key], value) for key, value in said.items())
    return bool(found == said)


def test_sandboxes_without_network_can_be_had_where_policies_are_enforced(
    chart: Chart, folder: Path
) -> None:
    for more, enforced in (
        ((), True),
        (("--set=networkPolicy.enabled=false",), False),
        (("--set=sandboxes.pods.config.options.network_policies=false",), False),
    ):
        options = load(chart.render("sandboxes", *more), folder).sandboxes["pods"].options
        assert options["network_policies"] is enforced, more


@pytest.mark.parametrize(("host", "listens"), [("0.0.0.0", "0.0.0.0:9402"), ("::", "[::]:9402")])
def test_a_gateway_for_sandboxes_listens_on_the_pods_port(
    chart: Chart, folder: Path, host: str, listens: str
) -> None:
    agents = load(chart.render("sandboxes", f"--set=host={host}"), folder).agents
    gateway = agents["coder"].gateway
    assert gateway is not None
    assert (gateway.listen, gateway.plain, gateway.connections) == (listens, True, 512)
    assert agents["tool_loop"].gateway is None


def test_large_numbers_stay_whole(chart: Chart, folder: Path) -> None:
    config = load(chart.render("gpu"), folder)
    assert config.models["policy"].max_conversation_bytes == 1_073_741_824


def test_vllm_servers_are_called_each_by_its_name(chart: Chart, folder: Path) -> None:
    rendered = chart.render("gpu")
    (servers,) = rendered.of("StatefulSet")
    name, replicas = servers["metadata"]["name"], servers["spec"]["replicas"]
    assert servers["spec"]["serviceName"] == name
    assert load(rendered, folder).models["policy"].urls == [
        f"http://{name}-{number}.{name}.{NAMESPACE}.svc:8000/v1" for number in range(replicas)
    ]
    (container,) = servers["spec"]["template"]["spec"]["containers"]
    assert container["resources"]["limits"]["nvidia.com/gpu"] == 2
    assert "--tensor-parallel-size=2" in container["args"]
    assert set(exact_tokens([])) <= set(container["args"])
    # The name that requests have.
    assert "--served-model-name=my-org/my-model" in container["args"]


def test_a_models_key_comes_from_its_secret(
    chart: Chart, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rendered = chart.render("external-vllm")
    assert "sk-" not in rendered.text
    monkeypatch.setenv("GYMMESH_KEY_JUDGE", "sk-judge")
    config = load(rendered, folder)
    judge, policy = config.models["judge"].api_key, config.models["policy"].api_key
    assert str(judge) == "sk-judge"
    assert not policy


def test_the_registry_is_the_one_that_is_chosen(chart: Chart, folder: Path) -> None:
    memory, kubernetes, consul = (
        load(chart.render(name), folder).discovery for name in ("small", "no-consul", "ha")
    )
    assert memory.backend == "memory"
    assert kubernetes.backend == "kubernetes"
    assert kubernetes.xds
    assert kubernetes.kubernetes.namespace == NAMESPACE
    assert kubernetes.kubernetes.selector == "gymmesh.io/service,app.kubernetes.io/instance=mesh"
    assert consul.backend == "consul"
    assert consul.consul.address == "10.0.0.7:8500"
    assert consul.consul.prefix == "blue"
    assert consul.consul.token_file == "/etc/gymmesh-consul/token/token"
    assert consul.consul.tls.ca_file == "/etc/gymmesh-consul/ca/ca.crt"


def test_files_stand_beside_it(chart: Chart) -> None:
    rendered = chart.render("small")
    written = rendered.values()["files"]["answers.jsonl"]
    assert rendered.file("answers.jsonl").strip() == written.strip()
    assert yaml.safe_load(rendered.file("mesh.yaml"))["models"]["policy"]["path"] == "answers.jsonl"


def test_callers_are_known_by_the_certificates_that_cert_manager_issues(
    chart: Chart, folder: Path
) -> None:
    rendered = chart.render("ha")
    security = load(rendered, folder).security
    assert security is not None
    assert security.tls is not None
    names = {
        one["metadata"]["labels"]["app.kubernetes.io/component"]: one["spec"]["dnsNames"]
        for one in rendered.of("Certificate")
    }
    collector, prometheus = names.pop("collector"), names.pop("prometheus")
    assert set(names) == {"agent", "environment", "model", "discovery"}
    assert all(security.tls.server_name in one for one in names.values())
    assert security.tls.server_name not in collector + prometheus  # they serve nobody
    may = {name: set(one.may) for name, one in security.identities.items()}
    assert may == {
        "agent": {"register", "serve"},
        "resource": {"register", "serve"},
        "model": {"register"},
        "sandbox": {"register"},
        "discovery": {"observe"},
        "collector": {"collect"},
        "prometheus": {"observe"},
        "trainer": {"collect", "control"},
    }
    names["resource"] = names.pop("environment")
    # Of a kind that this mesh has no service of there is no certificate.
    assert security.identities["sandbox"].registers == ("sandbox",)
    for kind, shown in names.items():
        (known,) = security.identities[kind].certificates
        assert [one for one, has in names.items() if known in has] == [kind]
        registers = security.identities[kind].registers
        assert registers == (() if kind == "discovery" else (kind,)), shown
    assert collector == list(security.identities["collector"].certificates)
    assert prometheus == list(security.identities["prometheus"].certificates)


def test_plain_connections_are_only_where_they_were_accepted(chart: Chart, folder: Path) -> None:
    for name in VALUE_FILES:
        security = load(chart.render(name), folder).security
        assert security is not None
        assert security.insecure == (name == "small") == (security.tls is None)
