"""OpenRLHF: an agent executor.

A file for `--train.agent_func_path`:

    from gymmesh_trainers.openrlhf import executor
    AgentExecutor = executor("shop.py:Shop")

The label of a prompt (`--data.label_key`) is the prompt's task: the row of a task file as JSON
text. OpenRLHF's own engine samples the tokens (`llm_engine.generate`).

OpenRLHF accepts one sample of a rollout. `lost` says what happens to sampled tokens that don't fit
into it. A rollout that failed or has no reward would end the whole job, so the hook returns a
sample that trains no token. Its reward is the mean of the rollouts of the same prompt that run at
the same time, so that it changes no other rollout's advantage. OpenRLHF's own `kl` of such a sample
is not a number, so an adaptive KL coefficient (`--algo.kl.target`) needs environments that don't
fail.

Interface: OpenRLHF 0.11, `openrlhf.utils.agent.AgentExecutorBase`.
"""

from __future__ import annotations

import logging
from copy import deepcopy
from itertools import pairwise
from statistics import fmean
from typing import Any, Final

from openrlhf.utils.agent import AgentExecutorBase

from gymmesh_client import UserError
from gymmesh_model.backends.engine import Generate
from gymmesh_model.backends.generation import Generation, SamplingParams
from gymmesh_responses import CodecError, dumps_sorted, loads
from gymmesh_trainers.hooks import (
    JudgedRollouts,
    Lost,
    LostTokens,
    Repeats,
    Siblings,
    paths_left_out,
    refuse_images,
)
from gymmesh_trainers.ray import actor_number
from gymmesh_trainers.rollouts import FailedRollout, Rollout, TrainingSample
from gymmesh_trainers.testing import RolloutFailed
from gymmesh_trainers.trainer_collector import MeshPlace, SharedMesh

__all__ = ["executor", "executor_output"]

_COUNTS: Final = {"not_trained": 0.0, "tokens_lost": 0, "paths_left_out": 0}
_LOG: Final = logging.getLogger("gymmesh.trainers")


def executor(
    place: MeshPlace,
    *,
    backend: dict[str, Any] | None = None,
    lost: Lost = "refuse",
    **settings: Any,
) -> type[AgentExecutorBase]:
    """The class from which OpenRLHF creates its executor.

    Args:
        place: the environment, see `gymmesh_trainers.trainer_collector.MeshPlace`.
        backend: further arguments of TokenBackend, as `{"tool_parser": "llama"}`.
        lost: whether to `refuse` a rollout with sampled tokens that OpenRLHF can't receive, or
            `warn`.
        settings: see Settings.
    """

    class AgentExecutor(AgentExecutorBase):  # type: ignore[misc]  # OpenRLHF ships no types
        """One rollout for each prompt. Close it, or use it as `async with`."""

        def __init__(self) -> None:
            self._mesh: SharedMesh | None = None
            self._lost = LostTokens(lost, "OpenRLHF")
            self._repeats = Repeats(actor_number())
            self._siblings = Siblings()
            self._judged = JudgedRollouts()

        async def __aenter__(self) -> AgentExecutor:
            return self

        async def __aexit__(self, *error: object) -> None:
            await self.close()

        async def execute(
            self,
            prompt: Any,
            label: Any,
            sampling_params: Any,
            max_length: int,
            hf_tokenizer: Any,
            llm_engine: Any,
            images: Any = None,
        ) -> dict[str, Any]:
            """A rollout of the label's task.

            Raises:
                RolloutFailed: it failed, and so did all others up to now.
                UserError: the label is not a task, or the rollout can't be handed over.
            """
            if images:
                raise UserError(
                    "images: the hook for OpenRLHF only passes token ids; use text-only tasks"
                )
            task = _task(label)
            key = dumps_sorted(task)
            self._siblings.begin(key)
            try:
                if self._mesh is None:
                    options = {"context_tokens": max_length} | (backend or {})
                    self._mesh = SharedMesh(place, hf_tokenizer, options, **settings)
                async with self._mesh.collector(_engine(llm_engine, sampling_params)) as collector:
                    rollout = await collector.one(task, repeat=self._repeats.next(task))
                found = self._output(rollout, sampling_params.logprobs is not None)
            except BaseException:
                self._siblings.end(key, None)
                raise
            if found is None:
                mean = await self._siblings.mean(key)
                stop = int(hf_tokenizer.eos_token_id)
                found = self._masked(rollout, mean, stop, sampling_params.logprobs is not None)
            else:
                self._siblings.end(key, found["reward"])
            return {"prompt": prompt, "label": label, "images": images} | found

        async def close(self) -> None:
            """Close the mesh; OpenRLHF itself ends with its process."""
            mesh, self._mesh = self._mesh, None
            if mesh is not None:
                await mesh.close()

        def _output(
            self, rollout: Rollout | FailedRollout, wants_logprobs: bool
        ) -> dict[str, Any] | None:
            """What is returned of a rollout; None where there is nothing to train."""
            refuse_images(rollout, "OpenRLHF")
            if isinstance(rollout, FailedRollout):
                return None
            last = rollout.last_sample
            if last is None or rollout.reward_of(last.actor) is None:
                return None
            found = executor_output(rollout, self._lost, wants_logprobs=wants_logprobs)
            self._judged.add(found["reward"], rollout.components)
            return found

        def _masked(
            self,
            rollout: Rollout | FailedRollout,
            mean: float | None,
            stop: int,
            wants_logprobs: bool,
        ) -> dict[str, Any]:
            """A sample that trains nothing. Raises RolloutFailed, UserError before any other has a
            reward.
            """
            if mean is None and not self._judged.rewards:
                if isinstance(rollout, FailedRollout):
                    raise RolloutFailed(rollout)
                raise UserError(
                    f"rollout {rollout.id}: neither this rollout nor an earlier one has a reward"
                )
            reward = fmean(self._judged.rewards) if mean is None else mean
            why = "" if isinstance(rollout, FailedRollout) else ", because it has no reward"
            _LOG.warning("%r is not trained%s", rollout, why)
            # Components have to have the same names in all samples.
            components = {name: fmean(known) for name, known in self._judged.components.items()}
            return {
                "mm_train_inputs": None,
                "reward": reward,
                "scores": reward,
                "observation_tokens": [stop, stop],
                "action_ranges": [],
                "rollout_log_probs": [0.0, 0.0] if wants_logprobs else None,
                "truncated": False,
                "extra_logs": {**_COUNTS, "not_trained": 1.0, **components},
            }

    return AgentExecutor


def _engine(llm_engine: Any, sampling_params: Any) -> Generate:
    async def generate(ids: list[int], params: SamplingParams) -> Generation:
        asked = deepcopy(sampling_params)
        limits = [one for one in (sampling_params.max_tokens, params.max_tokens) if one]
        asked.max_tokens = min(limits, default=None)
        if params.seed is not None:
            asked.seed = params.seed
        made = (await llm_engine.generate(ids, asked, multi_modal_data=None)).outputs[0]
        sampled = list(made.token_ids)
        logprobs = [
            found[token].logprob for token, found in zip(sampled, made.logprobs or (), strict=False)
        ]
        return Generation.ended(sampled, logprobs, made.finish_reason)

    return generate


def executor_output(rollout: Rollout, lost: LostTokens, *, wants_logprobs: bool) -> dict[str, Any]:
    """What `execute` returns for a rollout with tokens and a reward.

    Raises UserError if OpenRLHF can't receive the rollout.
    """
    sample = lost.one(rollout)
    reward = None if sample is None else rollout.reward_of(sample.actor)
    if sample is None or reward is None:
        raise UserError(
            f"rollout {rollout.id} has no tokens or no reward, so OpenRLHF can't train it"
        )
    mask = sample.mask
    edges = [0, *mask, 0]
    changes = [place for place, (before, now) in enumerate(pairwise(edges)) if before != now]
    ranges = list(zip(changes[::2], changes[1::2], strict=True))
    return {
        "mm_train_inputs": None,
        "reward": reward,
        "scores": reward,
        "observation_tokens": sample.tokens,
        "action_ranges": ranges,
        "rollout_log_probs": _masked(sample, mask) if wants_logprobs else None,
        "truncated": rollout.truncated,
        "extra_logs": {
            **_COUNTS,
            "tokens_lost": rollout.counts.sampled - sample.trained,
            "paths_left_out": paths_left_out(rollout, [sample]),
            **rollout.components,
        },
    }


def _masked(sample: TrainingSample, mask: list[int]) -> list[float]:
    logprobs = sample.logprobs
    if not logprobs:
        raise UserError("the engine returned no log probabilities, although they were requested")
    return [value if on else 0.0 for value, on in zip(logprobs, mask, strict=True)]


def _task(label: Any) -> dict[str, Any]:
    try:
        task = loads(label) if isinstance(label, str | bytes) else label
    except CodecError as error:
        raise UserError(f"label: must be a task's row as JSON text: {error}") from None
    if not isinstance(task, dict):
        raise UserError("label: must be a task's row as JSON text (--data.label_key)")
    return task
