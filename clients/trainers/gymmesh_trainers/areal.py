"""AReaL: a rollout workflow.

In the training script:

    trainer.train(
        workflow="gymmesh_trainers.areal.GymmeshWorkflow",
        workflow_kwargs={
            "environment": "shop.py:Shop",
            "gconfig": config.gconfig,
            "tokenizer": config.tokenizer_path,
        },
    )

A row's task is the JSON text or the object under `task`. If `task` is missing, the task is the
row's `messages` with its other keys. AReaL's engine samples the tokens (`engine.agenerate`), and
continues calls that new weights interrupt. Each token has the version that sampled it. `gconfig`
replaces a task's `temperature`, `top_p`, `top_k`, `min_p` and `stop`.

AReaL compares rewards in groups of a fixed number of rows (`reward_norm.group_size`). So each
rollout is one row, and `lost` says what happens to sampled tokens that don't fit into the row.
`several=True` passes every sample of a rollout as a row. Use it only without `group` in
`reward_norm` and `adv_norm`.

A rollout that failed or has no reward is a row that trains no token, with the mean reward of its
group, so that the group keeps its number of rows. A group without any reward is rejected (None),
and AReaL runs another group.

Interface: AReaL 1.0.4, `areal.api.RolloutWorkflow`. Tested with AReaL's own executor, engine,
groups and advantages; not in its trainer, which needs GPUs.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import Any, Final
from weakref import WeakSet

import torch
from areal import workflow_context
from areal.api import ModelRequest, RolloutWorkflow
from areal.infra.utils.concurrent import register_loop_cleanup
from areal.utils import stats_tracker
from areal.utils.data import concat_padded_tensors
from areal.utils.hf_utils import load_hf_tokenizer

from gymmesh_client import UserError
from gymmesh_model.backends.engine import Generate
from gymmesh_model.backends.generation import Generation, SamplingParams
from gymmesh_trainers.hooks import (
    Lost,
    LostTokens,
    Siblings,
    refuse_images,
    refuse_sampling,
    refuse_seed,
    trained_reward,
)
from gymmesh_trainers.rollouts import FailedRollout, Rollout, TrainingSample
from gymmesh_trainers.trainer_collector import MeshPlace, SharedMesh, task_written

__all__ = ["GymmeshWorkflow"]

_LOG: Final = logging.getLogger("gymmesh.trainers")


class _WorkflowPlace:
    """What all workflows of a process with the same configuration share: AReaL makes a workflow for
    each rollout when it is named by a text.
    """

    def __init__(self, environment: MeshPlace, tokenizer: Any, backend: Any, settings: Any) -> None:
        self.tokenizer = load_hf_tokenizer(tokenizer) if isinstance(tokenizer, str) else tokenizer
        self.mesh = SharedMesh(environment, self.tokenizer, backend, **settings)
        self.siblings = Siblings()
        self._loops: WeakSet[asyncio.AbstractEventLoop] = WeakSet()

    def close_with_loop(self) -> None:
        """Close the mesh when AReaL closes the running event loop."""
        loop = asyncio.get_running_loop()
        if loop not in self._loops:
            self._loops.add(loop)
            register_loop_cleanup(self.mesh.close, loop=loop)


# By the environment and the tokenizer, which the place keeps alive, and by the configuration.
_PLACES: Final[dict[tuple[object, object, str], _WorkflowPlace]] = {}


class GymmeshWorkflow(RolloutWorkflow):  # type: ignore[misc]  # AReaL ships no types
    """Runs rollouts in an environment of gymmesh.

    Args:
        environment: see `gymmesh_trainers.trainer_collector.MeshPlace`.
        gconfig: AReaL's generation parameters, a GenerationHyperparameters.
        tokenizer: a tokenizer, or its path.
        backend: further arguments of TokenBackend, as `{"tool_parser": "llama"}`.
        settings: see Settings. `params` must not have parameters that `gconfig` sets, such as
            `temperature`.
        several: pass every sample of a rollout to AReaL, each as a row.
        lost: whether to `refuse` a rollout with sampled tokens that AReaL can't receive, or `warn`.

    Raises UserError, TypeError or ValueError for invalid arguments.
    """

    def __init__(
        self,
        environment: MeshPlace,
        gconfig: Any,
        tokenizer: Any,
        *,
        backend: Mapping[str, Any] | None = None,
        settings: Mapping[str, Any] | None = None,
        several: bool = False,
        lost: Lost = "refuse",
    ) -> None:
        refuse_sampling(settings or {}, "AReaL", "gconfig")
        options = {"context_tokens": gconfig.max_tokens, **(backend or {})}
        names = [one if isinstance(one, str) else id(one) for one in (environment, tokenizer)]
        key = (names[0], names[1], f"{options}\n{settings}")
        if key not in _PLACES:
            _PLACES[key] = _WorkflowPlace(environment, tokenizer, options, settings or {})
        self._place = _PLACES[key]
        self._gconfig = gconfig.new_with_stop_and_pad_token_ids(self._place.tokenizer)
        self._lost = LostTokens(lost, "AReaL", "" if several else "several=True")
        self._room = None if several else 1

    async def arun_episode(self, engine: Any, data: Mapping[str, Any]) -> dict[str, Any] | None:
        """A rollout of the row's task: tensors of the shape [rows, tokens], and rewards [rows].

        Returns None, which AReaL rejects, if no rollout of the group has a reward. If this method
        raises, AReaL logs the error and rejects the group.

        Raises UserError if the task is invalid, or AReaL can't receive the rollout.
        """
        task = task_of_row(data)
        refuse_seed(task.get("seed"), str(task.get("task_id", "of a row")), "AReaL")
        context = workflow_context.get()
        # The repeats of a group have one number.
        group = object() if context.task_id is None else (context.is_eval, context.task_id)
        place = self._place
        place.close_with_loop()
        async with place.mesh.collector(_engine(engine, self._gconfig, place.tokenizer)) as mesh:
            rollout, reward = await place.siblings.settled(group, mesh.one(task))
        refuse_images(rollout, "AReaL")
        own = trained_reward(rollout)
        stats = stats_tracker.get(workflow_context.stat_scope())
        stats.scalar(not_trained=float(own is None))
        if isinstance(rollout, FailedRollout) or own is None:
            why = "" if isinstance(rollout, FailedRollout) else ", because it has no reward"
            _LOG.warning("%r is not trained%s", rollout, why)
            return None if reward is None else masked_row(_stop(place.tokenizer), reward)
        found = self._lost.all_of_one_reward(rollout, room=self._room)
        trained = sum(one.trained for one in found)
        stats.scalar(
            reward=own,
            num_turns=len(rollout.message.model_calls),
            truncated=float(rollout.truncated),
            tokens_sampled=rollout.counts.sampled,
            tokens_lost=rollout.counts.sampled - trained,
        )
        rows = [row_of(rollout, one, own) for one in found]
        joined: dict[str, Any] = concat_padded_tensors(rows)
        return joined

    @staticmethod
    async def close_meshes() -> None:
        """Close the meshes of the running event loop. They open again when they are needed. AReaL's
        executor closes them with its event loop.
        """
        for place in _PLACES.values():
            await place.mesh.close()


def task_of_row(row: Mapping[str, Any]) -> dict[str, Any]:
    """The task of a dataset's row. Raises UserError."""
    rest = dict(row)
    written = rest.pop("task", None)
    if written is not None:
        return task_written(written, "task")
    messages = rest.pop("messages", None)
    if messages is None:
        raise UserError("the row has neither the key 'task' nor 'messages'; add one of these keys")
    return {"prompt": [dict(one) for one in messages], **rest}


def row_of(rollout: Rollout, sample: TrainingSample, reward: float) -> dict[str, Any]:
    """AReaL's tensors of a sample, of the shape [1, tokens]. Raises UserError where it has no log
    probabilities.
    """
    logprobs = sample.logprobs
    if not logprobs:
        raise UserError(
            f"rollout {rollout.id} of task {rollout.task.id}: the engine returned no usable log "
            "probabilities. AReaL needs a log probability for every sampled token"
        )
    return _tensors(sample.tokens, sample.mask, logprobs, sample.weights_versions, reward)


def masked_row(stop: int, reward: float) -> dict[str, Any]:
    """AReaL's tensors of a rollout that trains nothing. stop: any token."""
    return _tensors([stop, stop], [0, 0], [0.0, 0.0], [-1, -1], reward)


def _tensors(
    tokens: Sequence[int],
    mask: Sequence[int],
    logprobs: Sequence[float],
    versions: Sequence[int],
    reward: float,
) -> dict[str, Any]:
    found = {
        "input_ids": torch.tensor(tokens, dtype=torch.int32),
        "loss_mask": torch.tensor(mask, dtype=torch.int32),
        "logprobs": torch.tensor(logprobs, dtype=torch.float32),
        "versions": torch.tensor(versions, dtype=torch.int32),
        "attention_mask": torch.ones(len(tokens), dtype=torch.bool),
        "rewards": torch.tensor(reward, dtype=torch.float32),
    }
    return {key: value.unsqueeze(0) for key, value in found.items()}


def _engine(engine: Any, gconfig: Any, tokenizer: Any) -> Generate:
    async def generate(prompt: list[int], params: SamplingParams) -> Generation:
        limits = [gconfig.max_new_tokens, params.max_tokens or gconfig.max_new_tokens]
        asked = gconfig.new(n_samples=1, max_new_tokens=min(limits))
        # One id for all calls of a rollout: AReaL then keeps them at one server, with its cache.
        request = ModelRequest(
            rid=params.request_id, input_ids=prompt, gconfig=asked, tokenizer=tokenizer
        )
        made = await engine.agenerate(request)
        ended = Generation.ended(made.output_tokens, made.output_logprobs, made.stop_reason)
        return Generation(
            ended.token_ids, ended.logprobs, ended.finished, spans_of(made.output_versions)
        )

    return generate


def spans_of(versions: Sequence[int]) -> list[tuple[int, int]]:
    """The versions of tokens as pairs of a version and its first token."""
    return [
        (version, place)
        for place, version in enumerate(versions)
        if place == 0 or version != versions[place - 1]
    ]


def _stop(tokenizer: Any) -> int:
    return int(tokenizer.eos_token_id)
