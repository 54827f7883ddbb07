"""A mesh that is found: through its discovery service, and beside what Kubernetes lists."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gymmesh.discovery.v1 import discovery_pb2
from gymmesh_discovery.config import DiscoveryConfig, KubernetesConfig
from gymmesh_mesh import MeshConfig, MeshSettings, up
from gymmesh_mesh.processes import StartError
from gymmesh_model.config import ModelConfig
from gymmesh_runtime.peers import PeerDirectory
from tests.support.cli import gym, rows_of, sums, write_tasks
from tests.unit.discovery.fake_kubernetes import answering
from tests.unit.discovery.kubernetes_slices import endpoint, slice_of
from tests.unit.runtime.probe import DISCOVERY, instance_at


def config_of(folder: Path, discovery: DiscoveryConfig | None = None) -> MeshConfig:
    path = folder / "recorded.jsonl"
    path.write_text(json.dumps({"match": "*", "answers": [{"text": "1"}]}) + "\n")
    return MeshConfig(
        models={"policy": ModelConfig(backend="replay", path=str(path))},
        mesh=MeshSettings(drain_s=2.0),
        discovery=discovery or DiscoveryConfig(),
    )


async def listed(address: str) -> dict[str, str]:
    """What a discovery service lists: addresses by id."""
    directory = PeerDirectory()
    peer = directory.peer(instance_at(address, service=DISCOVERY))
    page = await peer.ListInstances(discovery_pb2.ListInstancesRequest(), timeout=60.0)
    await directory.close()
    return {one.id: one.address for one in page.instances}


@pytest.mark.parametrize("name", ["tool_loop", ""])
async def test_collecting_through_a_discovery_service(name: str, tmp_path: Path) -> None:
    tasks, output = write_tasks(tmp_path, sums(3)), tmp_path / "rows.jsonl"
    async with up(config_of(tmp_path)) as mesh:
        target = f"discovery://{mesh.address_of('discovery')}/{name}"
        done = await gym("collect", "--agent", target, "-i", tasks, "-o", output)
        assert done.code == 0, done.err
        target = target.removesuffix(name) + "nobody"
        done = await gym("collect", "--agent", target, "-i", tasks, "-o", tmp_path / "none.jsonl")
        assert done.code == 1
        done.said("nobody")
    assert len(rows_of(output)) == 3


async def test_a_mesh_in_a_pod(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its services call themselves as Kubernetes lists them; what else is listed stands beside."""
    monkeypatch.setenv("POD_UID", "u-7")
    async with answering() as kubernetes:
        kubernetes.put(slice_of(endpoint()))
        found = KubernetesConfig(server=kubernetes.url, namespace="lab")
        config = config_of(tmp_path, DiscoveryConfig(backend="kubernetes", kubernetes=found))
        async with up(config) as mesh:
            # Its own agent, as the pod's Service lists it.
            host, _, port = mesh.address_of("agent").partition(":")
            kubernetes.put(
                slice_of(
                    endpoint(host, "u-7"),
                    name="agent",
                    service="agent",
                    called="tool_loop",
                    port=int(port),
                )
            )
            seen = await listed(mesh.address_of("discovery"))
            assert seen == {
                "agent-tool_loop-u-7": mesh.address_of("agent"),
                "environment-math-u-7": mesh.address_of("environment"),
                "model-policy-u-7": mesh.address_of("model"),
                "model-policy-u-1": "10.0.0.7:9400",
            }


async def test_a_mesh_without_its_kubernetes(tmp_path: Path) -> None:
    async with answering() as kubernetes:
        found = KubernetesConfig(server=kubernetes.url, namespace="lab")
    config = config_of(tmp_path, DiscoveryConfig(backend="kubernetes", kubernetes=found))
    with pytest.raises(StartError, match=r"Kubernetes at \S+ cannot be reached"):
        async with up(config):
            pass
