"""Weights are loaded on every endpoint, or nothing is announced and the error says where."""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from gymmesh.model.v1 import model_pb2
from gymmesh_client import UserError
from gymmesh_model import ModelConfig, ModelService
from gymmesh_runtime.context import CallContext
from gymmesh_runtime.errors import MeshError
from gymmesh_runtime.peers import PeerDirectory
from gymmesh_trainers.weights import (
    PolicyServices,
    PushFailed,
    WeightsEndpoint,
    WeightsPush,
    adapter_name,
    push_weights,
)
from gymmesh_trainers.weights.names import older_adapters
from tests.support.weights_server import WeightsServer

KINDS = pytest.mark.parametrize("kind", ["vllm", "sglang"])


class Peer:
    """A model service without a connection. refuses: raised by the next call of that name."""

    def __init__(self, service: ModelService) -> None:
        self.service = service
        self.refuses: dict[str, MeshError] = {}
        self.calls: list[Any] = []

    async def GetModel(self, request: Any, timeout: float) -> Any:
        return await self.service.GetModel(request, CallContext("GetModel"))

    async def SetWeightsVersion(self, request: Any, timeout: float) -> Any:
        self.calls.append(request)
        if not request.HasField("loading_s") and "announce" in self.refuses:
            raise self.refuses.pop("announce")
        return await self.service.SetWeightsVersion(request, CallContext("SetWeightsVersion"))

    async def about(self) -> model_pb2.GetModelResponse:
        return await self.service.GetModel(model_pb2.GetModelRequest(), CallContext("GetModel"))


class Fleet:
    """Two servers, and two model services that call them."""

    def __init__(self, servers: list[WeightsServer], peers: list[Peer]) -> None:
        self.servers = servers
        self.peers = peers

    async def push(self, folder: Path, version: int, **options: Any) -> WeightsPush:
        key = options.pop("key", "")
        urls = [(one.url, one.kind) for one in self.servers]
        return await push_weights(
            folder,
            version,
            endpoints=[WeightsEndpoint(url, kind, key) for url, kind in urls],
            services=PolicyServices({f"m{at}": one for at, one in enumerate(self.peers)}),
            **{"timeout_s": 60.0, **options},
        )

    async def announced(self) -> list[tuple[int, str] | None]:
        found = [await one.about() for one in self.peers]
        return [
            (one.weights_version, one.adapter) if one.HasField("weights_version") else None
            for one in found
        ]

    def is_held(self) -> list[bool]:
        return [one.service._weights.is_loading() for one in self.peers]


@asynccontextmanager
async def fleet(kind: Any = "vllm", backend: str = "chat", **server: Any) -> AsyncIterator[Fleet]:
    async with AsyncExitStack() as stack:
        servers = [WeightsServer(kind, **server) for _ in range(2)]
        for one in servers:
            await stack.enter_async_context(one)
        peers = []
        for at in range(2):
            config = ModelConfig(backend=backend, url=f"{servers[0].url}/v1", model="base")
            service = ModelService(config, "policy", f"p-{at}")
            await service.open(PeerDirectory())
            stack.push_async_callback(service.close)
            peers.append(Peer(service))
        yield Fleet(servers, peers)


@pytest.fixture
def weights(tmp_path: Path) -> Path:
    folder = tmp_path / "step-1"
    folder.mkdir()
    (folder / "model.safetensors").touch()
    return folder


@pytest.fixture
def adapter(tmp_path: Path) -> Path:
    folder = tmp_path / "adapter-1"
    folder.mkdir()
    (folder / "adapter_model.safetensors").touch()
    (folder / "adapter_config.json").write_text("{}")
    return folder


# -- servers that the model services call -----------------------------------------------------


@pytest.mark.parametrize("name", ["", "policy"])
async def test_a_forgotten_server_is_named_before_anything_is_touched(
    weights: Path, adapter: Path, name: str
) -> None:
    async with fleet() as mesh:
        called = mesh.servers.pop(0)
        with pytest.raises(PushFailed) as failed:
            await mesh.push(adapter if name else weights, 4, adapter=name)
        assert failed.value.step == "check"
        assert f"do not include {called.url}, which model 'policy' calls" in str(failed.value)
        assert all(name in str(failed.value) for name in ("m0", "m1"))
        assert [one.state for one in failed.value.push.endpoints] == ["unchanged"]
        assert await mesh.announced() == [None, None]
        assert mesh.is_held() == [False, False]
        # The same server by another URL, such as a load balancer's.
        done = await mesh.push(adapter if name else weights, 4, adapter=name, aliases=[called.url])
        assert done.announced == {"m0": None, "m1": None}


@pytest.mark.parametrize(
    ("listed", "lacks"),
    [
        ([], []),
        (["http://gpu-0:8000", "http://127.0.0.1:8001/v1"], []),
        (["http://someone:hunter2pass@GPU-0:8000/v1/", "http://localhost:8001"], []),
        (["http://gpu-0:8000"], ["http://127.0.0.1:8001"]),
        (
            ["http://gpu-0", "https://127.0.0.1:8001"],
            ["http://gpu-0:8000", "http://127.0.0.1:8001"],
        ),
        (["gpu-0:8000", ""], ["http://gpu-0:8000", "http://127.0.0.1:8001"]),
    ],
)
async def test_a_model_service_compares_the_servers_that_it_calls(
    listed: list[str], lacks: list[str]
) -> None:
    urls = ["http://someone:hunter2pass@gpu-0:8000/v1", "http://localhost:8001/v1"]
    service = ModelService(ModelConfig(backend="chat", urls=urls, model="base"), "policy", "p-0")
    await service.open(PeerDirectory())
    request = model_pb2.SetWeightsVersionRequest(version=4, endpoints=listed)
    try:
        if lacks:
            with pytest.raises(
                MeshError, match=f"do not include {', '.join(lacks)}, which"
            ) as refused:
                await service.SetWeightsVersion(request, CallContext("SetWeightsVersion"))
            assert "hunter2pass" not in refused.value.message
        else:
            await service.SetWeightsVersion(request, CallContext("SetWeightsVersion"))
        assert service._weights.version == (None if lacks else 4)
    finally:
        await service.close()


# -- full weights -----------------------------------------------------------------------------


@KINDS
@pytest.mark.parametrize("in_flight", ["continue", "abort"])
async def test_full_weights_are_loaded_and_announced(
    weights: Path, kind: str, in_flight: str
) -> None:
    async with fleet(kind) as mesh:
        held: list[list[bool]] = []

        async def note(path: str) -> None:
            held.append(mesh.is_held())

        mesh.servers[1].before = note
        done = await mesh.push(weights, 4, in_flight=in_flight)
        assert [one.state for one in done.endpoints] == ["loaded", "loaded"]
        assert done.announced == {"m0": None, "m1": None}
        assert await mesh.announced() == [(4, "")] * 2
        for server in mesh.servers:
            assert (server.weights, server.version) == (str(weights), "4")
            assert not server.is_paused
            keeps = "keep" if kind == "vllm" else "retract"
            assert server.mode == ("abort" if in_flight == "abort" else keeps)
        # Calls wait from before the pause until the announcement, which comes before the end of it.
        assert held[:-1] == [[True, True]] * (len(held) - 1)
        assert held[-1] == [False, False]
        again = await mesh.push(weights, 5)
        assert again.announced == {"m0": 4, "m1": 4}


def test_a_failure_survives_pickling() -> None:
    failed = PushFailed(WeightsPush(1, "", []), "check", "m0: is too old")
    again = pickle.loads(pickle.dumps(failed))
    assert (str(again), again.step) == (str(failed), "check")


async def test_the_folders_path_at_the_endpoints_may_be_another(weights: Path) -> None:
    async with fleet() as mesh:
        await mesh.push(weights, 1, folder_there="/mnt/step-1")
        assert [one.weights for one in mesh.servers] == ["/mnt/step-1"] * 2


async def test_an_endpoint_that_cannot_pause_leaves_all_as_it_was(weights: Path) -> None:
    async with fleet() as mesh:
        mesh.servers[1].fails["/pause"] = (500, "no")
        with pytest.raises(PushFailed, match=r"version 1 failed at step pause") as caught:
            await mesh.push(weights, 1)
        assert [one.state for one in caught.value.push.endpoints] == ["unchanged"] * 2
        assert caught.value.push.endpoints[1].cause == "/pause: HTTP 500: no"
        assert not any(one.is_paused or one.weights for one in mesh.servers)
        assert await mesh.announced() == [None, None]
        assert mesh.is_held() == [False, False]


async def test_an_endpoint_that_is_not_there_is_not_paused(weights: Path, adapter: Path) -> None:
    async with fleet() as mesh:
        await mesh.servers[1].__aexit__()
        with pytest.raises(PushFailed, match="/pause cannot be reached") as caught:
            await mesh.push(weights, 1)
        assert not any(one.is_paused for one in caught.value.push.endpoints)
        assert "paused" not in str(caught.value)
        assert "/resume" not in str(caught.value)
        with pytest.raises(PushFailed, match="cannot be reached") as caught:
            await mesh.push(adapter, 1, adapter="a")
        assert [one.state for one in caught.value.push.endpoints] == ["unchanged"] * 2
        assert mesh.servers[0].adapters == {}


@pytest.mark.parametrize(
    "path", ["/collective_rpc", "/reset_prefix_cache", "/update_weight_version"]
)
async def test_a_part_of_the_endpoints_is_not_announced_and_stays_paused(
    weights: Path, path: str
) -> None:
    async with fleet() as mesh:
        await mesh.push(weights, 1)
        mesh.servers[1].fails[path] = (500, "out of memory")
        with pytest.raises(
            PushFailed, match=r"step load: .*out of memory.*other servers: "
        ) as caught:
            await mesh.push(weights, 2)
        push = caught.value.push
        assert [one.state for one in push.endpoints] == ["loaded", "unknown"]
        assert [one.is_paused for one in push.endpoints] == [True, True]
        assert push.announced == {}
        assert [one.is_paused for one in mesh.servers] == [True, True]
        assert await mesh.announced() == [(1, "")] * 2
        # The same push again mends it.
        done = await mesh.push(weights, 2)
        assert [one.state for one in done.endpoints] == ["loaded", "loaded"]
        assert not any(one.is_paused for one in mesh.servers)
        assert await mesh.announced() == [(2, "")] * 2


async def test_a_model_service_that_is_not_told_leaves_endpoints_paused(weights: Path) -> None:
    async with fleet() as mesh:
        from gymmesh.errors.v1 import errors_pb2

        gone = MeshError(errors_pb2.ERROR_REASON_PEER_UNAVAILABLE, "gone")
        mesh.peers[1].refuses["announce"] = gone
        with pytest.raises(PushFailed, match=r"step announce: .*m1: PEER_UNAVAILABLE") as caught:
            await mesh.push(weights, 1)
        assert caught.value.push.announced == {"m0": None}
        assert all(one.is_paused for one in mesh.servers)
        await mesh.push(weights, 1)
        assert not any(one.is_paused for one in mesh.servers)
        assert await mesh.announced() == [(1, "")] * 2


async def test_an_endpoint_that_does_not_go_on_is_told(weights: Path) -> None:
    async with fleet() as mesh:
        mesh.servers[0].fails["/resume"] = (500, "stuck")
        with pytest.raises(PushFailed, match=r"step resume: ") as caught:
            await mesh.push(weights, 1)
        assert [one.is_paused for one in caught.value.push.endpoints] == [True, False]
        assert caught.value.push.announced == {"m0": None, "m1": None}


async def test_each_wait_is_bounded(weights: Path) -> None:
    async with fleet() as mesh:
        mesh.servers[1].hangs.add("/pause")
        with pytest.raises(PushFailed, match="the push timed out"):
            await mesh.push(weights, 1, timeout_s=0.5)
        assert not mesh.servers[0].is_paused


async def test_what_a_server_needs_is_told(weights: Path, adapter: Path) -> None:
    async with fleet(is_dev=False, has_lora=False) as mesh:
        with pytest.raises(PushFailed, match="start the server with VLLM_SERVER_DEV_MODE=1"):
            await mesh.push(weights, 1)
        with pytest.raises(PushFailed, match="VLLM_ALLOW_RUNTIME_LORA_UPDATING=1"):
            await mesh.push(adapter, 1, adapter="a")


async def test_a_server_that_names_no_versions_is_used_all_the_same(weights: Path) -> None:
    async with fleet() as mesh:
        for one in mesh.servers:
            one.fails["/update_weight_version"] = (404, "Not Found")
        done = await mesh.push(weights, 1)
        assert done.announced == {"m0": None, "m1": None}


async def test_the_key_is_sent_and_never_shown(weights: Path) -> None:
    async with fleet(key="secret-key") as mesh:
        with pytest.raises(PushFailed, match="HTTP 401") as caught:
            await mesh.push(weights, 1, key="wrong")
        assert "wrong" not in str(caught.value)
        for one in mesh.servers:
            one.fails["/pause"] = (500, "secret-key is wrong")
        with pytest.raises(PushFailed, match="… is wrong"):
            await mesh.push(weights, 1, key="secret-key")
        await mesh.push(weights, 1, key="secret-key")
    assert "secret-key" not in repr(WeightsEndpoint("http://a", "vllm", "secret-key"))


async def test_a_version_that_is_over_touches_nothing(weights: Path, adapter: Path) -> None:
    async with fleet() as mesh:
        await mesh.push(weights, 5)
        for one in mesh.servers:
            one.calls.clear()
        with pytest.raises(PushFailed, match=r"step check: .*m0 already has version 5"):
            await mesh.push(weights, 4)
        with pytest.raises(PushFailed, match="already has version 5"):
            await mesh.push(adapter, 5, adapter="a")
        assert not any(
            "pause" in path or "load" in path for one in mesh.servers for path in one.calls
        )
        assert await mesh.announced() == [(5, "")] * 2


# -- adapters ---------------------------------------------------------------------------------


@KINDS
@pytest.mark.parametrize("in_flight", ["continue", "abort"])
async def test_an_adapters_name_has_its_version(adapter: Path, kind: str, in_flight: str) -> None:
    async with fleet(kind) as mesh:
        await mesh.push(adapter, 1, adapter="a", in_flight=in_flight)
        done = await mesh.push(adapter, 2, adapter="a", in_flight=in_flight)
        assert done.adapter == "a@2"
        assert done.unloaded == ["a@1"]
        assert await mesh.announced() == [(2, "a@2")] * 2
        for server in mesh.servers:
            assert server.adapters == {"a@2": str(adapter)}
            assert not any("pause" in path for path in server.calls)
            aborted = [path for path in server.calls if "abort" in path]
            assert len(aborted) == (2 if in_flight == "abort" else 0)
        assert mesh.is_held() == [False, False]


async def test_an_adapter_in_use_stays_until_no_call_names_it(adapter: Path) -> None:
    async with fleet() as mesh:
        await mesh.push(adapter, 1, adapter="a")
        clock = mesh.peers[1].service._weights
        call = clock.begin()
        done = await mesh.push(adapter, 2, adapter="a")
        assert (done.unloaded, done.in_use) == ([], ["a@1"])
        assert all("a@1" in one.adapters for one in mesh.servers)
        clock.end(call)
        done = await mesh.push(adapter, 3, adapter="a")
        assert (done.unloaded, done.in_use) == (["a@1", "a@2"], [])
        assert all(list(one.adapters) == ["a@3"] for one in mesh.servers)


async def test_an_adapter_that_one_endpoint_lacks_is_taken_back(adapter: Path) -> None:
    async with fleet() as mesh:
        await mesh.push(adapter, 1, adapter="a")
        mesh.servers[1].fails["/v1/load_lora_adapter"] = (404, "No adapter found")
        with pytest.raises(PushFailed, match=r"a@2 failed at step load: .*No adapter") as caught:
            await mesh.push(adapter, 2, adapter="a")
        assert [one.state for one in caught.value.push.endpoints] == ["unchanged"] * 2
        assert f"other servers: {mesh.servers[0].url} (unchanged)." in str(caught.value)
        assert [list(one.adapters) for one in mesh.servers] == [["a@1"], ["a@1"]]
        assert await mesh.announced() == [(1, "a@1")] * 2
        await mesh.push(adapter, 2, adapter="a")
        assert await mesh.announced() == [(2, "a@2")] * 2


async def test_a_backend_without_adapters_is_told_beforehand(adapter: Path) -> None:
    async with fleet(backend="responses") as mesh:
        with pytest.raises(PushFailed, match="backend 'responses', which can't use adapters"):
            await mesh.push(adapter, 1, adapter="a")
        assert not any(one.calls for one in mesh.servers)


async def test_nothing_is_loaded_while_a_call_may_be_at_an_endpoint(weights: Path) -> None:
    """Such as one that was on its way when the endpoint ended all others."""
    async with fleet() as mesh:
        clock = mesh.peers[1].service._weights
        call = clock.begin()
        with pytest.raises(PushFailed, match=r"step abort: some calls did not end in time"):
            await mesh.push(weights, 1, in_flight="abort", timeout_s=0.5)
        assert not any(one.weights or one.is_paused for one in mesh.servers)
        aborts: list[str] = []

        async def third(path: str) -> None:
            if path == "/abort_requests":
                aborts.append(path)
            if len(aborts) == 3:
                clock.end(call)
            assert path != "/collective_rpc" or len(aborts) >= 3

        mesh.servers[0].before = third
        await mesh.push(weights, 1, in_flight="abort")
        assert len(aborts) >= 3
        assert all(one.weights for one in mesh.servers)


async def test_calls_that_wait_are_not_at_an_endpoint(weights: Path) -> None:
    async with fleet() as mesh:
        clock = mesh.peers[0].service._weights
        call = clock.begin()
        waiting: list[asyncio.Task[None]] = []

        async def aborted(path: str) -> None:
            if path == "/pause" and not waiting:
                waiting.append(asyncio.create_task(call.before_request(again=True)))

        mesh.servers[0].before = aborted
        await mesh.push(weights, 7, in_flight="abort")
        await waiting[0]
        assert [one.version for one in call.seen] == [7]


async def test_a_cancelled_push_takes_back_what_it_can(weights: Path) -> None:
    async with fleet() as mesh:
        mesh.servers[1].hangs.add("/pause")
        came = asyncio.Event()

        async def note(path: str) -> None:
            came.set()

        mesh.servers[1].before = note
        pushing = asyncio.create_task(mesh.push(weights, 1))
        await came.wait()
        pushing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await pushing
        assert not mesh.servers[0].is_paused
        assert mesh.is_held() == [False, False]


# -- what cannot be meant ---------------------------------------------------------------------

WRONG: dict[str, tuple[Callable[[Path, Path], tuple[Path, dict[str, Any]]], str]] = {
    "no folder": (lambda full, lora: (full / "x", {}), "is not a folder"),
    "an adapter as weights": (lambda full, lora: (lora, {}), "is an adapter"),
    "weights as an adapter": (
        lambda full, lora: (full, {"adapter": "a"}),
        "no adapter_config.json",
    ),
    "a name": (lambda full, lora: (lora, {"adapter": "a b"}), "is not a valid name"),
    "a mode": (lambda full, lora: (full, {"in_flight": "stop"}), "must be 'continue' or 'abort'"),
    "a time": (lambda full, lora: (full, {"timeout_s": 0.0}), "timeout_s: must be"),
    "a wait": (lambda full, lora: (full, {"unload_wait_s": -1.0}), "unload_wait_s: must not"),
}


@pytest.mark.parametrize("name", WRONG)
async def test_what_cannot_be_meant_touches_nothing(
    weights: Path, adapter: Path, name: str
) -> None:
    make, words = WRONG[name]
    folder, options = make(weights, adapter)
    async with fleet() as mesh:
        with pytest.raises(UserError, match=words):
            await mesh.push(folder, 1, **options)
        assert not any(one.calls for one in mesh.servers)
        assert not any(one.calls for one in mesh.peers)


async def test_endpoints_and_services_are_needed(weights: Path, tmp_path: Path) -> None:
    push = partial(push_weights, weights, 1)
    with pytest.raises(UserError, match="endpoints: is empty"):
        await push(endpoints=[], services=PolicyServices({}))
    with pytest.raises(UserError, match="services: is empty"):
        await push(endpoints=[WeightsEndpoint("http://a")], services=PolicyServices({}))
    with pytest.raises(UserError, match="is not a URL"):
        WeightsEndpoint("gpu-0:8000")
    with pytest.raises(UserError, match="known: vllm, sglang"):
        WeightsEndpoint("http://gpu-0:8000", "tgi")  # type: ignore[arg-type]
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(UserError, match=r"has no \*.safetensors file"):
        await push_weights(
            empty, 1, endpoints=[WeightsEndpoint("http://a")], services=PolicyServices({"m": None})
        )


def test_which_adapters_are_older() -> None:
    loaded = ["a@1", "a@2", "a@3", "b@1", "a", "a@x", "other@a@1", "a@12"]
    assert older_adapters(loaded, "a", 3, {"a@2"}) == (["a@1", "a@12"], ["a@2"])
    assert adapter_name("policy.v-1_b", 0) == "policy.v-1_b@0"
