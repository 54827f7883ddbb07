"""TRL: `rollout_func` of GRPOTrainer.

    rollouts = TrlRollouts(environment, tasks)
    trainer = GRPOTrainer(
        model, reward_funcs=rollouts.reward, rollout_func=rollouts,
        train_dataset=Dataset.from_list(rollouts.rows), args=GRPOConfig(num_generations=8, …),
    )

TRL repeats each prompt `num_generations` times and wants one row for each, in order. The rollouts
run in the environment with the trainer's model as the policy; their exact tokens and the verified
rewards go back. TRL has room for one sample of a rollout; `lost` says what becomes of sampled
tokens that there is no room for. Interface: TRL 1.16, `trl.GRPOTrainer(rollout_func=)`.
"""

from __future__ import annotations

import logging
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from gymmesh.rollout.v1 import rollout_pb2 as pb
from gymmesh_client import TaskDefaults, UserError
from gymmesh_model.backends.engine import Engine, Generate
from gymmesh_model.backends.token_engines import VllmEngine
from gymmesh_model.backends.tokens_in import TokenBackend
from gymmesh_resource import Task
from gymmesh_responses import dumps, params_to_dict
from gymmesh_trainers.engine import TransformersEngine
from gymmesh_trainers.hooks import (
    Lost,
    LostTokens,
    first_repeat,
    paths_left_out,
    refuse_images,
)
from gymmesh_trainers.rollouts import FailedRollout, Rollout
from gymmesh_trainers.trainer_collector import MeshPlace, SyncCollector, TaskLike, messages_of

_LOG: Final = logging.getLogger("gymmesh.trainers")
_REWARD: Final = "gymmesh_reward"
_TRUNCATED: Final = "gymmesh_truncated"
# What of a GRPOConfig steers sampling and has no place in a call of an engine of tokens.
_REFUSED: Final = ("generation_kwargs", "vllm_structured_outputs_regex")
_UNNAMED: Final = TaskDefaults("-", "-")  # the mesh knows its own defaults


class TrlRollouts:
    """A `rollout_func`, with the rows and the reward function that belong to it. Close it, or use
    it as `with`; otherwise the mesh closes with the process.

    Args:
        place: the environment, see `gymmesh_trainers.trainer_collector.MeshPlace`.
        tasks: rows, `Task`s or a task file; all are read.
        engine: samples tokens. None: the trainer's model by `model.generate`, or TRL's vLLM server
            if the trainer is configured for one (`use_vllm`, `vllm_mode="server"`).
        backend: further arguments of TokenBackend, as `{"tool_parser": "llama"}`.
        lost: whether to `refuse` a rollout with sampled tokens that TRL can't receive, or `warn`.
        settings: see Settings.

    Attributes:
        rows: the rows of the trainer's dataset: each task's prompt.
        rollouts: the rollouts of the last call, in its order, for inspection.

    Raises UserError for an invalid task, or two tasks with the same prompt.
    """

    def __init__(
        self,
        place: MeshPlace,
        tasks: Sequence[TaskLike] | Path | str,
        *,
        engine: Generate | Engine | None = None,
        backend: Mapping[str, Any] | None = None,
        lost: Lost = "refuse",
        **settings: Any,
    ) -> None:
        self.rows: list[dict[str, Any]] = []
        self.rollouts: list[Rollout | FailedRollout] = []
        self._place = place
        self._engine = engine
        self._backend = dict(backend or {})
        self._settings = settings
        self._tasks: dict[bytes, Task] = {}
        self._lost = LostTokens(lost, "TRL")
        self._collector: SyncCollector | None = None
        self._ended: weakref.finalize[..., TrlRollouts] | None = None
        for message in messages_of(tasks, _UNNAMED):
            self._add(message)

    def __enter__(self) -> TrlRollouts:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __call__(self, prompts: list[Any], trainer: Any) -> dict[str, Any]:
        """One rollout for each prompt, in the form that TRL expects."""
        collector = self._opened(trainer)
        step = int(trainer.state.global_step)
        if collector.weights_version is None or step > collector.weights_version:
            collector.set_weights_version(step)
        # The repeats of a prompt may be spread over processes.
        self.rollouts = collector.many(
            [self._task(prompt) for prompt in prompts],
            first_repeat=first_repeat(int(trainer.accelerator.process_index)),
        )
        counts, most = collector.counts, trainer.args.max_completion_length
        before = counts["completions_unscored"]
        rows = trl_rows(
            self.rollouts,
            counts,
            trainer.processing_class.eos_token_id,
            most,
            lost=self._lost,
            mask_truncated=bool(vars(trainer.args).get("mask_truncated_completions")),
        )
        if unscored := counts["completions_unscored"] - before:
            _LOG.warning(
                "%d of %d rollouts have sampled tokens beyond max_completion_length (%d), "
                "including tool results. These rollouts get no reward. Raise "
                "max_completion_length, or shorten the tool results",
                unscored,
                len(self.rollouts),
                most,
            )
        return rows

    def reward(self, prompts: Any, completions: Any, **columns: Any) -> list[float | None]:
        """The verified reward of each rollout; None if the rollout failed, was not judged, or lost
        sampled tokens to `max_completion_length`.
        """
        found: list[float | None] = list(columns[_REWARD])
        return found

    def close(self) -> None:
        """Close the mesh."""
        self._collector = None
        if self._ended is not None:
            self._ended()

    @property
    def counts(self) -> Mapping[str, int]:
        """How many rollouts were collected, how many failed, and what the rows could not hold."""
        return {} if self._collector is None else self._collector.counts

    def _add(self, message: Any) -> None:
        message.environment = message.environment.removeprefix(_UNNAMED.environment)
        message.agent = message.agent.removeprefix(_UNNAMED.agent)
        plain = plain_prompt(message)
        key = dumps(plain)
        if key in self._tasks:
            raise UserError(
                f"task {message.task_id} has the same prompt as task {self._tasks[key].id}. "
                "TRL passes only prompts to gymmesh, so each task needs its own prompt"
            )
        self._tasks[key] = Task(message)
        self.rows.append({"prompt": plain, "task_id": message.task_id})

    def _task(self, prompt: Any) -> Task:
        plain = [{"role": one["role"], "content": one["content"]} for one in prompt]
        try:
            return self._tasks[dumps(plain)]
        except KeyError:
            raise UserError(
                "the trainer passed a prompt that is in none of the tasks. Use `rollouts.rows` "
                "as the trainer's dataset"
            ) from None

    def _opened(self, trainer: Any) -> SyncCollector:
        if self._collector is None:
            args = trainer.args
            tokenizer = trainer.processing_class
            engine = self._engine or _engine_of(trainer)
            params = sampling_of(args)
            # TRL's limit is of a whole completion, not of a call.
            limit = {"max_total_output_tokens": args.max_completion_length}
            settings = limit | self._settings
            settings["params"] = params | self._settings.get("params", {})
            template = vars(args).get("chat_template_kwargs")
            backend = {"template": template} | self._backend if template else self._backend
            model = TokenBackend(tokenizer, engine, **backend)
            self._collector = SyncCollector(self._place, model=model, **settings)
            self._collector.__enter__()
            self._ended = weakref.finalize(self, self._collector.__exit__, None, None, None)
        return self._collector


def _engine_of(trainer: Any) -> Generate | Engine:
    """What samples where the program names nothing. Raises UserError for a vLLM in the trainer's
    own process, which takes no calls of single conversations.
    """
    args = trainer.args
    if not args.use_vllm:
        model = trainer.accelerator.unwrap_model(trainer.model)
        return TransformersEngine(model, trainer.processing_class)
    if args.vllm_mode != "server":
        raise UserError(
            f"engine: TRL's vLLM runs in the trainer's process (vllm_mode='{args.vllm_mode}'), and "
            "TrlRollouts can't use it. Pass engine=, or start `trl vllm-serve` and set "
            "vllm_mode='server'"
        )
    base = args.vllm_server_base_url or f"http://{args.vllm_server_host}:{args.vllm_server_port}"
    return VllmEngine(f"{base.rstrip('/')}/v1", logprobs_mode="processed_logprobs")


def sampling_of(args: Any) -> dict[str, Any]:
    """The sampling parameters of a GRPOConfig. Raises UserError for those that no engine gets."""
    refused = [key for key in _REFUSED if vars(args).get(key)]
    if args.repetition_penalty != 1.0:
        refused.append("repetition_penalty")
    if refused:
        raise UserError(
            f"{', '.join(refused)}: TrlRollouts can't pass these settings to the engine. Remove "
            "the settings from the GRPOConfig"
        )
    params = {
        "temperature": args.temperature,
        "top_p": args.top_p,
        "max_output_tokens": args.max_completion_length,
    }
    if args.top_k and args.top_k > 0:  # all tokens else
        params["top_k"] = args.top_k
    if args.min_p is not None:
        params["min_p"] = args.min_p
    return params


def plain_prompt(task: pb.Task) -> list[dict[str, Any]]:
    """A task's input as messages with plain texts. Raises UserError where it is something else."""
    given = params_to_dict(task.params)
    prompt = given.get("input")
    if isinstance(prompt, str):
        prompt = [{"role": "user", "content": prompt}]
    plain = [{"role": one.get("role"), "content": one.get("content")} for one in prompt or []]
    if not plain or not all(isinstance(one["content"], str) for one in plain):
        raise UserError(
            f"task {task.task_id}: its input must be text messages, because TRL's dataset "
            "contains the prompt"
        )
    if given.get("instructions"):
        plain.insert(0, {"role": "system", "content": given["instructions"]})
    return plain


def trl_rows(
    rollouts: Sequence[Rollout | FailedRollout],
    counts: Any,
    stop_token: int,
    most: int | None = None,
    *,
    lost: LostTokens | None = None,
    mask_truncated: bool = False,
) -> dict[str, Any]:
    """The rollouts as `rollout_func` returns them. Pure, except for the counts.

    A row has one sample, see `LostTokens.one`. The other samples are counted under
    `paths_left_out`, and their tokens under `tokens_lost`. A failed rollout becomes a stop token
    that is not trained, without a reward. A completion has at most `most` tokens, tool tokens
    included, as in TRL's own loop; longer ones are cut and counted under `completions_cut`. If
    sampled tokens are cut off, the verdict depends on tokens that the row lacks. Such a row has no
    reward, its tokens are not trained, and it is also counted under `completions_unscored`.

    lost: what to do with sampled tokens that have no place in a row; None: warn.
    mask_truncated: train no tokens of rollouts that a limit of the policy cut short.

    Raises UserError for a rollout that can't be handed over.
    """
    rows: dict[str, list[Any]] = {
        key: []
        for key in ("prompt_ids", "completion_ids", "logprobs", "env_mask", _REWARD, _TRUNCATED)
    }
    lost = LostTokens("warn", "TRL") if lost is None else lost
    for rollout in rollouts:
        reward, truncated = None, False
        prompt, completion, mask, logprobs = [stop_token], [stop_token], [0], [0.0]
        refuse_images(rollout, "TRL")
        if isinstance(rollout, Rollout):
            reward, truncated, sample = rollout.reward, rollout.truncated, lost.one(rollout)
            if sample is not None:
                counts["paths_left_out"] += paths_left_out(rollout, [sample])
                counts["tokens_lost"] += rollout.counts.sampled - sample.trained
                reward = rollout.reward_of(sample.actor)
                prompt, completion = sample.prompt_ids, sample.completion_ids
                mask, logprobs = sample.completion_mask, sample.completion_logprobs
                counts["completions_cut"] += most is not None and len(completion) > most
                if most is not None and any(mask[most:]):
                    counts["completions_unscored"] += 1
                    reward, mask = None, [0] * len(mask)
                if mask_truncated and truncated:
                    mask = [0] * len(mask)
        rows["prompt_ids"].append(prompt)
        rows["completion_ids"].append(completion[:most])
        rows["logprobs"].append(logprobs[:most])
        rows["env_mask"].append(mask[:most])
        rows[_REWARD].append(reward)
        rows[_TRUNCATED].append(truncated)
    known = all(rows["logprobs"])  # of each; 0.0 in place of one would be a certainty
    return rows if known else {**rows, "logprobs": None}
