"""Every certificate is replaced, and the authority, too, while rollouts run: none fails."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import socket
import ssl
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import pytest
from cryptography import x509

from gymmesh.agent.v1 import agent_pb2
from gymmesh.rollout.v1 import rollout_pb2
from gymmesh_client import FailedAttempt, run_attempt
from gymmesh_mesh import Mesh, MeshConfig, MeshSettings, remote, up
from gymmesh_model.config import ModelConfig
from gymmesh_responses import new_message
from gymmesh_runtime import metrics
from gymmesh_runtime.security import SecurityConfig, TlsConfig
from gymmesh_runtime.security.credentials import Credentials
from gymmesh_runtime.timers import cancel_and_wait
from tests.support.certificates import Authority, Pair
from tests.unit.runtime.probe import until

BOUND_S = 240.0
AT_A_TIME = 8


class Load:
    """Rollouts, eight at a time, until they are told to end."""

    def __init__(self, mesh: Mesh) -> None:
        self._mesh = mesh
        self._numbers = itertools.count()
        self.ended = asyncio.Event()
        self.completed = 0
        self.failed: list[FailedAttempt] = []

    async def run(self) -> None:
        async with asyncio.TaskGroup() as workers:
            for _ in range(AT_A_TIME):
                workers.create_task(self._work())

    async def more(self) -> None:
        """Until as many more have completed as two rounds have: they began after this call."""
        wanted = self.completed + 2 * AT_A_TIME
        await until(lambda: self.completed >= wanted or self.failed)

    async def _work(self) -> None:
        while not self.ended.is_set():
            task = rollout_pb2.Task(
                task_id="t",
                environment="math",
                agent="tool_loop",
                payload_json=b'{"expected_answer": "4"}',
            )
            task.params.input.append(new_message("user", "What is 2 + 2?"))
            request = agent_pb2.RunRolloutRequest(
                task=task, rollout_id=f"r-{next(self._numbers)}", attempt=1, run_id="run"
            )
            connect = partial(self._mesh.agents.connect, held=False)
            outcome = await run_attempt(connect, request, repeat_index=0, timeout_s=BOUND_S)
            if isinstance(outcome, FailedAttempt):
                self.failed.append(outcome)
                return
            self.completed += 1


async def test_all_certificates_are_replaced_under_load(tmp_path: Path) -> None:
    old, new = Authority(tmp_path, "old"), Authority(tmp_path, "new")
    trusted = tmp_path / "trusted.pem"
    replace(trusted, old.path.read_bytes())
    services, collector = old.issue("services"), old.issue("collector")
    before = Pair(tmp_path / "before.pem", tmp_path / "before.key")
    before.certificate.write_bytes(collector.certificate.read_bytes())
    before.key.write_bytes(collector.key.read_bytes())
    after = new.issue("after")

    recorded = tmp_path / "recorded.jsonl"
    recorded.write_text(json.dumps({"match": "*", "answers": [{"text": "4"}]}) + "\n")
    config = MeshConfig(
        models={"policy": ModelConfig(backend="replay", path=str(recorded))},
        mesh=MeshSettings(drain_s=2.0, metrics=False),
        security=security_of(trusted, services),
    )
    said: list[str] = []
    async with (
        up(config, echo=said.append) as running,
        remote(running.address_of("agent"), security=security_of(trusted, collector)) as mesh,
    ):
        addresses = [one.address for one in running.infos]
        load = Load(mesh)
        working = asyncio.create_task(load.run())
        await load.more()

        replace(trusted, old.path.read_bytes() + new.path.read_bytes())
        await each(addresses, lambda one: accepts(one, after, old.path))
        await load.more()

        new.issue("services")
        new.issue("collector")
        await each(addresses, lambda one: accepts(one, after, new.path))
        await load.more()

        replace(trusted, new.path.read_bytes())
        await each(addresses, lambda one: not accepts(one, before, new.path))
        await load.more()

        load.ended.set()
        await working
    assert not load.failed, [str(one) for one in load.failed]
    assert load.completed >= 4 * 2 * AT_A_TIME
    for name in ("registry", "policy", "math", "tool_loop"):
        read = [line for line in said if line.startswith(f"[{name}]") and "reloaded" in line]
        assert len(read) >= 3, said
    assert not [line for line in said if "the previous files" in line]
    # Callers connected anew, with the new certificates.
    for name in ("policy", "math"):
        left = [line for line in said if "the certificates have changed" in line]
        assert [line for line in left if line.startswith(f"[{name}]")]


async def test_a_replacement_that_cannot_be_used_is_said_without_the_services_logs(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """`gym-cli up` shows its own log; those of its services only with --logs."""
    authority = Authority(tmp_path)
    services, other = authority.issue("services"), authority.issue("other")
    config = MeshConfig(
        environments={},
        models={},
        mesh=MeshSettings(drain_s=0.0, metrics=False),
        security=security_of(authority.path, services),
    )
    async with up(config):
        replace(services.key, other.key.read_bytes())
        await until(lambda: "the previous files" in caplog.text)
    assert f"does not match its key {services.key}" in caplog.text


async def test_a_process_that_nobody_calls_shows_how_long_its_certificate_is_valid(
    tmp_path: Path,
) -> None:
    authority = Authority(tmp_path)
    pair = authority.issue("services")
    credentials = Credentials(security_of(authority.path, pair))
    looking = asyncio.create_task(credentials.refresh_for_ever())
    try:
        authority.issue("services", days=3)
        found = x509.load_pem_x509_certificate(pair.certificate.read_bytes())
        shown = metrics.CERTIFICATE_ENDS.labels
        await until(lambda: shown("certificate").value == found.not_valid_after_utc.timestamp())
    finally:
        await cancel_and_wait(looking)


def security_of(trusted: Path, pair: Pair) -> SecurityConfig:
    tls = TlsConfig(authority=str(trusted), certificate=str(pair.certificate), key=str(pair.key))
    return SecurityConfig(tls=tls)


def replace(path: Path, data: bytes) -> None:
    whole = path.with_suffix(".new")
    whole.write_bytes(data)
    os.replace(whole, path)


async def each(addresses: Sequence[str], holds: Callable[[str], bool]) -> None:
    """Until it holds for each."""
    async with asyncio.timeout(BOUND_S):
        for address in addresses:
            while not await asyncio.to_thread(holds, address):  # noqa: ASYNC110  # other processes
                await asyncio.sleep(0.1)


def accepts(address: str, pair: Pair, authority: Path) -> bool:
    """Whether a service shows a certificate of the authority, and takes this one."""
    context = ssl.create_default_context(cafile=str(authority))
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    context.set_alpn_protocols(["h2"])
    context.load_cert_chain(pair.certificate, pair.key)
    host, _, port = address.rpartition(":")
    try:
        with (
            socket.create_connection((host, int(port)), BOUND_S) as connection,
            context.wrap_socket(connection, server_hostname=host) as stream,
        ):
            return bool(stream.recv(1))  # a gRPC server speaks first
    except ssl.SSLError:
        return False
    except ConnectionResetError:
        return False
