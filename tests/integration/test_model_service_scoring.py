"""Scores of continuations, by every backend that has them, against toy servers and engines."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from gymmesh.model.v1 import model_pb2
from gymmesh_model import ModelConfig, ModelService
from gymmesh_model.backends.base import BackendCall
from gymmesh_model.backends.engine import Engine
from gymmesh_model.backends.scores import TokenScores
from gymmesh_model.backends.scripted import ScriptedBackend
from gymmesh_model.backends.tokens_in import TokenBackend
from gymmesh_responses import params_from_json, unpack_ids
from gymmesh_runtime.context import CallContext
from gymmesh_runtime.errors import MeshError
from gymmesh_runtime.peers import PeerDirectory
from tests.support.token_servers import Kind, TokenServer, ToyTokenizer
from tests.support.vllm_server import FakeVllm, encode, logprob, most_probable, render

BOUND_S = 120.0
TOY = "tests.support.token_servers:toy_tokenizer"
TEXTS = ["Answer: A", "Answer: B", "bb"]
PROMPT = encode(render([{"role": "user", "content": "which"}], None, generation=True))


class ScoringEngine(Engine):
    """Scores as the toy servers do. before: called first."""

    scores = True

    def __init__(self, before: Callable[[], object] = lambda: None) -> None:
        self.before = before

    async def score(
        self, prompt: list[int], continuations: Sequence[list[int]], call: BackendCall
    ) -> Sequence[TokenScores]:
        assert prompt == PROMPT
        self.before()
        return [
            TokenScores([logprob(one) for one in ids], all(one % 2 == 0 for one in ids))
            for ids in continuations
        ]


@asynccontextmanager
async def opened(service: ModelService) -> AsyncIterator[ModelService]:
    async with asyncio.timeout(BOUND_S):
        await service.open(PeerDirectory())
    try:
        yield service
    finally:
        await service.close()


def at(backend: str, url: str, **config: Any) -> ModelService:
    options = {} if backend == "vllm" else {"tokenizer": TOY}
    given = {"timeout_s": 30.0, "max_retries": 0, "model": "toy", "options": options, **config}
    return ModelService(ModelConfig(backend=backend, url=url, **given), "policy", "p-0")


def over(engine: Engine) -> ModelService:
    backend = TokenBackend(ToyTokenizer(), engine)
    return ModelService(ModelConfig(), "policy", "p-0", backend=backend)


async def scored(
    service: ModelService, texts: Sequence[str] = TEXTS, **params: Any
) -> model_pb2.ScoreContinuationsResponse:
    request = model_pb2.ScoreContinuationsRequest(continuations=texts, rollout_id="r-1")
    request.params.CopyFrom(
        params_from_json({"input": [{"role": "user", "content": "which"}], **params})
    )
    return await service.ScoreContinuations(request, CallContext("ScoreContinuations"))


def check(answer: model_pb2.ScoreContinuationsResponse, texts: Sequence[str] = TEXTS) -> None:
    assert answer.prompt_tokens == len(PROMPT)
    for text, score in zip(texts, answer.scores, strict=True):
        ids = encode(text)
        assert unpack_ids(score.token_ids) == ids
        assert score.logprobs == struct.pack(f"<{len(ids)}f", *map(logprob, ids))
        assert score.greedy == all(most_probable(one) == one for one in ids)


@pytest.mark.parametrize(("kind", "backend"), [("vllm", "vllm_tokens"), ("sglang", "sglang")])
async def test_a_server_of_token_ids_scores(kind: Kind, backend: str) -> None:
    async with TokenServer(kind) as server, opened(at(backend, server.url)) as service:
        about = await service.GetModel(model_pb2.GetModelRequest(), CallContext("GetModel"))
        assert about.capabilities.scoring
        # Sampling parameters have no meaning here.
        check(await scored(service, temperature=0.3, top_p=0.5, max_output_tokens=1))
        assert server.prompts == [[*PROMPT, *encode(text)] for text in TEXTS]


@pytest.mark.parametrize("scale_out", [False, True])
async def test_a_vllm_server_scores(scale_out: bool) -> None:
    async with FakeVllm(scale_out=scale_out) as server, opened(at("vllm", server.url)) as service:
        check(await scored(service))
        sent = [body["prompt"] for path, body in server.requests if path == "score"]
        assert sent == [[*PROMPT, *encode(text)] for text in TEXTS]


async def test_an_engine_of_a_program_scores() -> None:
    async with opened(over(ScoringEngine())) as service:
        answer = await scored(service)
        check(answer)
        assert not answer.HasField("weights_version")


async def test_all_scores_are_by_the_same_weights() -> None:
    service = over(engine := ScoringEngine())
    passes: list[int] = []

    def swap() -> None:
        passes.append(len(passes))
        if len(passes) < 3:
            service._weights.set(len(passes))

    engine.before = swap
    async with opened(service):
        answer = await scored(service)
    assert answer.weights_version == 2
    assert len(passes) == 3


async def test_a_failed_request_is_sent_again() -> None:
    async with (
        FakeVllm(fails=[503]) as server,
        opened(at("vllm", server.url, max_retries=1)) as service,
    ):
        check(await scored(service))
        assert sum(path == "score" for path, _ in server.requests) == len(TEXTS) + 1


async def refused(service: ModelService, texts: Sequence[str] = TEXTS) -> MeshError:
    with pytest.raises(MeshError) as raised:
        await scored(service, texts)
    return raised.value


@pytest.mark.parametrize(
    ("texts", "field"),
    [([], "continuations"), (["a"] * 257, "continuations"), (["a", ""], "continuations[1]")],
)
async def test_texts_that_no_server_scores(texts: list[str], field: str) -> None:
    async with opened(over(ScoringEngine())) as service:
        error = await refused(service, texts)
    assert (error.reason_name, error.metadata["field"]) == ("FIELD_INVALID", field)


class Joining(ToyTokenizer):
    """Its template ends with a letter, which the tokenizer joins with the next one."""

    def apply_chat_template(self, conversation: list[dict[str, Any]], **options: Any) -> list[int]:
        return encode("question? a")


async def test_a_text_that_the_tokenizer_joins_with_the_prompt_is_refused() -> None:
    backend = TokenBackend(Joining(), ScoringEngine())
    service = ModelService(ModelConfig(), "policy", "p-0", backend=backend)
    async with opened(service):
        error = await refused(service, ["B", "b"])
    assert (error.reason_name, error.metadata["field"]) == ("FIELD_INVALID", "continuations[1]")
    assert "joins its first characters" in error.message


class Splitting(ToyTokenizer):
    """Its template writes tokens that it would not choose for their text."""

    def apply_chat_template(self, conversation: list[dict[str, Any]], **options: Any) -> list[int]:
        return [*encode("a"), *encode("b")]


async def test_a_prompt_whose_text_has_other_tokens_is_refused() -> None:
    backend = TokenBackend(Splitting(), ScoringEngine())
    async with opened(ModelService(ModelConfig(), "policy", "p-0", backend=backend)) as service:
        error = await refused(service)
    assert error.reason_name == "MODEL_REQUEST_REFUSED"


@pytest.mark.parametrize("backend", ["vllm", "vllm_tokens"])
async def test_a_text_beyond_the_context(backend: str) -> None:
    context = len(PROMPT) + 5
    server = FakeVllm(context=context) if backend == "vllm" else TokenServer(context=context)
    async with server, opened(at(backend, server.url)) as service:
        error = await refused(service)
    assert error.reason_name == "MODEL_CONTEXT_EXCEEDED"


def positive(answer: dict[str, Any]) -> dict[str, Any]:
    """As of a server with `--logprobs-mode raw_logits`."""
    for entry in answer["choices"][0]["prompt_logprobs"][1:]:
        next(iter(entry.values()))["logprob"] = 7.5
    return answer


def shifted(answer: dict[str, Any]) -> dict[str, Any]:
    answer["choices"][0]["prompt_logprobs"].pop()
    return answer


@pytest.mark.parametrize("alter", [positive, shifted, lambda _: {"choices": []}])
@pytest.mark.parametrize("backend", ["vllm", "vllm_tokens"])
async def test_what_is_not_a_log_probability_is_refused(
    backend: str, alter: Callable[[dict[str, Any]], dict[str, Any]]
) -> None:
    server = FakeVllm(alter=alter) if backend == "vllm" else TokenServer(alter=alter)
    async with server, opened(at(backend, server.url)) as service:
        error = await refused(service)
    assert error.reason_name == "MODEL_ANSWER_INVALID"


def other_tokens(answer: dict[str, Any]) -> dict[str, Any]:
    answer["meta_info"]["input_token_logprobs"][-1][1] += 1
    return answer


async def test_log_probabilities_of_other_tokens_are_refused() -> None:
    async with (
        TokenServer("sglang", alter=other_tokens) as server,
        opened(at("sglang", server.url)) as service,
    ):
        error = await refused(service)
    assert error.reason_name == "MODEL_ANSWER_INVALID"


async def test_a_backend_without_scores_says_so() -> None:
    service = ModelService(ModelConfig(), "policy", "p-0", backend=ScriptedBackend(["x"]))
    async with opened(service):
        error = await refused(service)
    assert error.reason_name == "NOT_OFFERED"
    assert "model 'policy' can't score continuations" in error.message


async def test_an_engine_that_fails_is_the_programs_fault() -> None:
    def fail() -> None:
        raise RuntimeError("no memory")

    async with opened(over(ScoringEngine(fail))) as service:
        error = await refused(service)
    assert error.reason_name == "INTERNAL_FAULT"
    assert "no memory" in error.message


async def test_calls_wait_for_a_place_and_a_full_queue_refuses() -> None:
    barrier, came = asyncio.Barrier(2), asyncio.Event()
    async with (
        TokenServer(barrier=barrier, check=lambda _: came.set()) as server,
        opened(at("vllm_tokens", server.url, max_concurrency=1, max_queue=1)) as service,
    ):
        first = asyncio.create_task(scored(service, ["A"]))
        second = asyncio.create_task(scored(service, ["B"]))
        async with asyncio.timeout(BOUND_S):
            await came.wait()
            error = await refused(service)
            assert error.reason_name == "QUEUE_FULL"
            await barrier.wait()  # the first is answered
            await first
            await barrier.wait()
            assert (await second).queue_us > 0


async def test_a_call_ends_with_its_time() -> None:
    async with (
        TokenServer(barrier=asyncio.Barrier(2)) as server,
        opened(at("vllm_tokens", server.url, timeout_s=0.05)) as service,
    ):
        assert (await refused(service)).reason_name == "MODEL_TIMEOUT"
