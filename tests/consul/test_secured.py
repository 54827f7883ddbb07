"""A real Consul agent over TLS that asks for certificates, and whose ACLs deny all without a token.

The token of the mesh has the permissions that docs/how-to/consul.md names, and no others.
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from gymmesh.discovery.v1 import discovery_pb2 as pb
from gymmesh.errors.v1 import errors_pb2
from gymmesh_discovery.backends.consul import ConsulRegistry
from gymmesh_discovery.config import ConsulConfig, ConsulTls
from gymmesh_discovery.service import DiscoveryService
from gymmesh_runtime.errors import MeshError
from gymmesh_runtime.security import SecurityConfig
from gymmesh_runtime.serve import ServeOptions, serving
from gymmesh_runtime.serving.service import Service
from tests.consul.agent import Agent, Secured, running
from tests.consul.test_up import up
from tests.support.certificates import Authority
from tests.support.cli import gym, rows_of, sums, write_tasks
from tests.support.docs import ROOT, read_page
from tests.unit.runtime.probe import MODEL, until
from tests.unit.runtime.probe_service import ProbeService

RULES = """
service_prefix "gymmesh-" { policy = "write" }
service_prefix "" { policy = "read" }
node_prefix "" { policy = "read" }
"""


@dataclass(frozen=True)
class World:
    """An agent, and how the mesh reaches it."""

    agent: Agent
    secured: Secured
    token_file: Path

    def config(self, **changed: Any) -> dict[str, Any]:
        """`discovery.consul` of a mesh."""
        tls = {
            "ca_file": str(self.secured.authority.path),
            "cert_file": str(self.secured.reader.certificate),
            "key_file": str(self.secured.reader.key),
        }
        usual = {"address": f"https://{self.agent.address}", "token_file": str(self.token_file)}
        return {**usual, "tls": tls, **changed}

    def registry(self, **changed: Any) -> ConsulRegistry:
        """A backend with that configuration."""
        config = self.config(**changed)
        return ConsulRegistry(ConsulConfig(**{**config, "tls": ConsulTls(**config["tls"])}))


@pytest.fixture
async def world(binary: str, tmp_path: Path) -> AsyncIterator[World]:
    secured = Secured.within(tmp_path)
    async with running(binary, secured) as agent:
        await agent.put("/v1/acl/policy", {"Name": "mesh", "Rules": RULES})
        made = await agent.put("/v1/acl/token", {"Policies": [{"Name": "mesh"}]})
        (tmp_path / "consul-token").write_text(made["SecretID"] + "\n")
        yield World(agent, secured, tmp_path / "consul-token")


def test_the_page_names_the_permissions() -> None:
    text = read_page(ROOT / "docs" / "how-to" / "consul.md").text
    assert "`service:write` for names that begin with the prefix" in text
    assert "`service:read` and `node:read`" in text


async def test_services_find_one_another(world: World, tmp_path: Path) -> None:
    """A plain service, which Consul's check can call, and one with certificates, which reports."""
    authority = Authority(tmp_path, "mesh-authority")
    secured = authority.tls(authority.issue("services"))
    backend = world.registry()
    async with AsyncExitStack() as stack:
        await backend.open()
        stack.push_async_callback(backend.close)

        def healths() -> dict[str, int]:
            return {one.id: one.health for one in backend.snapshot("", "")[1]}

        async with AsyncExitStack() as services:
            for name, security in (("plain", None), ("secured", secured)):
                await services.enter_async_context(_probe(world, name, security))
            await until(lambda: healths() == dict.fromkeys(("plain", "secured"), pb.HEALTH_SERVING))
            found = await world.agent.get("/v1/health/service/gymmesh-model-policy")
            kinds = {one["Service"]["ID"]: {c["Type"] for c in one["Checks"]} for one in found}
            assert "grpc" in kinds["plain"]
            assert "ttl" in kinds["secured"]
        await until(lambda: healths() == {})


@asynccontextmanager
async def _probe(world: World, name: str, security: SecurityConfig | None) -> AsyncIterator[Any]:
    """A service that registers there by itself."""
    check = {} if security is None else {"check": "ttl"}
    registry = DiscoveryService(f"registry-{name}", world.registry(**check))
    services: list[Service] = [registry, ProbeService(name)]
    options = ServeOptions(metrics_port=None, drain_s=0.5, security=security)
    async with serving(services, options, exposed=lambda one: one.kind == MODEL) as served:
        yield served


@pytest.mark.parametrize(
    ("wrong", "reason", "said"),
    [
        ("no token", errors_pb2.ERROR_REASON_NOT_PERMITTED, r"discovery\.consul\.token_file"),
        ("a wrong token", errors_pb2.ERROR_REASON_NOT_PERMITTED, r"discovery\.consul\.token_file"),
        ("another authority", errors_pb2.ERROR_REASON_PEER_UNAVAILABLE, "certificate verify"),
        ("no certificate", errors_pb2.ERROR_REASON_PEER_UNAVAILABLE, "cannot be reached"),
        ("no TLS", errors_pb2.ERROR_REASON_PEER_UNAVAILABLE, r"serves TLS.*https://"),
    ],
)
async def test_what_consul_does_not_let_in(
    world: World, tmp_path: Path, wrong: str, reason: int, said: str
) -> None:
    config = world.config()
    token = world.token_file.read_text().strip()
    if wrong == "no token":
        config["token_file"] = ""
    elif wrong == "a wrong token":
        (tmp_path / "wrong").write_text("00000000-1111-2222-3333-444444444444\n")
        config["token_file"] = str(tmp_path / "wrong")
    elif wrong == "another authority":
        config["tls"] = {**config["tls"], "ca_file": str(Authority(tmp_path, "other").path)}
    elif wrong == "no certificate":
        config["tls"] = {"ca_file": config["tls"]["ca_file"]}
    else:
        config["address"] = world.agent.address
    backend = world.registry(**config)
    await backend.open()
    try:
        instance = pb.Instance(id="a", service=MODEL, name="policy", address="127.0.0.1:9")
        with pytest.raises(MeshError, match=said) as caught:
            await backend.register(instance, 15, "")
    finally:
        await backend.close()
    assert caught.value.reason == reason
    assert token not in caught.value.message


async def test_a_mesh_with_certificates_registers_and_is_collected_from(
    world: World, tmp_path: Path
) -> None:
    authority = Authority(tmp_path, "mesh-authority")
    pair = authority.issue("services")
    answers = tmp_path / "answers.jsonl"
    answers.write_text(json.dumps({"match": "*", "answers": [{"text": "1"}]}))
    tls = {
        "authority": str(authority.path),
        "certificate": str(pair.certificate),
        "key": str(pair.key),
    }
    config = {
        "models": {"policy": {"backend": "replay", "path": str(answers)}},
        "mesh": {"drain_s": 2},
        "security": {"tls": tls},
        "discovery": {"backend": "consul", "consul": world.config()},
    }
    mesh, tasks, output = tmp_path / "mesh.yaml", tmp_path / "tasks", tmp_path / "rows.jsonl"
    tasks.mkdir()
    mesh.write_text(yaml.safe_dump(config))
    rows = write_tasks(tasks, sums(3))
    async with up("--config", mesh, cwd=tmp_path):
        assert len(await world.agent.passing()) == 3
        for target in ("consul:///tool_loop", f"consul://{world.agent.address}/tool_loop"):
            done = await gym(
                *("collect", "--config", mesh, "--agent", target, "-i", rows, "-o", output),
                "--overwrite",
            )
            assert done.code == 0, done.err
            assert len(rows_of(output)) == 3
    assert await world.agent.passing() == set()

    config["discovery"]["consul"]["token_file"] = ""  # type: ignore[index]  # of nested dicts
    mesh.write_text(yaml.safe_dump(config))
    done = await gym("up", "--config", mesh, cwd=tmp_path)
    assert done.code not in (0, None)
    done.said("discovery.consul.token_file")
    assert not re.search("Traceback", done.err)
