"""Scores of continuations by a real vLLM and by an engine in this process, recomputed.

All compute over the weights of one tiny random model; transformers' own pass says what is right.
"""

from __future__ import annotations

import asyncio
import struct
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from gymmesh.model.v1 import model_pb2
from gymmesh_model import ModelConfig, ModelService
from gymmesh_model.backends.token_engines import VllmEngine
from gymmesh_model.backends.tokens_in import TokenBackend
from gymmesh_model.vllm import EngineConfig
from gymmesh_responses import params_from_json, unpack_ids
from gymmesh_runtime.context import CallContext
from gymmesh_runtime.errors import MeshError
from gymmesh_runtime.peers import PeerDirectory
from gymmesh_trainers.engine import TransformersEngine
from tests.vllm.serving import START_S, free_port, running
from tests.vllm.tiny import make_tiny

BOUND_S: Final = 600.0
CONTEXT: Final = 512
ARGS: Final = ["--dtype", "float32", "--max-model-len", str(CONTEXT), "--max-num-seqs", "8"]
QUESTIONS: Final = ["Which one?", "the other and then in the end", "né — 你好"]
TEXTS: Final = ["Answer: A", "Answer: B", "the other one then", " in", "né 你好", "t"]
# The first three call a server.
KINDS: Final = ["vllm", "vllm_tokens", "engine of a program", "vllm's engine", "transformers"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("tiny")
    make_tiny(made)
    return made


@pytest.fixture(scope="module")
def url(
    folder: Path, environment: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    port = free_port()
    log = tmp_path_factory.mktemp("log") / "vllm.log"
    command = [str(Path(sys.executable).with_name("vllm")), "serve", str(folder), *ARGS]
    command += ["--enforce-eager", "--host", "127.0.0.1", "--port", str(port)]
    command += ["--served-model-name", "tiny", "--enable-prefix-caching"]
    with running(command, f"http://127.0.0.1:{port}/health", log, environment):
        yield f"http://127.0.0.1:{port}/v1"


def model_of(folder: Path) -> tuple[Any, Any]:
    """The model and its tokenizer, by transformers."""
    import torch
    import transformers

    model: Any = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    return model, transformers.AutoTokenizer.from_pretrained(folder)


def service_of(kind: str, folder: Path, request: pytest.FixtureRequest) -> ModelService:
    """The model behind a real endpoint, or in this process."""
    url = request.getfixturevalue("url") if kind in KINDS[:3] else ""
    if kind == KINDS[3]:
        own = EngineConfig(model=str(folder), args=[*ARGS, "--enforce-eager"], ready_s=START_S)
        config = ModelConfig(backend="vllm", engine=own, model="tiny", timeout_s=100.0)
        return ModelService(config, "policy", "p-0")
    given: dict[str, Any] = {"url": url, "model": "tiny", "max_retries": 0}
    if kind == "vllm":
        return ModelService(ModelConfig(backend="vllm", **given), "policy", "p-0")
    if kind == "vllm_tokens":
        config = ModelConfig(backend=kind, options={"tokenizer": str(folder)}, **given)
        return ModelService(config, "policy", "p-0")
    model, tokenizer = model_of(folder)
    engine = VllmEngine(url) if kind == KINDS[2] else TransformersEngine(model, tokenizer)
    backend = TokenBackend(tokenizer, engine)
    return ModelService(ModelConfig(), "policy", "p-0", backend=backend)


async def scored(
    service: ModelService, question: str, texts: list[str]
) -> model_pb2.ScoreContinuationsResponse:
    request = model_pb2.ScoreContinuationsRequest(continuations=texts)
    request.params.CopyFrom(params_from_json({"input": [{"role": "user", "content": question}]}))
    return await service.ScoreContinuations(request, CallContext("ScoreContinuations"))


def expected(model: Any, prompt: list[int], ids: list[int]) -> tuple[list[float], bool]:
    """The log probabilities of ids after a prompt, and whether each is the best: all tokens of the
    sequence in one pass, one by one.
    """
    import torch

    found: list[float] = []
    greedy = True
    for place, token in enumerate(ids):
        with torch.no_grad():
            logits = model(torch.tensor([prompt + ids[:place]])).logits[0, -1]
        found.append(float(torch.log_softmax(logits.double(), dim=-1)[token]))
        greedy &= int(logits.argmax()) == token
    return found, greedy


@pytest.mark.parametrize("kind", KINDS)
async def test_scores_equal_a_recomputation(
    kind: str, folder: Path, request: pytest.FixtureRequest
) -> None:
    model, tokenizer = model_of(folder)
    service = service_of(kind, folder, request)
    worst = 0.0
    async with asyncio.timeout(BOUND_S):
        await service.open(PeerDirectory())
        try:
            for question in QUESTIONS:
                prompt = tokenizer.apply_chat_template(
                    [{"role": "user", "content": question}],
                    tokenize=True,
                    add_generation_prompt=True,
                    return_dict=False,
                )
                greedy = greedy_text(model, tokenizer, prompt)
                texts = [*TEXTS, greedy]
                answer = await scored(service, question, texts)
                assert answer.prompt_tokens == len(prompt)
                for text, score in zip(texts, answer.scores, strict=True):
                    ids = unpack_ids(score.token_ids)
                    assert tokenizer.decode(prompt + ids) == tokenizer.decode(prompt) + text
                    found = [one[0] for one in struct.iter_unpack("<f", score.logprobs)]
                    wanted, is_best = expected(model, prompt, ids)
                    assert found == pytest.approx(wanted, abs=2e-4)
                    worst = max(worst, *(abs(a - b) for a, b in zip(found, wanted, strict=True)))
                    assert score.greedy == is_best
        finally:
            await service.close()
    print(f"{kind}: largest difference {worst:.2g}")


def greedy_text(model: Any, tokenizer: Any, prompt: list[int]) -> str:
    """A character that the model would write first, as far as it can be written as text."""
    import torch

    with torch.no_grad():
        order = model(torch.tensor([prompt])).logits[0, -1].argsort(descending=True).tolist()
    before = tokenizer.decode(prompt)
    for token in order:
        text = str(tokenizer.decode([token]))
        joint = tokenizer.encode(before + text, add_special_tokens=False)
        if text.isascii() and joint == [*prompt, token]:
            return text
    raise AssertionError("no token can be written as text")


@pytest.mark.parametrize("kind", KINDS[:3])
async def test_a_text_beyond_the_context_is_its_own_error(
    kind: str, folder: Path, request: pytest.FixtureRequest
) -> None:
    service = service_of(kind, folder, request)
    async with asyncio.timeout(BOUND_S):
        await service.open(PeerDirectory())
        try:
            with pytest.raises(MeshError) as raised:
                await scored(service, "Which one?", ["A", "x" * CONTEXT])
            assert raised.value.reason_name == "MODEL_CONTEXT_EXCEEDED"
        finally:
            await service.close()
