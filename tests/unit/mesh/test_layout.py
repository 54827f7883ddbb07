"""Which services share a process."""

from __future__ import annotations

import json

import pytest

from gymmesh_agent.config import AgentConfig
from gymmesh_mesh import MeshConfig, MeshSettings
from gymmesh_mesh.config import DiscoveryConfig, Layout
from gymmesh_mesh.layout import plan_processes, usual_cells
from gymmesh_model.config import ModelConfig
from gymmesh_relay.config import RelayConfig
from gymmesh_resource.config import EnvironmentConfig
from gymmesh_sandbox.config import SandboxConfig

REMOTE = ModelConfig(backend="chat", url="http://127.0.0.1:9/v1", model="m")
LOCAL = ModelConfig(backend="local")


def plans(
    models: dict[str, ModelConfig], **settings: object
) -> list[tuple[str, list[str], list[str]]]:
    """Name, services and exposed services of each process."""
    config = MeshConfig(
        models=models,
        environments={"math": EnvironmentConfig(), "mcqa": EnvironmentConfig(use="mcqa")},
        agents={"tool_loop": AgentConfig()},
        mesh=MeshSettings(**settings),  # type: ignore[arg-type]  # checked by its tests
    )
    found = []
    for plan in plan_processes(config):
        names = [spec.name for spec in plan.specs]
        exposed = [spec.name for spec in plan.specs if spec.instance_id in plan.exposed]
        found.append((plan.name, names, exposed))
    return found


def test_mesh_gives_each_service_a_process() -> None:
    names = ["registry", "policy", "math", "mcqa", "tool_loop"]
    assert plans({"policy": REMOTE}) == [(name, [name], [name]) for name in names]


@pytest.mark.parametrize("layout", ["mesh", "cell", "embedded"])
def test_a_relay_is_called_from_outside_at_its_port(layout: Layout) -> None:
    config = MeshConfig(
        models={"policy": REMOTE},
        relays={"door": RelayConfig(port=9443)},
        mesh=MeshSettings(layout=layout, cells=2),
    )
    found = [
        plan
        for plan in plan_processes(config)
        if any(one.kind == "relay" and one.instance_id in plan.exposed for one in plan.specs)
    ]
    assert len(found) == 1
    assert found[0].ports["relay-door-0"] == 9443
    if layout != "embedded":
        assert [spec.kind for spec in found[0].specs] == ["relay"]


def test_cells_are_alike_and_their_agents_alone_are_called_from_outside() -> None:
    inside = ["policy", "math", "mcqa", "tool_loop"]
    assert plans({"policy": REMOTE}, layout="cell", cells=2) == [
        ("registry", ["registry"], ["registry"]),
        ("cell0", inside, ["tool_loop"]),
        ("cell1", inside, ["tool_loop"]),
    ]


@pytest.mark.parametrize(("processors", "cells"), [(1, 1), (2, 1), (3, 2), (16, 15)])
def test_cells_leave_a_processor_to_the_collector(processors: int, cells: int) -> None:
    assert usual_cells(processors) == cells


def test_a_model_that_is_loaded_here_is_loaded_once() -> None:
    models = {"policy": LOCAL, "judge": REMOTE}
    cell = ["judge", "math", "mcqa", "tool_loop"]
    assert plans(models, layout="cell", cells=2) == [
        ("registry", ["registry"], ["registry"]),
        ("policy", ["policy"], ["policy"]),
        ("cell0", cell, ["tool_loop"]),
        ("cell1", cell, ["tool_loop"]),
    ]


def test_embedded_is_one_process() -> None:
    every = ["registry", "policy", "judge", "math", "mcqa", "tool_loop"]
    assert plans({"policy": LOCAL, "judge": REMOTE}, layout="embedded") == [
        ("mesh", every, ["registry", "tool_loop"])
    ]


@pytest.mark.parametrize("layout", ["mesh", "cell", "embedded"])
def test_instance_ids_are_unique_and_ports_are_as_asked_for(layout: str) -> None:
    settings = MeshSettings(layout=layout, cells=3, discovery_port=7000, agent_port=7100)  # type: ignore[arg-type]  # one of the literals
    found = plan_processes(MeshConfig(models={"policy": REMOTE}, mesh=settings))
    ids = [spec.instance_id for plan in found for spec in plan.specs]
    assert len(set(ids)) == len(ids)
    ports = [port for plan in found for port in plan.ports.values()]
    cells = 3 if layout == "cell" else 1
    assert sorted(ports) == [7000, *range(7100, 7100 + cells)]


@pytest.mark.parametrize("port", [0, 9400])
@pytest.mark.parametrize("layout", ["mesh", "cell", "embedded"])
def test_with_consul_each_process_registers_by_itself(layout: Layout, port: int) -> None:
    config = MeshConfig(
        models={"policy": REMOTE},
        mesh=MeshSettings(layout=layout, cells=2, discovery_port=port),
        discovery=DiscoveryConfig(backend="consul"),
    )
    found = plan_processes(config, "abc")
    ids = [spec.instance_id for plan in found for spec in plan.specs]
    assert len(set(ids)) == len(ids)
    assert all("abc" in one for one in ids)  # other meshes may share the Consul
    for plan in found:
        assert plan.specs[0].kind == "discovery"
        assert b"consul" in plan.specs[0].config_json
    exposed = {
        spec.kind for plan in found for spec in plan.specs if spec.instance_id in plan.exposed
    }
    assert ("discovery" in exposed) == bool(port)
    assert "agent" in exposed


@pytest.mark.parametrize("layout", ["mesh", "cell", "embedded"])
def test_in_consul_one_process_says_what_is_scraped(layout: Layout) -> None:
    """Each process registers by itself, but an address can be listened at once."""
    wanted = "127.0.0.1:9402"
    found = plan_processes(
        MeshConfig(
            models={"policy": REMOTE},
            mesh=MeshSettings(layout=layout, cells=2),
            discovery=DiscoveryConfig(backend="consul", http_sd=wanted),
        )
    )
    registries = [
        (spec.instance_id in plan.exposed, json.loads(spec.config_json)["http_sd"])
        for plan in found
        for spec in plan.specs
        if spec.kind == "discovery"
    ]
    assert len(registries) == {"mesh": 4, "cell": 3, "embedded": 1}[layout]
    assert registries[0] == (True, wanted)
    assert registries[1:] == [(False, "")] * (len(registries) - 1)


def test_a_sandbox_service_has_a_process_of_its_own_beside_cells() -> None:
    config = MeshConfig(
        models={"policy": REMOTE},
        sandboxes={"boxes": SandboxConfig()},
        mesh=MeshSettings(layout="cell", cells=2),
    )
    found = [[spec.name for spec in plan.specs] for plan in plan_processes(config)]
    cell = ["policy", "math", "tool_loop"]
    assert found == [["registry"], ["boxes"], cell, cell]
