"""slime's generate function: one rollout for each of its samples."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from slime.rollout.sglang_rollout import GenerateState
from slime.utils.http_utils import post
from slime.utils.types import Sample

from gymmesh_client import UserError
from gymmesh_model.backends.generation import Generation, SamplingParams
from gymmesh_model.backends.token_engines import SglangGenerate
from gymmesh_model.errors import answer_failed
from gymmesh_trainers.hooks import (
    ROUTED_EXPERTS,
    CompletionLimit,
    JudgedRollouts,
    Lost,
    LostTokens,
    Repeats,
    Siblings,
    refuse_images,
)
from gymmesh_trainers.rollouts import FailedRollout, Rollout
from gymmesh_trainers.slime.rewards import compares_groups
from gymmesh_trainers.slime.samples import filled, masked, samples_of_all_actors
from gymmesh_trainers.testing import RolloutFailed
from gymmesh_trainers.trainer_collector import MeshPlace, SharedMesh, task_written

_LOG: Final = logging.getLogger("gymmesh.trainers")
# Before a call that the server aborted is continued: it is about to get new weights.
_ABORTED_PAUSE_S: Final = 0.5


class GymmeshGenerate:
    """Generates with rollouts in an environment of gymmesh. Nothing needs to be closed: the mesh
    ends with slime's process.

    Args:
        place: the environment, see `gymmesh_trainers.trainer_collector.MeshPlace`.
        backend: further arguments of TokenBackend, as `{"tool_parser": "llama"}`.
        several: return all samples of a rollout, as a list, each with its actor's reward. False:
            one sample, as slime's own filters and reward functions expect.
        lost: whether to `refuse` a rollout with sampled tokens that slime can't receive, or `warn`.
        settings: see Settings.
    """

    def __init__(
        self,
        place: MeshPlace,
        *,
        backend: Mapping[str, Any] | None = None,
        several: bool = True,
        lost: Lost = "refuse",
        **settings: Any,
    ) -> None:
        self._place = place
        self._backend = dict(backend or {})
        self._settings = settings
        self._several = several
        self._wants_experts = ROUTED_EXPERTS in settings.get("side_data", ())
        self._lost = LostTokens(lost, "slime", "" if several else "several=True")
        self._repeats = Repeats()
        self._siblings = Siblings()
        self._judged = JudgedRollouts()
        self._mesh: SharedMesh | None = None

    async def __call__(
        self, args: Any, sample: Any, sampling_params: Mapping[str, Any], evaluation: bool = False
    ) -> Any:
        """slime's samples of a rollout of the sample's task; in an evaluation, one sample.

        A rollout that failed or has no reward becomes a sample that trains no token. Its reward is
        the mean of the group's (or evaluation's) rollouts that ran at the same time.

        Raises:
            RolloutFailed: the rollout failed, and no rollout so far has a reward.
            UserError: slime's arguments or the task are invalid, or slime can't receive the
                rollout.
        """
        check_arguments(
            args, several=self._several, evaluation=evaluation, experts=self._wants_experts
        )
        state = GenerateState(args)
        task = task_of(args, sample)
        if self._mesh is None:
            context = {"context_tokens": args.rollout_max_context_len or 0}
            options = context | self._backend
            self._mesh = SharedMesh(self._place, state.tokenizer, options, **self._settings)
        shape = (int(args.num_layers), int(args.moe_router_topk)) if self._wants_experts else None
        engine = _RouterEngine(args, state, sample, sampling_params, shape)
        key = "evaluation" if evaluation else sample.group_index
        async with self._mesh.collector(engine.generate) as collector:
            repeat = self._repeats.next(task)
            engine.rollout = asyncio.ensure_future(collector.one(task, repeat=repeat))
            try:
                rollout, reward = await self._siblings.settled(key, engine.rollout)
            except asyncio.CancelledError:
                if not engine.aborted:
                    raise
                sample.status = Sample.Status.ABORTED
                return sample
        refuse_images(rollout, "slime")
        made = self._handed_over(sample, rollout, state.tokenizer, evaluation=evaluation)
        if not made:
            stop = int(state.tokenizer.eos_token_id)
            made = [masked(sample, rollout, self._filler(rollout, reward), stop, experts=shape)]
        return made if self._several and not evaluation else made[0]

    async def close(self) -> None:
        """Close the mesh of the running event loop."""
        if self._mesh is not None:
            await self._mesh.close()

    @property
    def counts(self) -> Mapping[str, int]:
        """`tokens_sampled`, `tokens_trained` and `tokens_lost` so far, without evaluations."""
        return self._lost.counts

    def _handed_over(
        self, given: Any, rollout: Rollout | FailedRollout, tokenizer: Any, *, evaluation: bool
    ) -> list[Any]:
        """The samples with something to train, or to evaluate; empty where there is nothing."""
        if isinstance(rollout, FailedRollout):
            return []
        last = rollout.last_sample
        if evaluation:
            kept = [] if last is None else [last]
        elif self._several:
            kept = samples_of_all_actors(rollout, self._lost)
        else:
            one = self._lost.one(rollout)
            kept = [] if one is None else [one]
        kept = [one for one in kept if rollout.reward_of(one.actor) is not None]
        for one in kept:
            self._judged.add(rollout.reward_of(one.actor) or 0.0, {})
        return [filled(given, rollout, one, tokenizer, evaluation=evaluation) for one in kept]

    def _filler(self, rollout: Rollout | FailedRollout, mean: float | None) -> float:
        """The reward of a rollout that has none, for a trainer that wants a number."""
        reward = self._judged.mean if mean is None else mean
        if reward is None:
            if isinstance(rollout, FailedRollout):
                raise RolloutFailed(rollout)
            raise UserError(
                f"rollout {rollout.id}: neither this rollout nor an earlier one has a reward"
            )
        why = "" if isinstance(rollout, FailedRollout) else ", because it has no reward"
        _LOG.warning("%r is not trained%s", rollout, why)
        return reward


class _RouterEngine:
    """Samples a rollout's tokens at slime's SGLang router.

    Attributes:
        rollout: the rollout, which is cancelled when slime ends its step.
        aborted: whether it was.
    """

    def __init__(
        self,
        args: Any,
        state: Any,
        sample: Any,
        sampling_params: Mapping[str, Any],
        experts: tuple[int, int] | None,
    ) -> None:
        """experts: the model's layers and experts per token; None: they are not wanted."""
        self._protocol = SglangGenerate(experts=experts)
        self._url = f"http://{args.sglang_router_ip}:{args.sglang_router_port}/generate"
        self._state = state
        self._sampling = dict(sampling_params)
        self._limit = CompletionLimit(int(sampling_params["max_new_tokens"]))
        by_session = vars(args).get("router_policy") == "consistent_hashing"
        self._headers = (
            {"X-SMG-Routing-Key": sample.session_id} if by_session and sample.session_id else None
        )
        self.rollout: asyncio.Future[Rollout | FailedRollout] | None = None
        self.aborted = False

    async def generate(self, prompt: list[int], params: SamplingParams) -> Generation:
        """An answer. A server that is about to get new weights aborts its calls: such an answer is
        continued, and each token has the version that sampled it.
        """
        room = self._limit.room(prompt)
        most = min(room, params.max_tokens or room)
        parts: list[Generation] = []
        sampled: list[int] = []
        while True:
            if self._state.aborted:
                self._end()
            made, aborted = await self._part([*prompt, *sampled], most - len(sampled), params)
            parts.append(made)
            sampled += made.token_ids
            if not aborted or len(sampled) >= most:
                return joined(parts)
            if not self._state.aborted:
                await asyncio.sleep(_ABORTED_PAUSE_S)

    async def _part(
        self, prompt: list[int], most: int, params: SamplingParams
    ) -> tuple[Generation, bool]:
        """What the router samples, and whether it was aborted."""
        asked = {**self._sampling, "max_new_tokens": most}
        if params.seed is not None:
            asked["sampling_seed"] = params.seed
        body = {"input_ids": prompt, "sampling_params": asked, "return_logprob": True}
        if self._protocol.experts:
            body["return_routed_experts"] = True
        answer = await post(self._url, body, headers=self._headers)
        aborted = self._protocol.finish_reason(answer) == "abort"
        if aborted:
            answer = {**answer, "meta_info": {**answer["meta_info"], "finish_reason": "length"}}
        made = self._protocol.generation(answer, prompt, _read(asked))
        if self._protocol.experts and not aborted:
            # Of all tokens but the last, also where this continues an answer.
            rows = self._protocol.routed_experts(answer, len(prompt), len(made.token_ids), 0)
            made = replace(made, side_data=[rows])
        return made, aborted

    def _end(self) -> None:
        """End the rollout: slime has all groups of its step, and waits for the rest to end."""
        self.aborted = True
        if self.rollout is not None:
            self.rollout.cancel()
        raise answer_failed("policy", "abort")


def joined(parts: list[Generation]) -> Generation:
    """An answer that was sampled in parts. Pure."""
    if len(parts) == 1:
        return parts[0]
    ids: list[int] = []
    logprobs: list[float] = []
    weights: list[tuple[int, int, str]] = []
    for one in parts:
        for version, first, *adapter in one.weights if one.token_ids else ():
            weights.append((version, first + len(ids), str(adapter[0]) if adapter else ""))
        ids += one.token_ids
        logprobs += one.logprobs
    if len(weights) and weights[0][1]:
        weights = []  # not known from the first token on
    known = logprobs if len(logprobs) == len(ids) else []
    alike = {one.distribution for one in parts if one.token_ids}
    distribution = alike.pop() if len(alike) == 1 else parts[-1].distribution
    last = parts[-1]
    return Generation(ids, known, last.finished, weights, distribution, side_data=last.side_data)


def check_arguments(args: Any, *, several: bool, evaluation: bool, experts: bool) -> None:
    """Raise UserError where slime is configured to what would train on something else than what
    was sampled and judged.
    """
    wrong: list[str] = []
    if args.reward_key or args.eval_reward_key:
        wrong.append(
            "--reward-key and --eval-reward-key: gymmesh's rewards have no keys; remove "
            "both options"
        )
    if not evaluation:
        if args.group_rm:
            wrong.append("--group-rm would replace the environment's rewards; remove --group-rm")
        if args.partial_rollout:
            wrong.append(
                "--partial-rollout: a rollout can't continue in a later step; remove this option"
            )
        if args.rollout_top_p != 1.0:
            wrong.append(
                "--rollout-top-p: must be 1.0, or slime replays the tokens that top-p kept"
            )
        if args.use_rollout_routing_replay and not experts:
            wrong.append(
                "--use-rollout-routing-replay: create GymmeshGenerate with "
                "side_data=['routed_experts']"
            )
        if several and compares_groups(args) and not args.custom_reward_post_process_path:
            wrong.append(
                "--custom-reward-post-process-path: is missing. If a rollout has several samples, "
                "slime would compare rewards of different groups. Set this option to "
                "gymmesh_trainers.slime.group_rewards, or create GymmeshGenerate with several=False"
            )
    if wrong:
        raise UserError("slime's arguments: " + "; ".join(wrong))


def task_of(args: Any, sample: Any) -> dict[str, Any]:
    """The task of slime's sample. Raises UserError."""
    rest = dict(sample.metadata or {})
    written = rest.pop("task", None)
    if written is not None:
        return task_written(written, "metadata.task")
    prompt = sample.prompt
    if isinstance(prompt, str) and args.apply_chat_template:
        raise UserError(
            "metadata.task: is missing, and the chat template has already rendered the prompt. Add "
            "the task to the row, or remove --apply-chat-template"
        )
    task = {"prompt": prompt if isinstance(prompt, str) else [dict(one) for one in prompt], **rest}
    return task if sample.label is None else {"expected_answer": sample.label, **task}


def _read(asked: Mapping[str, Any]) -> SamplingParams:
    """What decides which distribution SGLang's log probabilities are of."""
    return SamplingParams(
        temperature=asked.get("temperature"),
        top_p=asked.get("top_p"),
        top_k=asked.get("top_k"),
        min_p=asked.get("min_p"),
    )
