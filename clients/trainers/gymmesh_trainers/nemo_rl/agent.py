"""NeMo Gym's agent server over a mesh: `POST /run` and `POST /aggregate_metrics`."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Sequence
from statistics import fmean
from typing import Any, Final

from aiohttp import web

from gymmesh_client import UserError
from gymmesh_responses import CodecError, dumps, loads
from gymmesh_trainers.hooks import Repeats
from gymmesh_trainers.nemo_rl.rows import (
    Forks,
    NotTrainable,
    TrainedRow,
    trained_row,
    whole_row,
)
from gymmesh_trainers.rollouts import FailedRollout
from gymmesh_trainers.trainer_collector import MeshPlace, Model, TrainerCollector

_MAX_BODY: Final = 64 * 1024 * 1024
_FAILED: Final = "_ng_failure_class"
_TERMINAL: Final = "_ng_failure_terminal"
# NeMo Gym's own collection has this key in its rows; NeMo RL's do not.
_COLLECTED: Final = "_ng_rollout_index"
# What NeMo Gym puts into a row for itself, and no verifier reads.
_THEIRS: Final = ("agent_ref", "_rowidx", "_ng_task_index", _COLLECTED)
# NeMo RL takes a status of 500 or more for a fault that may pass, and others for one of the task.
_FAULT: Final = 502
_NOT_TRAINABLE: Final = 422
_log = logging.getLogger("gymmesh.trainers")


class NemoAgent:
    """Serves `POST /run` with rollouts in an environment.

    Args:
        place: the environment, see `gymmesh_trainers.trainer_collector.MeshPlace`.
        model: the policy.
        forks: what happens to a rollout whose tokens form several chains, of which NeMo RL reads
            only one: `mask` excludes the rollout from the loss, `train` trains the last chain.
        settings: see Settings.

    Attributes:
        counts: `rollouts` answered, `failed`, `forked`, and the policy's tokens: `sampled_tokens`,
            `lost_tokens`.
    """

    def __init__(
        self,
        place: MeshPlace,
        *,
        model: Model | None = None,
        forks: Forks = "mask",
        **settings: Any,
    ) -> None:
        if forks not in ("mask", "train"):
            raise ValueError(f"forks: must be 'mask' or 'train', not {forks!r}")
        self.counts: Counter[str] = Counter()
        self._forks = forks
        self._collector = TrainerCollector(place, model=model, **settings)
        self._repeats = Repeats()

    def application(self) -> web.Application:
        """The application; it opens the mesh when it starts."""
        application = web.Application(client_max_size=_MAX_BODY)
        application.cleanup_ctx.append(self._mesh)
        application.router.add_post("/run", self._run)
        application.router.add_post("/aggregate_metrics", self._metrics)
        return application

    async def _mesh(self, application: web.Application) -> Any:
        async with self._collector:
            yield

    async def _run(self, request: web.Request) -> web.Response:
        """A rollout of a row: the row with its answer. 400: no task; 502: the rollout failed;
        422: NeMo RL can't train it.

        NeMo Gym's own collection ends at the first HTTP error, but has a file for rows that say
        why they failed; so a row of its gets that, and no reward.
        """
        try:
            row = loads(await request.read())
            if not isinstance(row, dict):
                raise UserError("the request's body must be a JSON object: a row of the data set")
            theirs = {key: row.pop(key) for key in _THEIRS if key in row}
            said = theirs.get(_COLLECTED)
            repeat = said if type(said) is int and said >= 0 else self._repeats.next(row)
            rollout = await self._collector.one(row, repeat=repeat)
        except (CodecError, UserError) as error:
            return _answer({"error": str(error)}, 400)
        if isinstance(rollout, FailedRollout):
            self.counts["failed"] += 1
            why = {"error": rollout.why, "boundary": rollout.boundary, "reason": rollout.reason}
            if _COLLECTED not in theirs:
                return _answer(why, _FAULT)
            row.pop("reward", None)  # a row that was a rollout once may have its old one
            # What NeMo Gym reads of it: its cause, and whether to try it again.
            why[_FAILED] = f"{rollout.boundary}/{rollout.reason}"
            retry_safe = rollout.message.failed.failure.retry_safe
            return _answer({**row, **theirs, **why, _TERMINAL: not retry_safe}, 200)
        if _COLLECTED in theirs:
            return _answer({**whole_row(rollout), **theirs}, 200)
        try:
            made = await asyncio.to_thread(trained_row, rollout, self._forks)
            return _answer({**self._counted(made), **theirs}, 200)
        except NotTrainable as error:
            self.counts["failed"] += 1
            return _answer({"error": str(error)}, _NOT_TRAINABLE)

    def _counted(self, made: TrainedRow) -> dict[str, Any]:
        """The row, counted."""
        counts = self.counts
        counts["rollouts"] += 1
        counts["sampled_tokens"] += made.sampled
        if made.trained < made.sampled:
            counts["forked"] += 1
            counts["lost_tokens"] += made.sampled - made.trained
            if counts["forked"].bit_count() == 1:  # said whenever twice as many
                _log.warning(
                    "%d of %d rollouts had tokens that NeMo RL can't train (a fork, or tokens "
                    "that were not sampled freely). So far %.1f %% of all sampled tokens are lost",
                    counts["forked"],
                    counts["rollouts"],
                    100 * counts["lost_tokens"] / counts["sampled_tokens"],
                    extra={"urgent": True},
                )
        return made.row

    async def _metrics(self, request: web.Request) -> web.Response:
        """What NeMo Gym's own collection asks for at its end: the mean of what was judged."""
        try:
            body = loads(await request.read())
            rows = body["verify_responses"] if isinstance(body, dict) else []
            return _answer(metrics_of(rows if isinstance(rows, list) else []), 200)
        except (CodecError, KeyError):
            return _answer(
                {"error": "the request's body must have the key `verify_responses`, a list"}, 400
            )


def metrics_of(rows: Sequence[Any]) -> dict[str, Any]:
    """NeMo Gym's AggregateMetrics of rows. Pure."""
    rewards = [
        float(row["reward"])
        for row in rows
        if isinstance(row, dict) and isinstance(row.get("reward"), int | float)
    ]
    failed = sum(isinstance(row, dict) and _FAILED in row for row in rows)
    key = {"mean/reward": fmean(rewards)} if rewards else {}
    counts = {"rollouts": len(rewards), "failed": failed}
    return {"agent_metrics": {**key, **counts}, "key_metrics": key, "group_level_metrics": []}


def _answer(body: Any, status: int) -> web.Response:
    return web.Response(body=dumps(body), status=status, content_type="application/json")
