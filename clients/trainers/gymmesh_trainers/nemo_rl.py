"""NeMo RL: a drop-in for an agent of NeMo Gym.

    python -m gymmesh_trainers.nemo_rl --environment shop.py:Shop --head http://HEAD:PORT \\
        --host 127.0.0.1 --port 8090

and in the configuration of `nemo_gym`, an agent without `entrypoint`, which is neither started nor
refused:

    gymmesh_agent: {responses_api_agents: {gymmesh: {host: 127.0.0.1, port: 8090}}}

Each row of the data names it as `agent_ref`, and is posted to `/run`. The answer is a row of ours,
which has NeMo Gym's keys: `responses_create_params`, `reward`, and `response.output` with
`prompt_token_ids`, `generation_token_ids` and `generation_log_probs`.

The policy is NeMo RL's vLLM endpoint, which the head names (`GET /global_config_dict_yaml`), or
`--model URL`. Interface: NeMo Gym 0.4.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from statistics import fmean
from typing import Any, Final

import aiohttp
import click
import yaml
from aiohttp import web

from gymmesh_client import UserError
from gymmesh_client.rollout import RolloutParts
from gymmesh_client.rows import completed_line
from gymmesh_model.config import ModelConfig
from gymmesh_responses import CodecError, dumps, dumps_sorted, loads
from gymmesh_rows import nemo_row, read_row
from gymmesh_runtime.addresses import exposure
from gymmesh_trainers.collecting import MeshPlace, Model, TrainerCollector
from gymmesh_trainers.rollouts import FailedRollout, Rollout

__all__ = ["NemoAgent", "metrics_of", "policy_of_head"]

_MAX_BODY: Final = 64 * 1024 * 1024
_HEAD_S: Final = 30.0
_FAILED: Final = "_ng_failure_class"
_TERMINAL: Final = "_ng_failure_terminal"
# NeMo Gym's own collection has this key in its rows; NeMo RL's do not.
_COLLECTED: Final = "_ng_rollout_index"
# What NeMo Gym puts into a row for itself, and no verifier reads.
_THEIRS: Final = ("agent_ref", "_rowidx", "_ng_task_index", _COLLECTED)


class NemoAgent:
    """Serves `POST /run` with rollouts in an environment.

    Args:
        place: the environment, see `gymmesh_trainers.collecting.place.MeshPlace`.
        model: the policy.
        settings: see Settings.
    """

    def __init__(self, place: MeshPlace, *, model: Model | None = None, **settings: Any) -> None:
        self._collector = TrainerCollector(place, model=model, **settings)
        self._times: Counter[bytes] = Counter()

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
        """A rollout of a row: the row with its answer. 400: no task; 502: the rollout failed.

        NeMo Gym's own collection ends at the first HTTP error, but has a file for rows that say
        why they failed; so a row of its gets that, and no reward.
        """
        try:
            row = loads(await request.read())
            if not isinstance(row, dict):
                raise UserError("the body must be a JSON object, a row of the data")
            theirs = {key: row.pop(key) for key in _THEIRS if key in row}
            rollout = await self._collector.one(row, repeat=self._repeat(row, theirs))
        except (CodecError, UserError) as error:
            return _answer({"error": str(error)}, 400)
        if isinstance(rollout, FailedRollout):
            said = {"error": rollout.why, "boundary": rollout.boundary, "reason": rollout.reason}
            if _COLLECTED not in theirs:
                return _answer(said, 502)
            row.pop("reward", None)  # a row that was a rollout once may have its old one
            # What NeMo Gym reads of it: its cause, and whether to try it again.
            said[_FAILED] = f"{rollout.boundary}/{rollout.reason}"
            retry_safe = rollout.message.failed.failure.retry_safe
            return _answer({**row, **theirs, **said, _TERMINAL: not retry_safe}, 200)
        return _answer({**_row_of(rollout), **theirs}, 200)

    def _repeat(self, row: Mapping[str, Any], theirs: Mapping[str, Any]) -> int:
        """Which repeat of its task a row is. It matters where the task has a seed: with the same
        one, a group would be one answer many times.
        """
        said = theirs.get(_COLLECTED)
        if type(said) is int and said >= 0:
            return said
        if row.get("seed") is None:
            return 0
        key = blake2b(dumps_sorted(row), digest_size=16).digest()
        self._times[key] += 1
        return self._times[key] - 1

    async def _metrics(self, request: web.Request) -> web.Response:
        """What NeMo Gym's own collection asks for at its end: the mean of what was judged."""
        try:
            body = loads(await request.read())
            rows = body["verify_responses"] if isinstance(body, dict) else []
            return _answer(metrics_of(rows if isinstance(rows, list) else []), 200)
        except (CodecError, KeyError):
            return _answer({"error": "the body must have `verify_responses`, a list"}, 400)


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


def _row_of(rollout: Rollout) -> dict[str, Any]:
    """The row of a completed rollout, with whole token lists."""
    line, _ = completed_line(rollout.task.message, RolloutParts.of(rollout.message))
    return nemo_row(read_row(line))


async def policy_of_head(head: str) -> ModelConfig:
    """The policy that NeMo Gym's head server names. Raises UserError."""
    url = f"{head.rstrip('/')}/global_config_dict_yaml"
    timeout = aiohttp.ClientTimeout(total=_HEAD_S)
    try:
        async with aiohttp.ClientSession(timeout=timeout) as session, session.get(url) as answer:
            answer.raise_for_status()
            # A JSON text that holds YAML.
            found = yaml.safe_load(json.loads(await answer.text()))
    except (aiohttp.ClientError, TimeoutError, ValueError, yaml.YAMLError) as error:
        raise UserError(f"{url}: cannot be read: {error or type(error).__name__}") from None
    base = found.get("policy_base_url") if isinstance(found, dict) else None
    urls = [base] if isinstance(base, str) else base
    if not isinstance(urls, list) or not urls or not all(isinstance(one, str) for one in urls):
        raise UserError(f"{url}: names no policy_base_url")
    name = found.get("policy_model_name")
    model = name if isinstance(name, str) else None
    return ModelConfig(backend="vllm", urls=urls, model=model)


def _answer(body: Any, status: int) -> web.Response:
    return web.Response(body=dumps(body), status=status, content_type="application/json")


@click.command()
@click.option("--environment", required=True, help="A name, package.module:Class or file.py:Class.")
@click.option("--head", help="NeMo Gym's head server, as http://HOST:PORT.")
@click.option("--model", help="Instead: the policy's endpoint, as http://HOST:PORT/v1.")
@click.option("--host", default="127.0.0.1", show_default=True)
@click.option("--port", type=int, required=True)
@click.option("--insecure", is_flag=True, help="Allow a --host that other machines can reach.")
def main(
    environment: str, head: str | None, model: str | None, host: str, port: int, insecure: bool
) -> None:
    """Serve an environment as an agent of NeMo Gym."""
    if (head is None) == (model is None):
        raise click.UsageError("give either --head or --model")
    # NeMo Gym's servers speak plain HTTP among themselves, and so must this one.
    if said := exposure("the agent", host, "run rollouts"):
        if not insecure:
            raise click.UsageError(f"{said}; --insecure allows it")
        click.echo(said, err=True)

    async def application() -> web.Application:
        policy: Model | None = model if head is None else await policy_of_head(head)
        return NemoAgent(environment, model=policy).application()

    try:
        web.run_app(application(), host=host, port=port)
    except UserError as error:
        raise click.ClickException(str(error)) from None


if __name__ == "__main__":
    main()
