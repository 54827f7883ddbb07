"""TRL's own client of its vLLM server, and the engine of the hook, at the same server."""

from __future__ import annotations

from typing import Any

import requests
from trl.generation.vllm_client import VLLMClient

from gymmesh_model.backends.token_engines import VllmEngine
from gymmesh_trainers import Rollout, SyncCollector, TokenBackend
from gymmesh_trainers.trainer_collector import LoopThread
from tests.support.token_servers import TokenServer, ToyTokenizer
from tests.support.vllm_server import says
from tests.unit.trainers.environments import Sums, rows


def test_the_engine_gets_what_trls_client_gets() -> None:
    def with_alternatives(answer: dict[str, Any]) -> dict[str, Any]:
        said = answer["choices"][0]["logprobs"]
        pairs = zip(said["tokens"], said["token_logprobs"], strict=True)
        said["top_logprobs"] = [{token: value} for token, value in pairs]  # as vLLM has them
        return answer

    loop, server = LoopThread(), TokenServer("vllm", default=says("1"), alter=with_alternatives)
    loop.start()
    loop.run(server.__aenter__())
    try:
        engine = VllmEngine(server.url, logprobs_mode="processed_logprobs")
        model = TokenBackend(ToyTokenizer(), engine)
        with SyncCollector(Sums(), model=model) as collector:
            rollout = collector.one(rows(1)[0])
        client = object.__new__(VLLMClient)  # it is made only where vLLM is installed
        client.session, client.model = requests.Session(), "toy"
        client.base_url = server.url.removesuffix("/v1")
        theirs = client.generate([server.prompts[0]])
    finally:
        loop.run(server.__aexit__())
        loop.end()
    assert isinstance(rollout, Rollout)
    [sample] = rollout.samples
    sent: Any = server.prompts[1]  # TRL's client sends several at a time
    assert [sample.prompt_ids] == sent
    assert [sample.completion_ids] == theirs["completion_ids"]
    assert [[one] for one in sample.completion_logprobs] == theirs["logprobs"][0]
    ours, other = server.bodies
    for key in ("return_token_ids", "return_tokens_as_token_ids"):
        assert ours[key] == other[key]
