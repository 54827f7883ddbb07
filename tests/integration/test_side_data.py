"""Side data from an engine's answer to a trainer's array, carried by reference in between."""

from __future__ import annotations

import shutil
from array import array
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from gymmesh.errors.v1 import errors_pb2
from gymmesh.model.v1 import model_pb2
from gymmesh_client.side_data import SideDataUnreadable, fetch_side_data, read_side_data
from gymmesh_model import ModelConfig, ModelService
from gymmesh_model.config import SideDataConfig
from gymmesh_model.tokens import SideRows
from gymmesh_runtime.binding import Binding
from gymmesh_runtime.context import CallContext
from gymmesh_runtime.errors import MeshError
from gymmesh_runtime.peers import PeerDirectory
from gymmesh_runtime.wire.server import MeshServer
from gymmesh_trainers import (
    Generation,
    Rollout,
    SamplingParams,
    TokenBackend,
    TrainerCollector,
)
from tests.support import experts
from tests.support.dialogue import Dialogue, result, user
from tests.support.token_servers import TokenServer, ToyTokenizer
from tests.support.vllm_server import END, FakeVllm, calls, encode, says

BOUND_S = 120.0
MODEL = "gymmesh.model.v1.ModelService"
TOY = "tests.support.token_servers:toy_tokenizer"
TOOL = {"type": "function", "name": "add", "parameters": {"type": "object"}, "strict": None}
LONG = "it is five " * 300  # so that its rows are no longer small
SCRIPT = [calls("add", '{"a":2}', text=LONG), says(LONG), says(LONG)]
SHAPE = [experts.LAYERS, experts.TOP_K]


@asynccontextmanager
async def serving(
    server: TokenServer | FakeVllm, folder: Path, *, asks: bool = True, **config: Any
) -> AsyncIterator[ModelService]:
    """A model service over a server that gives routed experts."""
    options: dict[str, Any] = {"routed_experts": asks}
    if isinstance(server, FakeVllm):
        backend = "vllm"
    elif server.kind == "vllm":
        backend, options["tokenizer"] = "vllm_tokens", TOY
    else:
        backend, options = "sglang", {"tokenizer": TOY, "routed_experts": SHAPE if asks else None}
    given = ModelConfig(
        backend=backend,
        url=server.url,
        model="toy",
        max_retries=0,
        options=options,
        side_data=SideDataConfig(path=str(folder)),
        **config,
    )
    service = ModelService(given, "policy", "p-0")
    await service.open(PeerDirectory())
    try:
        yield service
    finally:
        await service.close()


class Asking(Dialogue):
    """A conversation whose caller wants routed experts, and says which rows it has."""

    def request(self, *new: Any, **how: Any) -> model_pb2.CreateResponseRequest:
        request = super().request(*new, **how)
        request.capture.side_data.append("routed_experts")
        if request.conversation.HasField("prefix_tokens"):
            rows = request.conversation.prefix_tokens.side_data_rows
            rows["routed_experts"] = len(self.tokens) - 1
        return request

    def check(self) -> None:
        """The calls' rows follow one another and are those of their tokens."""
        known = 0
        for prompt, output, capture in zip(self.prompts, self.outputs, self.captures, strict=True):
            (side,) = capture.side_data
            tokens = prompt + output
            assert side.first_token == known
            assert side.first_token + side.tokens == len(tokens) - 1
            assert side.dtype in ("uint8", "int32")
            rows = experts.rows(tokens, known, len(tokens) - 1)
            found = read_side_data(side)
            assert (found[::4] if side.dtype == "int32" else found) == rows
            assert (list(side.shape), side.data) == (SHAPE, b"")
            known = len(tokens) - 1


def a_server(kind: str) -> TokenServer | FakeVllm:
    if kind == "chat":
        return FakeVllm(experts=True, script=list(SCRIPT))
    return TokenServer(kind, experts=True, script=list(SCRIPT))  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", ["vllm", "sglang", "chat"])
async def test_each_call_carries_the_rows_that_are_new(kind: str, tmp_path: Path) -> None:
    async with a_server(kind) as server, serving(server, tmp_path) as service:
        about = await service.GetModel(model_pb2.GetModelRequest(), CallContext("GetModel"))
        assert list(about.capabilities.side_data) == ["routed_experts"]
        talk = Asking(service, tools=[TOOL])
        reply = await talk.ask(user("what is two and three"))
        await talk.ask(result(reply, "five"))
        await talk.ask(user("and now"))
        talk.check()
        # The references are small, whatever the rows are.
        assert all(one.side_data[0].ByteSize() < 400 for one in talk.captures)


@pytest.mark.parametrize("kind", ["vllm", "sglang", "chat"])
async def test_a_conversation_sent_whole_again_goes_on_from_its_rows(
    kind: str, tmp_path: Path
) -> None:
    server = a_server(kind)
    server.script = [says(LONG) for _ in range(3)]
    async with server, serving(server, tmp_path, max_conversations=1) as service:
        talk, other = Asking(service), Asking(service)
        await talk.ask(user("a"))
        request = other.request(user("else"))
        request.conversation.id = "r2/1"
        await service.CreateResponse(request, CallContext("CreateResponse"))
        await talk.ask(user("b"), whole=True)
        talk.check()


@pytest.mark.parametrize("kind", ["vllm", "sglang", "chat"])
async def test_a_server_that_does_not_give_them_fails_the_call(kind: str, tmp_path: Path) -> None:
    server = a_server(kind)
    server.experts = False
    async with server, serving(server, tmp_path) as service:
        with pytest.raises(MeshError, match="--enable-return-routed-experts") as caught:
            await Asking(service).ask(user("a"))
        assert caught.value.reason == errors_pb2.ERROR_REASON_MODEL_ANSWER_INVALID


@pytest.mark.parametrize("kind", ["vllm", "sglang", "chat"])
async def test_rows_that_nobody_asked_for_are_not_stored(kind: str, tmp_path: Path) -> None:
    async with a_server(kind) as server, serving(server, tmp_path) as service:
        talk = Dialogue(service)
        reply = await talk.ask(user("a"))
    assert not talk.captures[0].side_data
    assert not list(tmp_path.rglob("*/*"))
    assert b"NUMPY" not in reply.SerializeToString()


async def test_a_streamed_call_that_wants_them_is_made_whole(tmp_path: Path) -> None:
    async with a_server("chat") as server, serving(server, tmp_path) as service:
        talk = Asking(service)
        request = model_pb2.StreamResponseRequest(call=talk.request(user("a")))
        frames = service.StreamResponse(request, CallContext("StreamResponse"))
        (completed,) = [one.completed async for one in frames if one.HasField("completed")]
        talk.take(completed, user("a"))
        talk.check()


async def test_a_service_without_a_folder_gives_none(tmp_path: Path) -> None:
    async with TokenServer("vllm", experts=True) as server:
        options = {"tokenizer": TOY, "routed_experts": True}
        config = ModelConfig(backend="vllm_tokens", url=server.url, options=options)
        service = ModelService(config, "policy", "p-0")
        await service.open(PeerDirectory())
        try:
            about = await service.GetModel(model_pb2.GetModelRequest(), CallContext("GetModel"))
            assert not about.capabilities.side_data
            talk = Asking(service)
            await talk.ask(user("a"))
            assert not talk.captures[0].side_data
            read = service.ReadSideData(
                model_pb2.ReadSideDataRequest(digest=bytes(32)), CallContext("ReadSideData")
            )
            with pytest.raises(MeshError) as caught:
                await anext(read)
            assert caught.value.reason == errors_pb2.ERROR_REASON_NOT_OFFERED
        finally:
            await service.close()


@asynccontextmanager
async def reached(*services: ModelService) -> AsyncIterator[list[Any]]:
    """The services over gRPC."""
    servers = [MeshServer([Binding(MODEL, service)]) for service in services]
    directory = PeerDirectory()
    try:
        addresses = [f"127.0.0.1:{await server.start('127.0.0.1', 0)}" for server in servers]
        yield [directory.plain_peer(address, MODEL) for address in addresses]
    finally:
        await directory.close()
        for server in servers:
            await server.stop(0.1)


async def test_a_reader_that_does_not_see_the_folder_asks_the_instances(tmp_path: Path) -> None:
    async with (
        a_server("vllm") as server,
        serving(server, tmp_path / "one") as one,
        serving(server, tmp_path / "other") as other,
        reached(one, other) as peers,
    ):
        talk = Asking(other)
        await talk.ask(user("a"))
        (side,) = talk.captures[0].side_data
        path = await fetch_side_data(peers, side, tmp_path / "here")
        assert path.read_bytes() == read_side_data(side)
        shutil.rmtree(tmp_path / "other")
        assert read_side_data(side, [tmp_path / "here"]) == path.read_bytes()
        assert await fetch_side_data(peers, side, tmp_path / "here") == path  # kept
        with pytest.raises(MeshError) as caught:
            await fetch_side_data(peers, side, tmp_path / "elsewhere")
        assert caught.value.reason == errors_pb2.ERROR_REASON_SIDE_DATA_NOT_FOUND
        assert not [one for one in (tmp_path / "elsewhere").rglob("*") if one.is_file()]


async def test_numbers_that_differ_from_their_digest_are_not_kept(tmp_path: Path) -> None:
    async with (
        a_server("vllm") as server,
        serving(server, tmp_path / "one") as one,
        reached(one) as peers,
    ):
        talk = Asking(one)
        await talk.ask(user("a"))
        (side,) = talk.captures[0].side_data
        stored = Path(urlsplit(side.location).path)
        stored.write_bytes(b"\xff" + stored.read_bytes()[1:])
        with pytest.raises(SideDataUnreadable):
            await fetch_side_data(peers, side, tmp_path / "here")
        assert not [one for one in (tmp_path / "here").rglob("*") if one.is_file()]


# -- a trainer -----------------------------------------------------------------------------------


async def with_values(prompt: list[int], params: SamplingParams) -> Generation:
    """An engine of a program: a value for each token that it read."""
    ids = [*encode("it is five " * 200), END]
    total = len(prompt) + len(ids) - 1
    data = array("f", [float(place) for place in range(total)]).tobytes()
    rows = SideRows("values", "float32", (), 0, data)
    return Generation(ids, [-0.5] * len(ids), side_data=[rows])


def reward(answer: str, wanted: str) -> bool:
    """Whether the answer has it."""
    return wanted in answer


async def collected(folder: Path, **settings: Any) -> tuple[TrainerCollector, Rollout]:
    model = TokenBackend(ToyTokenizer(), with_values, side_data=["values"])
    collector = TrainerCollector(
        reward, model=model, side_data=["values"], side_data_path=folder, **settings
    )
    async with collector:
        rollout = await collector.one({"prompt": "what is it", "wanted": "five"})
        assert isinstance(rollout, Rollout)
        await collector.fetch_side_data(rollout)
    return collector, rollout


async def test_a_trainer_reads_what_its_engine_gave(tmp_path: Path) -> None:
    _, rollout = await collected(tmp_path)
    (sample,) = rollout.samples
    values = sample.side_data["values"]
    assert values.array().tolist() == [float(place) for place in range(len(sample) - 1)]
    (side,) = values.references
    assert side.location.startswith("file:")
    assert not side.data


async def test_rows_of_a_run_have_the_references_and_a_resumed_step_reads_them(
    tmp_path: Path,
) -> None:
    tasks = [{"task_id": "one", "prompt": "what is it", "wanted": "five"}]
    settings: dict[str, Any] = {
        "side_data": ["values"],
        "side_data_path": tmp_path / "side",
        "output": tmp_path / "rows.jsonl",
        "repeats": 2,
    }
    found = []
    for resume in (False, True):
        model = TokenBackend(ToyTokenizer(), with_values, side_data=["values"])
        collector = TrainerCollector(reward, model=model, resume=resume, **settings)
        async with collector, collector.step(tasks, number=1) as step:
            groups = [group async for group in step]
        (group,) = groups
        for rollout in group.rollouts:
            (sample,) = rollout.samples
            found.append(sample.side_data["values"].read())
    assert len(found) == 4
    assert len(set(map(bytes, found))) == 1
    assert (tmp_path / "rows.jsonl").stat().st_size < 100_000


async def test_a_row_that_the_engine_must_give_and_does_not_fails_the_rollout(
    tmp_path: Path,
) -> None:
    async def without(prompt: list[int], params: SamplingParams) -> Generation:
        return Generation([*encode("five"), END], [-0.5] * (len(encode("five")) + 1))

    model = TokenBackend(ToyTokenizer(), without, side_data=["values"])
    collector = TrainerCollector(
        reward, model=model, side_data=["values"], side_data_path=tmp_path, max_attempts=1
    )
    async with collector:
        failed = await collector.one({"prompt": "what is it", "wanted": "five"})
    assert not isinstance(failed, Rollout)
    assert failed.reason == "MODEL_ANSWER_INVALID"
    assert "has no values" in failed.why
