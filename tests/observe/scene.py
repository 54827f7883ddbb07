"""A mesh under load that has all that dashboards show, and a Prometheus that scrapes it.

    async with scene(folder, prometheus_binary) as stage:
        stage.policy.be("fails")
        await until(lambda: "GymmeshRolloutsFail" in stage.server.firing())

Services are processes of `up`, and one agent beside them that may be killed; collectors are
`gym-cli collect`. The policy's endpoints, a vLLM and Kubernetes' API are servers of this process;
so is the one model service that can break the exact-token law, and what uses the sandbox service.
Prometheus finds all but the collector by `http_sd`.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import sys
import time
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml
from google.rpc import status_pb2

from deploy.observe.generated_files import rules_text
from deploy.observe.prometheus_api import Server
from deploy.observe.rules import Times
from gymmesh.sandbox.v1 import sandbox_pb2
from gymmesh_client.control import RemoteRun, open_runs
from gymmesh_discovery.xds.names import ENDPOINTS, LISTENER
from gymmesh_mesh import MeshConfig, dial_out, up
from gymmesh_mesh.processes.prometheus import free_address, prometheus
from gymmesh_model.backends.scripted import ScriptedBackend
from gymmesh_model.config import ModelConfig, SideDataConfig
from gymmesh_runtime.config import load_config
from gymmesh_runtime.errors import MeshError
from gymmesh_runtime.peers import PeerDirectory
from gymmesh_runtime.security.credentials import Credentials
from gymmesh_runtime.serve import ServeOptions, serving
from gymmesh_sandbox.service import SANDBOX_SERVICE
from tests.observe.answering import Policy, rows
from tests.observe.retokenising import Retokenising
from tests.support.certificates import Authority
from tests.support.docs import ROOT
from tests.support.endpoint import FakeEndpoint
from tests.support.sandboxes import TIMEOUT, Box, new_id
from tests.support.vllm_server import FakeVllm, calls
from tests.unit.discovery.fake_kubernetes import FakeKubernetes, answering
from tests.xds.plane import raw_stream, read, request

#: What a loaded machine may take.
BOUND_S: Final = 120.0
#: A minute of the rules is two seconds here.
TIMES: Final = Times(1 / 30)
#: Grafana's $__rate_interval.
WINDOW: Final = TIMES.minutes(5)
#: Rollouts are in flight in both instances of the agent.
BOTH_AT_WORK: Final = 'count(gymmesh_rollouts_in_flight{agent="tool_loop"} > 0) == 2'

_SCRAPE_S: Final = 1.0
_ROWS: Final = 2000
_GYM: Final = (sys.executable, "-m", "gymmesh_cli")
_VLLM_METRICS: Final = """\
vllm:num_requests_running{engine="0"} 2.0
vllm:num_requests_waiting{engine="0"} 0.0
vllm:kv_cache_usage_perc{engine="0"} 0.31
"""


async def until(holds: Callable[[], object], what: str = "it") -> None:
    """Waits until something holds, as long as a loaded machine may take."""
    deadline = time.monotonic() + BOUND_S
    while not await asyncio.to_thread(holds):
        assert time.monotonic() < deadline, f"{what} did not come within {BOUND_S:.0f} s"
        await asyncio.sleep(0.25)


@dataclass
class Stage:
    """The scene.

    agents: addresses, by name; `tool_loop` is the one that stays, `spare` is the process of
    another instance of it. `narrow` has one place.
    """

    folder: Path
    policy: Policy
    kubernetes: FakeKubernetes
    exact: Retokenising
    server: Server
    agents: dict[str, str]
    spare: Process
    began: float

    @asynccontextmanager
    async def collecting(
        self, name: str, agents: list[str], *more: str, environments: str = "shop"
    ) -> AsyncIterator[Path]:
        """A collector that has enough to do; what it writes. Its environments take turns."""
        tasks, output = self.folder / f"{name}.tasks.jsonl", self.folder / f"{name}.jsonl"
        mixed = zip(*(rows(one, _ROWS) for one in environments.split()), strict=True)
        tasks.write_text("".join(json.dumps(row) + "\n" for some in mixed for row in some))
        where = [part for agent in agents for part in ("--agent", agent)]
        with (self.folder / f"{name}.log").open("wb") as log:
            process = await asyncio.create_subprocess_exec(
                *_GYM, "collect", "-i", tasks, "-o", output, "--quiet", "--max-alike", "0",
                *where, *more,
                stdin=DEVNULL, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip
        try:
            yield output
            assert process.returncode is None, (self.folder / f"{name}.log").read_text()
        finally:
            await _killed(process)

    async def train(self, output: Path) -> None:
        """Takes the groups of a collector for ever. Who asks for more acknowledges what was taken;
        a collector whose groups nobody acknowledges stops before long.
        """
        taken = 0
        while True:
            async with open_runs() as runs:
                with contextlib.suppress(MeshError):
                    for one in runs:
                        if Path(one.output) == output:
                            taken = await _some_groups(one, taken)
            await asyncio.sleep(0.2)


async def _some_groups(run: RemoteRun, taken: int) -> int:
    """The cursor after the next few groups, which are taken."""
    async with aclosing(run.groups(taken, timeout=BOUND_S)) as groups:
        async for group in groups:
            taken = group.cursor
            if taken % 4 == 0:
                break
    return taken


@asynccontextmanager
async def scene(folder: Path, binary: str) -> AsyncIterator[Stage]:
    """All of it, under load, once Prometheus has scraped every process."""
    began = time.time()
    policy = Policy()
    vllm = FakeVllm(
        template="drops",
        weights="3",
        metrics=_VLLM_METRICS,
        default=calls("add", '{"item": "apple"}', reasoning="hm"),
    )
    async with AsyncExitStack() as stack:
        enter = stack.enter_async_context
        endpoints = [await enter(FakeEndpoint(default=policy)) for _ in range(2)]
        await enter(vllm)
        kubernetes = await enter(answering())
        path = folder / "mesh.yaml"
        http_sd = free_address()
        urls = [one.url for one in endpoints]
        path.write_text(yaml.safe_dump(_configuration(folder, urls, kubernetes.url, http_sd)))
        config = load_config([path], [], MeshConfig)
        mesh = await enter(up(config))
        discovery = mesh.address_of("discovery")
        # The mesh is plain; this process, of one model service, has a certificate to show.
        authority = Authority(folder)
        Credentials(authority.tls(authority.issue("services")))
        exact = Retokenising(
            ModelConfig(
                backend="vllm",
                url=vllm.url,
                model="toy",
                side_data=SideDataConfig(path=str(folder / "side-data")),
            ),
            "exact",
            "model-exact-here",
        )
        await enter(serving(exact, ServeOptions(discovery_address=discovery)))
        relay = next(one.address for one in mesh.infos if one.kind == "relay")
        await enter(dial_out(relay, "away", ScriptedBackend(["Done."])))
        spare, spare_address = await enter(_serving(path, discovery))
        agents = {one.name: one.address for one in mesh.infos if one.kind == "agent"}
        await enter(_xds_client(discovery))
        sandboxes = asyncio.create_task(_use_sandboxes(mesh.address_of("sandbox")))
        stack.push_async_callback(_cancelled, sandboxes)

        rules = folder / "rules.yaml"
        rules.write_text(rules_text(TIMES))
        collector = free_address()
        watching = prometheus(
            http_sd, binary, rules=rules, interval_s=_SCRAPE_S, collector_at=collector
        )
        server = Server((await enter(watching)).address)
        stage = Stage(folder, policy, kubernetes, exact, server, agents, spare, began)
        serve_metrics = ["--metrics-port", collector.rpartition(":")[2]]
        output = await enter(
            stage.collecting(
                "mixed", [agents["tool_loop"], spare_address], *serve_metrics,
                "--stream", "--num-repeats", "2", "--concurrency", "16", "--starts-per-s", "12",
                "--share", "code=0.3",  # whose sandboxes take most of the processors' time
                environments="shop math code llm_judge",
            )
        )  # fmt: skip
        trainer = asyncio.create_task(stage.train(output))
        stack.push_async_callback(_cancelled, trainer)
        await enter(stage.collecting("exact", [agents["exact"]], "--starts-per-s", "4"))
        program = [agents["program"]]
        await enter(
            stage.collecting("program", program, "--starts-per-s", "2", environments="llm_judge")
        )
        # Those of `up`, the model service here, the spare agent and the collector.
        expected = len(mesh.infos) + 3
        await until(lambda: len(server.now("up == 1")) == expected, f"{expected} targets")
        yield stage


def _configuration(folder: Path, urls: list[str], kubernetes: str, http_sd: str) -> dict[str, Any]:
    policy = {"backend": "chat", "urls": urls, "model": "fake", "max_retries": 1}
    cache = {"path": str(folder / "cache"), "any_temperature": True}
    shop = ROOT / "examples" / "first_environment" / "shop.py"
    idle = {"session_idle_s": 20}
    return {
        "models": {
            # Streamed, so that there is a first token.
            "policy": {**policy, "max_concurrency": 12, "options": {"keep_aborted": True}},
            "judge": {**policy, "cache": cache},
        },
        "environments": {
            "shop": {"use": f"{shop}:Shop", **idle},
            "math": {
                "use": "math",
                "options": {"judge_workers": 1, "judge_timeout_s": 0.5},
                **idle,
            },
            "code": {"use": "code", "options": {"concurrency": 1}, **idle},
            "llm_judge": {"use": "llm_judge", **idle},
        },
        "sandboxes": {
            "boxes": {
                "backend": "tests.support.directory_sandboxes:DirectoryBackend",
                "options": {"folder": str(folder / "boxes")},
            },
        },
        "relays": {"door": {}},
        "agents": {
            "tool_loop": {"max_steps": 3},
            "narrow": {"max_steps": 3, "collect": {"capacity": 1}},
            # Calls the model through the gateway.
            "program": {
                "use": "program",
                "options": {"function": "tests.observe.asking:ask", "in_process": True},
            },
            "exact": {
                "max_steps": 3,
                "capture_tokens": True,
                "models": {"policy": "exact"},
                # The template drops the reasoning of earlier calls: forks, which a panel shows.
                "append_only": False,
            },
        },
        "defaults": {"environment": "shop"},
        "mesh": {"drain_s": 2},
        "discovery": {
            "backend": "kubernetes",
            "kubernetes": {"server": kubernetes, "namespace": "lab", "wait_s": 2},
            "xds": True,
            "http_sd": http_sd,
        },
    }


async def _use_sandboxes(address: str) -> None:
    """Runs a program that writes too much in a sandbox, and then the same again, for ever."""
    directory = PeerDirectory()
    try:
        peer: Any = directory.plain_peer(address, SANDBOX_SERVICE)
        while True:
            request = sandbox_pb2.CreateSandboxRequest(request_id=new_id())
            box = Box(peer, await peer.CreateSandbox(request, timeout=TIMEOUT))
            await box.exec("head", "-c", "2000", "/dev/zero", stdout_bytes=1000)
            await box.end()
            await asyncio.sleep(0.2)
    finally:
        await directory.close()


@asynccontextmanager
async def _serving(config: Path, discovery: str) -> AsyncIterator[tuple[Process, str]]:
    """One more instance of the agent, which may be killed."""
    process = await asyncio.create_subprocess_exec(
        *_GYM, "serve", "agent", "tool_loop", "--config", config, "--discovery", discovery,
        "--instance", "spare", "--json",
        stdin=DEVNULL, stdout=PIPE, stderr=DEVNULL, start_new_session=True,
    )  # fmt: skip
    assert process.stdout is not None
    try:
        async with asyncio.timeout(BOUND_S):
            said = await process.stdout.readline()
        yield process, json.loads(said)["address"]
    finally:
        await _killed(process)


@asynccontextmanager
async def _xds_client(discovery: str) -> AsyncIterator[None]:
    """A client that follows the agents' endpoints, and refuses its first listeners."""
    async with raw_stream(discovery) as call:
        await call.write(request(LISTENER, ["agent.tool_loop"]))
        offered = await read(call)
        refusal = status_pb2.Status(code=3, message="not this one")
        await call.write(
            request(
                LISTENER,
                ["agent.tool_loop"],
                response_nonce=offered.nonce,
                error_detail=refusal,
            )
        )
        await call.write(request(ENDPOINTS, ["agent.tool_loop"]))
        reader = asyncio.create_task(_acknowledge(call))
        try:
            yield
        finally:
            await _cancelled(reader)


async def _acknowledge(call: Any) -> None:
    while True:
        given = await call.read()
        await call.write(
            request(
                given.type_url,
                ["agent.tool_loop"],
                version_info=given.version_info,
                response_nonce=given.nonce,
            )
        )


async def _cancelled(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def _killed(process: Process) -> None:
    if process.returncode is None:
        process.send_signal(signal.SIGKILL)
        await process.wait()
