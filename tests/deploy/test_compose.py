"""deploy/compose.yaml: a container for each service, started as `gym-cli serve` takes it."""

from __future__ import annotations

from typing import Any

import yaml

from gymmesh_mesh import MeshConfig
from gymmesh_mesh.compose import specs_of
from tests.support.docs import ROOT, parse_command

COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "deploy" / "compose.yaml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]


def test_it_has_the_services_of_a_mesh_by_their_names() -> None:
    served = {tuple(arg for arg in one["command"] if arg[0] != "-") for one in SERVICES.values()}
    specs = {("serve", one.kind, one.name) for one in specs_of(MeshConfig())[1:]}
    assert served == specs | {("serve", "discovery")}


def test_its_commands_are_gym_clis_and_lead_to_one_another() -> None:
    for name, one in SERVICES.items():
        parse_command(one["command"])
        options = dict(arg[2:].split("=") for arg in one["command"] if arg.startswith("--"))
        assert options["advertise"] == name
        assert options["host"] == "0.0.0.0"
        if name != "discovery":
            assert options["discovery"] == "discovery:9400"
            assert one["depends_on"] == ["discovery"]


def test_its_containers_may_do_little_and_one_port_is_published_here_alone() -> None:
    for name, one in SERVICES.items():
        assert one["read_only"] is True
        assert one["cap_drop"] == ["ALL"]
        assert one["security_opt"] == ["no-new-privileges:true"]
        ports = one.get("ports", [])
        assert ports == (["127.0.0.1:9401:9400"] if name == "tool_loop" else [])
