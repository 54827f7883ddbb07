"""deploy/compose.yaml: a container for each service, started as `gym-cli serve` takes it."""

from __future__ import annotations

import json
import re
from typing import Any

import yaml

from gymmesh_mesh import MeshConfig
from gymmesh_mesh.compose import specs_of
from gymmesh_mesh.processes.prometheus import JOB
from tests.support.docs import ROOT, parse_command

COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "deploy" / "compose.yaml").read_text())
EVERY: dict[str, dict[str, Any]] = COMPOSE["services"]
SERVICES = {name: one for name, one in EVERY.items() if "profiles" not in one}
OBSERVERS = {name: one for name, one in EVERY.items() if "observe" in one.get("profiles", ())}
SANDBOXES = {name: one for name, one in EVERY.items() if "sandboxes" in one.get("profiles", ())}
PROVISIONED = ROOT / "deploy" / "observe" / "compose"


def test_it_has_the_services_of_a_mesh_by_their_names() -> None:
    served = {tuple(arg for arg in one["command"] if arg[0] != "-") for one in SERVICES.values()}
    specs = {("serve", one.kind, one.name) for one in specs_of(MeshConfig())[1:]}
    assert served == specs | {("serve", "discovery")}


def test_its_commands_are_gym_clis_and_lead_to_one_another() -> None:
    for name, one in (SERVICES | SANDBOXES).items():
        parse_command(one["command"])
        options = dict(arg[2:].split("=") for arg in one["command"] if arg.startswith("--"))
        assert options["advertise"] == name
        assert options["host"] == "0.0.0.0"
        if name != "discovery":
            assert options["discovery"] == "discovery:9400"
            assert one["depends_on"] == ["discovery"]


def test_its_containers_may_do_little_and_one_port_is_published_here_alone() -> None:
    for name, one in EVERY.items():
        assert one["read_only"] is True
        assert one["cap_drop"] == ["ALL"]
        if name not in SANDBOXES:
            assert one["security_opt"] == ["no-new-privileges:true"]
        published = {"tool_loop": "9401:9400", "prometheus": "9090:9090", "grafana": "3000:3000"}
        ports = [f"127.0.0.1:{published[name]}"] if name in published else []
        assert one.get("ports", []) == ports


def test_a_sandbox_service_has_what_bubblewrap_needs_and_no_more() -> None:
    ((name, boxes),) = SANDBOXES.items()
    assert boxes["command"][:3] == ["serve", "sandbox", name]
    assert boxes["build"]["target"] == "sandbox"
    assert "privileged" not in boxes
    assert "cap_add" not in boxes
    options = dict(one.split("=" if "=" in one else ":", 1) for one in boxes["security_opt"])
    assert options.keys() == {"no-new-privileges", "seccomp", "apparmor", "systempaths"}
    assert (ROOT / "deploy" / options["seccomp"]).exists()
    # What all its sandboxes take together.
    assert boxes["mem_limit"]
    assert boxes["pids_limit"]


def test_prometheus_scrapes_every_service_and_has_the_rules() -> None:
    config = yaml.safe_load((PROVISIONED / "prometheus.yaml").read_text())
    (job,) = config["scrape_configs"]
    assert job["job_name"] == JOB
    found = {
        group["targets"][0]: (group["labels"]["kind"], group["labels"]["service_name"])
        for group in job["static_configs"]
    }
    # One that does not run has no address, and is not missed.
    (names,) = job["dns_sd_configs"]
    assert names["names"] == list(SANDBOXES)
    assert (names["type"], names["port"]) == ("A", 9464)
    for one in job["relabel_configs"]:
        assert (one["source_labels"], one["regex"]) == (["__meta_dns_name"], "boxes")
    assert {one["target_label"]: one["replacement"] for one in job["relabel_configs"]} == {
        "kind": "sandbox",
        "service_name": "boxes",
    }
    # What a service is called in labels is what Prometheus' service discovery would call it.
    assert found == {
        f"{name}:9464": (kind, "registry" if kind == "discovery" else name)
        for name, kind in zip(
            ("discovery", "policy", "math", "tool_loop"),
            ("discovery", "model", "resource", "agent"),
            strict=True,
        )
    }
    assert {target.partition(":")[0] for target in found} == SERVICES.keys()
    assert config["rule_files"] == ["/etc/prometheus/rules/*.yaml"]


def test_what_watches_is_apart_and_its_files_are_there() -> None:
    assert OBSERVERS.keys() == {"prometheus", "grafana"}
    volumes = set(COMPOSE["volumes"])
    for one in OBSERVERS.values():
        assert one["profiles"] == ["observe"]
        for volume in one["volumes"]:
            source = volume.split(":")[0]
            assert source in volumes or (ROOT / "deploy" / source).exists(), source
    (source,) = yaml.safe_load((PROVISIONED / "grafana/datasources/prometheus.yaml").read_text())[
        "datasources"
    ]
    assert source["url"] == "http://prometheus:9090"
    dashboards = ROOT / "deploy" / "helm" / "gymmesh" / "dashboards"
    assert all(json.loads(path.read_text())["uid"] for path in dashboards.iterdir())


def test_what_watches_is_what_is_tested() -> None:
    """Prometheus is the version that the tests build; the dashboards are for that Grafana."""
    module = (ROOT / "tools" / "prometheus" / "go.mod").read_text()
    (version,) = re.findall(r"prometheus/prometheus v0\.(\d\d*)\.(\d+)", module)
    tested = f"v{version[0][0]}.{int(version[0][1:])}.{version[1]}"
    assert OBSERVERS["prometheus"]["image"] == f"prom/prometheus:{tested}"
    locked = (ROOT / "requirements" / "dev.txt").read_text()
    (grafana,) = re.findall(r"^grafana-foundation-sdk==\d+!([\d.]+)", locked, re.MULTILINE)
    assert OBSERVERS["grafana"]["image"] == f"grafana/grafana:{grafana}"
