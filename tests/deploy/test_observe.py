"""What the chart's values say about metrics, logs and traces is what its services do."""

from __future__ import annotations

import asyncio
import json
import logging
import socket
import ssl
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from gymmesh_mesh import MeshConfig
from gymmesh_runtime.config import load_config
from gymmesh_runtime.security import SecurityConfig
from gymmesh_runtime.security.credentials import Credentials
from gymmesh_runtime.security.readers import Readers
from gymmesh_runtime.serving.exposition import MetricsEndpoint
from gymmesh_runtime.telemetry.logs import formatter
from gymmesh_runtime.telemetry.tracing import active, tracing
from tests.deploy.chart import VALUE_FILES, Chart, Rendered
from tests.support.certificates import Authority, Pair

HOST: Final = "127.0.0.1"
BOUND_S: Final = 240.0
TLS_SECRET: Final = ("--set=tls.mode=secret", "--set=tls.secret=own", "--set=tls.insecure=false")
SAMPLER: Final = "OTEL_TRACES_SAMPLER"


def config_of(rendered: Rendered, folder: Path) -> MeshConfig:
    """The mesh file as services read it, with a pod's files in a folder of this machine."""
    text = rendered.file("mesh.yaml").replace("/etc/gymmesh-tls/", f"{folder}/")
    path = folder / "mesh.yaml"
    path.write_text(text.replace("${HOST_IP:-127.0.0.1}", HOST))
    return load_config([path], [], MeshConfig)


def monitored(rendered: Rendered) -> dict[str, Any]:
    """The one endpoint of the one ServiceMonitor."""
    (monitor,) = rendered.of("ServiceMonitor")
    (endpoint,) = monitor["spec"]["endpoints"]
    found: dict[str, Any] = endpoint
    return found


def issued(rendered: Rendered, authority: Authority) -> dict[str, Pair]:
    """The certificates that the chart asks cert-manager for, by the names of their Secrets."""
    pairs = {}
    for one in rendered.of("Certificate"):
        first, *others = one["spec"]["dnsNames"]
        pairs[one["spec"]["secretName"]] = authority.issue(first, hosts=tuple(others))
    return pairs


def scraped(port: int, endpoint: dict[str, Any], context: ssl.SSLContext | None) -> str:
    """What the endpoint's path answers, read by the ServiceMonitor's scheme and server name."""
    with socket.create_connection((HOST, port), BOUND_S) as connection:
        if context is not None:
            name = endpoint["tlsConfig"]["serverName"]
            connection = context.wrap_socket(connection, server_hostname=name)
        with connection:
            connection.sendall(f"GET {endpoint['path']} HTTP/1.0\r\n\r\n".encode())
            return b"".join(iter(lambda: connection.recv(65536), b"")).decode()


async def served(security: SecurityConfig | None) -> MetricsEndpoint:
    return MetricsEndpoint.start(HOST, 0, Readers(Credentials(security)))


async def test_prometheus_reads_metrics_with_the_certificate_that_the_chart_has_issued_for_it(
    chart: Chart, tmp_path: Path
) -> None:
    rendered = chart.render("ha")
    endpoint, authority = monitored(rendered), Authority(tmp_path)
    pairs = issued(rendered, authority)
    _files(tmp_path, authority, pairs["mesh-gymmesh-agent-tool-loop-tls"])
    tls = endpoint["tlsConfig"]
    secret = tls["cert"]["secret"]["name"]
    assert {secret} == {tls["ca"]["secret"]["name"], tls["keySecret"]["name"]}
    context = ssl.create_default_context(cafile=str(authority.path))
    context.load_cert_chain(pairs[secret].certificate, pairs[secret].key)
    page = await served(config_of(rendered, tmp_path).security)
    try:
        assert endpoint["scheme"] == "https"
        answer = await asyncio.to_thread(scraped, page.port, endpoint, context)
        assert answer.startswith("HTTP/1.0 200")
        assert "gymmesh_certificate_not_after_timestamp_seconds" in answer
        nobody = ssl.create_default_context(cafile=str(authority.path))
        with pytest.raises(ssl.SSLError):
            await asyncio.to_thread(scraped, page.port, endpoint, nobody)
    finally:
        await asyncio.to_thread(page.stop)


async def test_metrics_are_plain_unless_it_is_said(chart: Chart, tmp_path: Path) -> None:
    rendered = chart.render("no-consul", "--set=metrics.serviceMonitor.enabled=true")
    endpoint, authority = monitored(rendered), Authority(tmp_path)
    assert not endpoint.keys() & {"scheme", "tlsConfig"}
    assert not [one for one in rendered.of("Certificate") if "prometheus" in str(one)]
    _files(tmp_path, authority, authority.issue("services"))
    page = await served(config_of(rendered, tmp_path).security)
    try:
        answer = await asyncio.to_thread(scraped, page.port, endpoint, None)
        assert answer.startswith("HTTP/1.0 200")
    finally:
        await asyncio.to_thread(page.stop)


@pytest.mark.parametrize(("said", "secret"), [("", "own"), ("scraper", "scraper")])
def test_with_a_secret_of_ones_own_prometheus_uses_that_or_another(
    chart: Chart, said: str, secret: str
) -> None:
    monitor = f"--set=metrics.serviceMonitor.enabled=true,metrics.serviceMonitor.tlsSecret={said}"
    rendered = chart.render("small", *TLS_SECRET, "--set=metrics.tls=true", monitor)
    tls = monitored(rendered)["tlsConfig"]
    assert tls["ca"]["secret"] == {"name": secret, "key": "ca.crt"}
    assert tls["cert"]["secret"] == {"name": secret, "key": "tls.crt"}
    assert tls["keySecret"] == {"name": secret, "key": "tls.key"}
    assert not rendered.of("Certificate")


def test_vllms_own_metrics_stay_plain(chart: Chart) -> None:
    more = "--set=metrics.tls=true,metrics.serviceMonitor.enabled=true"
    rendered = chart.render("gpu", more)
    schemes = [
        one for one in monitored(rendered)["relabelings"] if one["targetLabel"] == "__scheme__"
    ]
    (scheme,) = schemes
    assert scheme["replacement"] == "http"
    label = "__meta_kubernetes_service_label_app_kubernetes_io_component"
    assert scheme["sourceLabels"] == [label]
    components = {
        one["metadata"]["labels"]["app.kubernetes.io/component"] for one in rendered.of("Service")
    }
    assert scheme["regex"] in components


@pytest.mark.parametrize("rendered", VALUE_FILES, indirect=True)
def test_logs_are_written_as_it_is_said(rendered: Rendered, tmp_path: Path) -> None:
    said = yaml.safe_load(rendered.file("mesh.yaml"))["mesh"]["log_format"]
    assert said == rendered.values().get("logFormat", "text")
    record = logging.LogRecord("gymmesh.x", logging.INFO, "", 0, "there", (), None)
    line = formatter(said).format(record)
    if said == "json":
        assert json.loads(line)["message"] == "there"
    else:
        assert line.endswith("gymmesh.x: there")


@pytest.mark.parametrize("rendered", VALUE_FILES, indirect=True)
async def test_rollouts_are_traced_where_there_is_an_endpoint(
    rendered: Rendered, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = rendered.values().get("traces", {})
    mesh = yaml.safe_load(rendered.file("mesh.yaml"))["mesh"]
    assert mesh["traces"] == bool(said)
    assert mesh["traces_endpoint"] == said.get("endpoint", "")
    for service in rendered.services():
        variables = {one["name"]: one.get("value") for one in service.container["env"]}
        sampled = {name: value for name, value in variables.items() if name.startswith(SAMPLER)}
        if not said:
            assert not sampled
            continue
        assert sampled == {SAMPLER: "traceidratio", f"{SAMPLER}_ARG": str(said["ratio"])}
        for name, value in sampled.items():
            monkeypatch.setenv(name, value or "")
    if said:
        async with tracing("http://127.0.0.1:1"):
            own = active()
            assert own is not None
            sampler = own._provider.sampler
            assert sampler.get_description() == f"TraceIdRatioBased{{{said['ratio']}}}"


def test_all_rollouts_are_traced_unless_a_share_is_said(chart: Chart) -> None:
    endpoint = "--set=traces.endpoint=http://otel:4317"
    for service in chart.render("small", endpoint).services():
        assert SAMPLER not in {one["name"] for one in service.container["env"]}


def _files(folder: Path, authority: Authority, pair: Pair) -> None:
    """What a pod has of its Secret."""
    (folder / "ca.crt").write_bytes(authority.path.read_bytes())
    (folder / "tls.crt").write_bytes(pair.certificate.read_bytes())
    (folder / "tls.key").write_bytes(pair.key.read_bytes())
