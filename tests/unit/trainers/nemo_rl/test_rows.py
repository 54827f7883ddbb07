"""Rows for NeMo RL: one chain of tokens, and what of a rollout it can't train is told."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from aiohttp.test_utils import TestClient, TestServer

from gymmesh.rollout.v1 import rollout_pb2 as pb
from gymmesh_resource import Task
from gymmesh_trainers import Rollout, ScriptedBackend
from gymmesh_trainers.nemo_rl import NemoAgent, NemoPolicy, NotTrainable, trained_row
from tests.support.nemo_server import NemoServer
from tests.support.vllm_server import Reply, calls, says
from tests.unit.trainers.environments import Sums

SAMPLING = {"temperature": 0.7, "top_p": 0.9}


def add(left: int, right: int) -> Reply:
    return calls("add", f'{{"left":  {left}, "right": {right}}}')


def row(**params: Any) -> dict[str, Any]:
    """As NeMo RL sends it."""
    asked = {"input": [{"role": "user", "content": "What is 1 + 1?"}], **SAMPLING, **params}
    return {
        "responses_create_params": asked,
        "answer": "2",
        "agent_ref": {"type": "responses_api_agents", "name": "gymmesh_agent"},
        "_rowidx": 3,
    }


def read_as_nemo_rl(answer: dict[str, Any]) -> list[list[int]]:
    """The sampled tokens that NeMo RL trains; its assertion about a row."""
    seen: list[int] = []
    trained: list[list[int]] = []
    for item in answer["response"]["output"]:
        if not item.get("generation_token_ids"):
            continue
        assert item["prompt_token_ids"][: len(seen)] == seen, "Non-contiguous messages found"
        seen = item["prompt_token_ids"] + item["generation_token_ids"]
        assert len(item["generation_log_probs"]) == len(item["generation_token_ids"])
        trained.append(item["generation_token_ids"])
    assert trained
    return trained


async def ran(
    server: NemoServer, *asked: dict[str, Any], **settings: Any
) -> tuple[NemoAgent, list[tuple[int, dict[str, Any]]]]:
    """What the agent answers to rows, one after the other."""
    found = []
    async with server:
        agent = NemoAgent(Sums(), model=NemoPolicy([server.url]), max_attempts=1, **settings)
        async with TestClient(TestServer(agent.application())) as client:
            for one in asked:
                async with client.post("/run", json=one) as answer:
                    found.append((answer.status, await answer.json()))
    return agent, found


@pytest.mark.parametrize("splits", [False, True])
async def test_a_rollout_of_one_chain_is_trained_whole(splits: bool) -> None:
    server = NemoServer(splits=splits, script=[add(1, 0), add(1, 1), says("2")])
    agent, [(status, answer)] = await ran(server, row())
    assert status == 200
    assert answer["reward"] == 1.0
    assert answer["_rowidx"] == 3
    assert read_as_nemo_rl(answer) == server.outputs
    sampled = sum(map(len, server.outputs))
    assert (answer["sampled_tokens"], answer["lost_tokens"]) == (sampled, 0)
    assert "instance_config" not in answer
    assert agent.counts == {"rollouts": 1, "sampled_tokens": sampled}


async def test_a_rollout_with_a_fork_is_left_out_of_the_loss_and_said(
    caplog: pytest.LogCaptureFixture,
) -> None:
    server = NemoServer(splits=True, keeps=False, script=[add(1, 1), says("2")])
    with caplog.at_level(logging.WARNING, "gymmesh.trainers"):
        agent, [(status, answer)] = await ran(server, row())
    assert status == 200
    assert read_as_nemo_rl(answer) == server.outputs[1:]
    assert answer["instance_config"] == {"mask_sample": True}
    sampled = sum(map(len, server.outputs))
    assert (answer["sampled_tokens"], answer["lost_tokens"]) == (sampled, sampled)
    assert agent.counts["forked"] == 1
    assert agent.counts["lost_tokens"] == sampled
    assert "100.0 % of all sampled tokens are lost" in caplog.text


async def test_its_last_chain_is_trained_where_that_is_asked_for() -> None:
    server = NemoServer(splits=True, keeps=False, script=[add(1, 1), says("2")])
    agent, [(_, answer)] = await ran(server, row(), forks="train")
    assert read_as_nemo_rl(answer) == server.outputs[1:]
    assert "instance_config" not in answer
    assert answer["lost_tokens"] == len(server.outputs[0]) == agent.counts["lost_tokens"]


async def test_a_rollout_with_a_forced_call_is_left_out_of_the_loss() -> None:
    """Rows have no mask for single tokens."""
    server = NemoServer(script=[add(1, 1), says("2")])
    choice = {"tool_choice": {"type": "function", "name": "add"}}
    _, [(status, answer)] = await ran(server, row(**choice), forks="train")
    assert status == 200
    assert answer["instance_config"] == {"mask_sample": True}
    assert answer["lost_tokens"] == answer["sampled_tokens"]


async def test_sampling_that_rows_do_not_say_is_the_agents() -> None:
    bare = row()
    del bare["responses_create_params"]["temperature"], bare["responses_create_params"]["top_p"]
    _, [(status, answer)] = await ran(NemoServer(), bare)
    assert status == 502
    assert "--temperature" in answer["error"]
    assert "reward" not in answer
    _, [(status, _)] = await ran(NemoServer(default=says("2")), bare, params=SAMPLING)
    assert status == 200


async def test_a_log_probability_that_is_no_number_ends_no_step() -> None:
    def broken(answer: dict[str, Any]) -> dict[str, Any]:
        logprobs = answer["choices"][0]["message"]["generation_log_probs"]
        logprobs[0] = float("-inf")
        return answer

    # JSON has no such number; Python's own writer sends one all the same.
    _, [(status, answer)] = await ran(NemoServer(alter=broken), row())
    assert status != 200
    assert "reward" not in answer


def test_a_rollout_without_a_verdict_has_no_row(unjudged: Rollout) -> None:
    with pytest.raises(NotTrainable, match="no verdict"):
        trained_row(unjudged)


@pytest.fixture
def unjudged() -> Rollout:
    message = pb.Rollout(rollout_id="ro")
    message.completed.stop_reason = pb.STOP_REASON_MODEL_FINISHED
    return Rollout(message, Task(pb.Task()))


async def test_a_rollout_without_tokens_has_no_row() -> None:
    agent = NemoAgent(Sums(), model=ScriptedBackend(["2"]))
    async with (
        TestClient(TestServer(agent.application())) as client,
        client.post("/run", json=row()) as answer,
    ):
        assert answer.status == 422
        assert "no policy tokens" in (await answer.json())["error"]
    assert agent.counts == {"failed": 1}


def test_forks_are_masked_or_trained() -> None:
    with pytest.raises(ValueError, match="'mask' or 'train', not 'drop'"):
        NemoAgent(Sums(), forks="drop")  # type: ignore[arg-type]


async def test_a_rollout_with_an_image_is_refused() -> None:
    """Rows carry token ids alone: NeMo RL would compute other probabilities without the image."""
    image = {"type": "input_image", "image_url": "data:image/png;base64,AAAA"}
    said = {"role": "user", "content": [{"type": "input_text", "text": "What is it?"}, image]}
    server = NemoServer(script=[says("2")])
    agent, [(status, answer)] = await ran(server, row(input=[said]))
    assert (status, agent.counts["failed"]) == (422, 1)
    assert (
        "has an image or a file, but the hook for NeMo RL passes only token ids" in answer["error"]
    )
