"""veRL's agent loop and OpenRLHF's executor, called as their trainers do, with scripted engines."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[3] / "examples" / "grpo"))

from examples.grpo.tiny import make_tokenizer

pytestmark = pytest.mark.filterwarnings("ignore:Ray state API:DeprecationWarning")

TASK = {"task_id": "a", "prompt": "1+2=", "expected_answer": "3"}
PLACE = f"{Path(__file__).parents[3] / 'examples' / 'grpo' / 'sums.py'}:Sums"


class Server:
    """veRL's server manager, as far as it is called: it says 3."""

    def __init__(self, tokenizer: Any) -> None:
        self.ids = [*tokenizer.encode("3"), tokenizer.eos_token_id]
        self.asked: list[dict[str, Any]] = []

    async def generate(self, **asked: Any) -> Any:
        self.asked.append(asked)
        return SimpleNamespace(
            token_ids=self.ids, log_probs=[-0.5] * len(self.ids), extra_fields={"global_steps": 4}
        )


def loop_of(tokenizer: Any, server: Server) -> Any:
    from omegaconf import OmegaConf
    from verl.experimental.agent_loop.agent_loop import DictConfigWrap
    from verl.utils.dataset.rl_dataset import RLHFDataset

    from gymmesh_trainers.verl import GymmeshAgentLoop

    config = OmegaConf.create(
        {
            "actor_rollout_ref": {
                "rollout": {
                    "response_length": 8,
                    "prompt_length": 16,
                    "multi_turn": {"format": "hermes", "tokenization_sanity_check_mode": "disable"},
                },
                "model": {},
            },
            "data": {},
        }
    )
    return GymmeshAgentLoop(
        trainer_config=DictConfigWrap(config),
        server_manager=server,
        tokenizer=tokenizer,
        processor=None,
        dataset_cls=RLHFDataset,
        data_config=DictConfigWrap(config.data),
        environment=PLACE,
    )


def test_verl_gets_the_tokens_that_it_sampled() -> None:
    tokenizer = make_tokenizer()
    server = Server(tokenizer)

    async def run() -> list[Any]:
        loop = loop_of(tokenizer, server)
        sampling = {"temperature": 0.7, "logprobs": True}
        rows: list[dict[str, Any]] = [
            {"extra_info": {"task": json.dumps(TASK)}},
            {
                "raw_prompt": [{"role": "user", "content": "1+1="}],
                "reward_model": {"ground_truth": "2"},
            },
        ]
        found = await asyncio.gather(*(loop.run(sampling, **row) for row in rows))
        await loop._mesh.close()
        return list(found)

    right, wrong = asyncio.run(run())
    assert right.reward_score == 1.0
    assert wrong.reward_score == 0.0
    assert right.response_ids == server.ids
    assert right.response_mask == [1, 1]
    assert right.response_logprobs == [-0.5, -0.5]
    assert right.extra_fields["min_global_steps"] == 4
    assert sorted(one["prompt_ids"] for one in server.asked) == sorted(
        [right.prompt_ids, wrong.prompt_ids]
    )
    assert all(one["sampling_params"]["temperature"] == 0.7 for one in server.asked)
    assert right.as_dict()["rm_scores"].sum() == 1.0


def test_verl_gets_no_rollout_without_a_reward() -> None:
    """It would judge one by a reward function of its own, and train on that."""
    from gymmesh.rollout.v1 import rollout_pb2 as pb
    from gymmesh_client import UserError
    from gymmesh_resource import Task
    from gymmesh_trainers import Rollout
    from gymmesh_trainers.hooks import LostTokens
    from gymmesh_trainers.verl import loop_outputs

    message = pb.Rollout(rollout_id="ro")
    message.verified.verification.status = pb.VERIFICATION_STATUS_PENDING
    call = message.model_calls.add(call_id="c", trainable=True)
    call.tokens.prompt_token_ids = call.tokens.output_token_ids = b"\1\0\0\0"
    lost = LostTokens("refuse", "veRL")
    with pytest.raises(UserError, match="rollout ro of task t has no reward"):
        loop_outputs(Rollout(message, Task(pb.Task(task_id="t"))), 8, lost)
    assert lost.sampled == 0


def test_openrlhf_gets_ranges_of_what_it_sampled() -> None:
    from gymmesh_trainers.openrlhf import executor

    tokenizer = make_tokenizer()
    ids = [*tokenizer.encode("3"), tokenizer.eos_token_id]

    class Engine:
        async def generate(self, prompt: list[int], params: Any, multi_modal_data: Any) -> Any:
            assert params.max_tokens <= 32
            logprobs = [{one: SimpleNamespace(logprob=-0.25)} for one in ids]
            output = SimpleNamespace(token_ids=ids, logprobs=logprobs, finish_reason="stop")
            return SimpleNamespace(outputs=[output])

    params = SimpleNamespace(max_tokens=None, logprobs=1)

    async def run() -> dict[str, Any]:
        made = executor(PLACE)()
        label = json.dumps(TASK)
        done = await made.execute("ignored", label, params, 32, tokenizer, Engine())
        await made.close()
        return dict(done)

    found = asyncio.run(run())
    assert found["reward"] == 1.0
    [(begin, end)] = found["action_ranges"]
    assert found["observation_tokens"][begin:end] == ids
    assert found["rollout_log_probs"] == [0.0] * begin + [-0.25] * 2
    assert found["truncated"] is False


def test_a_failed_rollout_ends_no_job_of_openrlhf() -> None:
    """Its sample has no action, and the mean reward of the rollouts of its prompt."""
    from gymmesh_trainers.openrlhf import executor
    from gymmesh_trainers.testing import RolloutFailed

    tokenizer = make_tokenizer()
    answers = ["3", None, "1", "3"]
    seeds: list[int] = []

    class Engine:
        async def generate(self, prompt: list[int], params: Any, multi_modal_data: Any) -> Any:
            seeds.append(params.seed)
            said = answers.pop(0)
            if said is None:
                raise RuntimeError("the engine is gone")
            ids = [*tokenizer.encode(said), tokenizer.eos_token_id]
            logprobs = [{one: SimpleNamespace(logprob=-0.25)} for one in ids]
            output = SimpleNamespace(token_ids=ids, logprobs=logprobs, finish_reason="length")
            return SimpleNamespace(outputs=[output])

    params = SimpleNamespace(max_tokens=4, logprobs=1)
    label = json.dumps({**TASK, "seed": 7})

    async def run() -> list[dict[str, Any]]:
        async with executor(PLACE, max_attempts=1)() as made:
            one = (made.execute("p", label, params, 32, tokenizer, Engine()) for _ in range(4))
            found = await asyncio.gather(*one)  # as OpenRLHF does: an error ends the job
            answers[:] = [None]
            alone = await made.execute("p", label, params, 32, tokenizer, Engine())
            return [*found, alone]

    *found, alone = asyncio.run(run())
    assert sorted(one["reward"] for one in found) == pytest.approx([0.0, 2 / 3, 1.0, 1.0])
    [masked] = [one for one in found if not one["action_ranges"]]
    assert masked["reward"] == pytest.approx(2 / 3)
    assert len(masked["observation_tokens"]) == len(masked["rollout_log_probs"]) == 2
    assert {tuple(one["extra_logs"]) for one in found} == {tuple(masked["extra_logs"])}
    assert masked["extra_logs"]["not_trained"] == 1.0
    assert alone["reward"] == pytest.approx(2 / 3)  # of all that were judged before
    assert len(set(seeds)) == 5
    assert [one["truncated"] for one in found].count(True) == 3

    async def fails() -> None:
        answers[:] = [None]
        async with executor(PLACE, max_attempts=1)() as made:
            await made.execute("p", label, params, 32, tokenizer, Engine())

    with pytest.raises(RolloutFailed):
        asyncio.run(fails())


def test_a_label_that_is_no_task_is_said() -> None:
    from gymmesh_client import UserError
    from gymmesh_trainers.openrlhf import executor

    with pytest.raises(UserError, match="label: must be a task's row"):
        asyncio.run(
            executor(PLACE)().execute("", "3", SimpleNamespace(), 8, make_tokenizer(), None)
        )
