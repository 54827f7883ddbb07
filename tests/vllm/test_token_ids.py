"""A real vLLM called by token ids, of versions too that the other tests here need more than.

make test-vllm VLLM=0.24
"""

from __future__ import annotations

import asyncio
import struct
import sys
import urllib.request
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest

from gymmesh.model.v1 import tokens_pb2
from gymmesh_model import ModelConfig, ModelService
from gymmesh_model.backends.token_engines import VllmEngine
from gymmesh_model.backends.tokens_in import TokenBackend
from gymmesh_runtime.context import CallContext
from gymmesh_runtime.peers import PeerDirectory
from tests.support.dialogue import Dialogue, ids_of, user
from tests.vllm.serving import free_port, running
from tests.vllm.tiny import make_tiny

BOUND_S: Final = 300.0
ARGS: Final = ["--dtype", "float32", "--max-model-len", "2048", "--max-num-seqs", "8"]
RAW: Final = "raw_logprobs"


@dataclass(frozen=True)
class Server:
    """A running `vllm serve`."""

    url: str
    folder: Path
    mode: str


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("tiny")
    make_tiny(made)
    return made


@pytest.fixture(scope="module", params=["processed_logprobs", RAW])
def server(
    request: pytest.FixtureRequest,
    folder: Path,
    environment: dict[str, str],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Server]:
    port = free_port()
    log = tmp_path_factory.mktemp("log") / "vllm.log"
    command = [str(Path(sys.executable).with_name("vllm")), "serve", str(folder), *ARGS]
    command += ["--enforce-eager", "--host", "127.0.0.1", "--port", str(port)]
    command += ["--logprobs-mode", request.param]
    with running(command, f"http://127.0.0.1:{port}/health", log, environment):
        yield Server(f"http://127.0.0.1:{port}/v1", folder, request.param)


@asynccontextmanager
async def opened(server: Server, *, is_configured: bool = False) -> AsyncIterator[ModelService]:
    """A model at the server: of a configuration, or of a program's."""
    if is_configured:
        options = {"tokenizer": str(server.folder), "logprobs_mode": server.mode}
        config = ModelConfig(backend="vllm_tokens", url=server.url, options=options)
        service = ModelService(config, "policy", "p-0")
    else:
        import transformers

        tokenizer = transformers.AutoTokenizer.from_pretrained(server.folder)
        # Which log probabilities they are, is found out.
        backend = TokenBackend(tokenizer, VllmEngine(server.url))
        service = ModelService(ModelConfig(), "policy", "p-0", backend=backend)
    await service.open(PeerDirectory())
    try:
        yield service
    finally:
        await service.close()


def expected(folder: Path, prompt: list[int], output: list[int], temperature: float) -> list[float]:
    """The log probabilities of the output by transformers' own pass over the tokens."""
    import torch
    import transformers

    model: Any = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    with torch.no_grad():
        logits = model(torch.tensor([prompt + output])).logits[0, len(prompt) - 1 : -1]
    scores = torch.log_softmax(logits / temperature, dim=-1)
    found: list[float] = scores[range(len(output)), output].tolist()
    return found


@pytest.mark.parametrize("is_configured", [True, False])
async def test_three_turns_are_exact(server: Server, is_configured: bool) -> None:
    params = {"temperature": 1.3, "top_p": 1.0, "max_output_tokens": 24}
    async with asyncio.timeout(BOUND_S), opened(server, is_configured=is_configured) as service:
        talk = Dialogue(service, **params)
        for question in ("what is the other one", "and then", "in the end"):
            await talk.ask(user(question))
    wanted = tokens_pb2.LOGPROB_DISTRIBUTION_SAMPLING
    temperature = 1.3
    if server.mode == RAW:
        wanted, temperature = tokens_pb2.LOGPROB_DISTRIBUTION_RAW, 1.0
    for place, capture in enumerate(talk.captures):
        prompt, output = talk.prompts[place], talk.outputs[place]
        before = talk.prompts[place - 1] + talk.outputs[place - 1] if place else []
        if not capture.HasField("fork"):
            assert prompt[: len(before)] == before
        assert 0 < len(output) <= 24
        assert capture.logprob_distribution == wanted
        logprobs = [one[0] for one in struct.iter_unpack("<f", capture.logprobs)]
        assert logprobs == pytest.approx(
            expected(server.folder, prompt, output, temperature), abs=2e-3
        )


async def test_stop_token_ids_end_an_answer(server: Server) -> None:
    options = {"tokenizer": str(server.folder), "stop_token_ids": list(range(0, 260, 2))}
    config = ModelConfig(backend="vllm_tokens", url=server.url, options=options)
    service = ModelService(config, "policy", "p-0")
    await service.open(PeerDirectory())
    try:
        async with asyncio.timeout(BOUND_S):
            reply = await Dialogue(service, temperature=1.0).ask(user("when does it end"))
    finally:
        await service.close()
    ids = ids_of(reply.tokens.output_token_ids)
    assert reply.response.status == "completed"
    assert ids[-1] % 2 == 0
    assert all(one % 2 for one in ids[:-1])


async def test_a_seed_repeats_an_answer(server: Server) -> None:
    async def asked(service: ModelService, seed: int) -> list[int]:
        talk = Dialogue(service, temperature=1.0, max_output_tokens=16)
        request = talk.request(user("say it"))
        request.seed = seed
        request.rollout_id = request.conversation.id = f"{seed}"
        reply = await service.CreateResponse(request, CallContext("CreateResponse"))
        return ids_of(reply.tokens.output_token_ids)

    async with asyncio.timeout(BOUND_S), opened(server) as service:
        first = await asked(service, 5)
        again = await asked(service, 5)
        other = await asked(service, 6)
    assert first == again != other


async def until(holds: Callable[[], bool]) -> None:
    """Asks in a thread, until it is so."""
    while True:
        if await asyncio.to_thread(holds):
            return
        await asyncio.sleep(0.05)


async def test_a_call_that_nobody_waits_for_ends_at_the_server(server: Server) -> None:
    def in_hand() -> float:
        root = server.url.removesuffix("/v1")
        with urllib.request.urlopen(f"{root}/metrics", timeout=10) as answer:
            lines = answer.read().decode().splitlines()
        return sum(
            float(line.rpartition(" ")[2])
            for line in lines
            if line.startswith("vllm:num_requests_running")
        )

    def begun_or_done(call: asyncio.Task[Any]) -> bool:
        return call.done() or in_hand() > 0

    async with asyncio.timeout(BOUND_S), opened(server) as service:
        while True:  # a model of random weights may end its answer at once
            talk = Dialogue(service, temperature=1.0, max_output_tokens=1900)
            call = asyncio.create_task(talk.ask(user("go on")))
            await until(partial(begun_or_done, call))
            if call.cancel():
                break
        await until(lambda: not in_hand())
