"""veRL: an agent loop.

In the file that `agent_loop_config_path` names:

    - name: gymmesh
      _target_: gymmesh_trainers.verl.GymmeshAgentLoop
      environment: shop.py:Shop

and rows with `agent_name: gymmesh`. A row's task is the JSON text under `extra_info.task`, as
`gym-cli export --format verl` may write it. If `extra_info.task` is missing, the task is the row's
`raw_prompt` with the keys of `extra_info`. veRL samples: each model call is a
`server_manager.generate` of token ids.

veRL's V1 trainer (`trainer.use_v1`, its default) gets every sample of a rollout, as a list, and
gives all of them the last one's reward. Its older trainer accepts one sample. `lost` says what
happens to sampled tokens that veRL can't receive: samples of actors that have their own reward,
and in the older trainer all samples but one.

Interface: veRL 0.9, `verl.experimental.agent_loop.AgentLoopBase`.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Final

from verl.experimental.agent_loop.agent_loop import AgentLoopBase, AgentLoopOutput

from gymmesh_client import UserError
from gymmesh_model.backends.generation import Generation, SamplingParams
from gymmesh_trainers.hooks import (
    ROUTED_EXPERTS,
    CompletionLimit,
    Lost,
    LostTokens,
    Repeats,
    experts_given,
    experts_of,
    refuse_images,
    refuse_seed,
)
from gymmesh_trainers.ray import actor_number
from gymmesh_trainers.rollouts import (
    NO_VERSION,
    FailedRollout,
    Rollout,
    TrainingSample,
    tool_rewards,
    turn_scores,
)
from gymmesh_trainers.testing import RolloutFailed
from gymmesh_trainers.trainer_collector import SharedMesh, task_written

__all__ = ["GymmeshAgentLoop", "task_of_row"]

# The engine of veRL whose sampling parameters have a seed of the call.
_SEEDED: Final = "vllm"


class _Place:
    """What all loops of a process with the same configuration share."""

    def __init__(
        self, environment: str, tokenizer: Any, backend: Any, settings: Any, lost: Lost
    ) -> None:
        self.mesh = SharedMesh(environment, tokenizer, backend or {}, **(settings or {}))
        self.lost = LostTokens(lost, "veRL")
        self.repeats = Repeats(actor_number())


# By the tokenizer, which the place keeps alive, and by the configuration.
_PLACES: Final[dict[tuple[int, str], _Place]] = {}


class GymmeshAgentLoop(AgentLoopBase):  # type: ignore[misc]  # veRL ships no types
    """One rollout in an environment of gymmesh.

    Args:
        environment: see `gymmesh_trainers.trainer_collector.MeshPlace`; a text, because veRL's
            configuration names it.
        backend: further arguments of TokenBackend, as `{"tool_parser": "llama"}`.
        settings: see Settings.
        lost: whether to `refuse` a rollout with sampled tokens that veRL can't receive, or `warn`.
    """

    def __init__(
        self,
        *args: Any,
        environment: str = "math",
        backend: Mapping[str, Any] | None = None,
        settings: Mapping[str, Any] | None = None,
        lost: Lost = "refuse",
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        key = (id(self.tokenizer), f"{environment}\n{backend}\n{settings}\n{lost}")
        if key not in _PLACES:
            _PLACES[key] = _Place(environment, self.tokenizer, backend, settings, lost)
        self._place = _PLACES[key]
        self._mesh = self._place.mesh
        self._wants_experts = ROUTED_EXPERTS in (settings or {}).get("side_data", ())

    @staticmethod
    async def close_meshes() -> None:
        """Close the meshes of the running event loop. They open again when they are needed."""
        for place in _PLACES.values():
            await place.mesh.close()

    async def run(
        self, sampling_params: dict[str, Any], **row: Any
    ) -> AgentLoopOutput | list[AgentLoopOutput]:
        """A rollout of the row's task: an output for each sample; in veRL's older trainer, one
        output.

        Raises:
            RolloutFailed: the rollout failed. veRL's V1 trainer then replaces the group, or trains
                the rest of the group, as `trainer.v1.sampler.sync_refill_failed_groups` says.
            UserError: the task is invalid, or the rollout has no reward, or veRL can't receive it.
        """
        task, most = task_of_row(row), int(self.rollout_config.response_length)
        if self.rollout_config.get("name") != _SEEDED:
            engine = f"veRL's engine {self.rollout_config.get('name')!r}"
            refuse_seed(task.get("seed"), str(task.get("task_id", "of a row")), engine)
        # Only the V1 trainer says which of the group's rollouts this is.
        session = row.get("session_id")
        repeat = self._place.repeats.next(task) if session is None else int(session)
        began = time.monotonic()
        async with self._mesh.collector(
            self._engine(sampling_params, row.get("priority"), CompletionLimit(most))
        ) as collector:
            rollout = await collector.one(task, repeat=repeat)
        refuse_images(rollout, "veRL")
        if isinstance(rollout, FailedRollout):
            raise RolloutFailed(rollout)
        # veRL's only measure of a loop that it fills in itself.
        metrics = {"generate_sequences": time.monotonic() - began}
        v1 = bool((self.config.get("trainer") or {}).get("use_v1"))
        made = [
            AgentLoopOutput(**fields, metrics=dict(metrics))
            for fields in loop_outputs(rollout, most, self._place.lost, room=None if v1 else 1)
        ]
        return made if v1 else made[0]

    def _engine(
        self, sampling_params: Mapping[str, Any], priority: Any, limit: CompletionLimit
    ) -> Any:
        async def generate(prompt: list[int], params: SamplingParams) -> Generation:
            asked = dict(sampling_params)
            room = limit.room(prompt)
            asked["max_tokens"] = min(room, params.max_tokens or room)
            if params.seed is not None:
                asked["seed"] = params.seed
            more = {} if priority is None else {"priority": priority}
            made = await self.server_manager.generate(
                request_id=params.request_id, prompt_ids=prompt, sampling_params=asked, **more
            )
            said = (made.extra_fields or {}).get("global_steps")
            spans = [(int(said), 0)] if said is not None else []
            experts = experts_given("veRL", made.routed_experts) if self._wants_experts else ()
            return Generation(
                made.token_ids, made.log_probs or (), weights=spans, side_data=experts
            )

        return generate


def task_of_row(row: Mapping[str, Any]) -> dict[str, Any]:
    """The task of a dataset's row. Raises UserError."""
    extra = dict(row.get("extra_info") or {})
    written = extra.pop("task", None)
    if written is not None:
        return task_written(written, "extra_info.task")
    if row.get("raw_prompt") is None:
        raise UserError(
            "the row has neither 'extra_info.task' nor 'raw_prompt'; add one of these keys"
        )
    truth = (row.get("reward_model") or {}).get("ground_truth")
    task = {"prompt": [dict(one) for one in row["raw_prompt"]], **extra}
    return task if truth is None else {"expected_answer": truth, **task}


def loop_outputs(
    rollout: Rollout, most: int, lost: LostTokens, *, room: int | None = None
) -> list[dict[str, Any]]:
    """The fields of the AgentLoopOutputs of a rollout, but for its metrics; the last has the
    reward, which veRL gives to all. At least one.

    most: the longest completion, in tokens. room: how many outputs there is room for; None: any
    number. Raises UserError where it can't be handed over, or has no reward.
    """
    last = rollout.last_sample
    if last is None:
        raise UserError(f"rollout {rollout.id} has no tokens, so veRL can't train it")
    if rollout.reward_of(last.actor) is None:
        raise UserError(
            f"rollout {rollout.id} of task {rollout.task.id} has no reward, so veRL would "
            "compute a reward with its own function. Use an environment that returns a "
            "verdict for each rollout"
        )
    samples = lost.all_of_one_reward(rollout, most, room=room)
    return [_fields(rollout, sample, most) for sample in samples]


def _fields(rollout: Rollout, sample: TrainingSample, most: int) -> dict[str, Any]:
    reward, message = rollout.reward_of(sample.actor), rollout.message
    extra: dict[str, Any] = {
        "turn_scores": turn_scores(message),
        "tool_rewards": tool_rewards(message),
        # veRL copies it from the last output to the others, and wants it there.
        "reward_extra_info": {},
        "rollout_id": rollout.id,
        "stop_reason": rollout.stop_reason,
        "truncated": rollout.truncated,
        "token_rewards": sample.completion_rewards[:most],
    }
    trained = zip(sample.weights_versions, sample.mask, strict=True)
    steps = [version for version, on in trained if on and version != NO_VERSION]
    if steps:
        extra |= {"min_global_steps": min(steps), "max_global_steps": max(steps)}
    fields: dict[str, Any] = {
        "prompt_ids": sample.prompt_ids,
        "response_ids": sample.completion_ids[:most],
        "response_mask": sample.completion_mask[:most],
        "response_logprobs": sample.completion_logprobs[:most] or None,
        "reward_score": reward,
        "num_turns": 1 + len(message.model_calls) + len(message.turns),
        "extra_fields": extra,
    }
    experts = experts_of(rollout, sample)
    if experts is None:
        return fields
    # veRL puts zeros behind them, and its replay masks these.
    end = min(experts.end, len(fields["prompt_ids"]) + len(fields["response_ids"]))
    return fields | {"routed_experts": experts.array(0, end)}
