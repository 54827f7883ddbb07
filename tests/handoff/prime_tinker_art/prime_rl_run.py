"""An episode group of ours through prime-rl's own environment server, client and train sink.

Imported where prime-rl's repository is in `sys.path`, see prime_rl_source.py.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import verifiers.v1 as vf
from prime_rl.configs.orchestrator import OrchestratorConfig
from prime_rl.orchestrator.envs import TrainEnvs
from prime_rl.orchestrator.train_sink import TrainSink
from prime_rl.orchestrator.types import Progress
from prime_rl.utils.client import InferencePool

from tests.handoff.prime_tinker_art.prime_rl_source import FOLDERS
from tests.handoff.prime_tinker_art.vllm_server import GenerateServer, generate_served
from tests.handoff.trainers.families import FAMILIES, Family
from tests.handoff.trainers.test_append_only import TASK, written

PLACE: Final = f"{Path(__file__).with_name('huts.py')}:ScoredHut"
# The images of a branch, of which verifiers 0.4 keeps none; prime-rl of August asks for them.
if "multi_modal_data" not in dir(vf.Branch):
    vf.Branch.multi_modal_data = None

QWEN: Final = next(one for one in FAMILIES if one.name == "qwen3")
CALLS: Final = 6
_END_S: Final = 60


class Policy:
    """Says what `written` says; the last answer differs by the episode. They come one by one."""

    def __init__(self, family: Family, tokenizer: Any, last: list[str | Exception]) -> None:
        self._family, self._tokenizer, self._last = family, tokenizer, last
        self.episode = 0
        self._said = 0

    def next_episode(self) -> None:
        self.episode += 1
        self._said = 0

    def sample(self, prompt: list[int]) -> list[int]:
        text, calls = written(self._family)[self._said]
        self._said += 1
        if self._said == CALLS:
            last = self._last[self.episode]
            if isinstance(last, Exception):
                raise last
            text = text.replace("No more.", last)
        # What one episode says is said in no other.
        text = text.replace("think", f"think, for the {self.episode}. time")
        ids = self._tokenizer.encode(text, add_special_tokens=False)
        return [*ids, self._tokenizer.convert_tokens_to_ids(self._family.stops[calls])]


def config_of(folder: Path, url: str, group_size: int) -> OrchestratorConfig:
    """As `[orchestrator]` of a run's TOML says it."""
    tasks = folder / "tasks.jsonl"
    tasks.write_text(json.dumps(TASK) + "\n")
    taskset = {"id": "gymmesh-taskset", "place": PLACE, "tasks": str(tasks)}
    agent = {"harness": {"id": "chat_harness"}, "runtime": {"type": "subprocess"}}
    source = {
        "name": "hut",
        "env": {"taskset": taskset, "agent": agent},
        "serve": {"address": f"ipc://{folder}/env", "pool": {"type": "static", "num_workers": 1}},
        "group_size": group_size,
    }
    return OrchestratorConfig(
        model={"name": str(folder / "policy"), "client": {"base_url": url}},
        train={"source": [source]},
        renderer={"name": "qwen3"},
        batch_size=group_size,
    )


@asynccontextmanager
async def env_server(
    folder: Path, config: OrchestratorConfig
) -> AsyncIterator[asyncio.subprocess.Process]:
    """prime-rl's own `env-server` for the source."""
    [source] = config.train.source
    said = {
        "env": source.env.model_dump(mode="json"),
        "serve": source.serve.model_dump(mode="json"),
    }
    (folder / "server.json").write_text(json.dumps(said))
    paths = [Path(__file__).parents[3], *FOLDERS]
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "prime_rl.entrypoints.env_server", "@", str(folder / "server.json"),
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, paths))}, cwd=folder,
    )  # fmt: skip
    try:
        yield process
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGTERM)
        try:
            await asyncio.wait_for(process.wait(), _END_S)
        except TimeoutError:
            process.kill()
            await process.wait()


async def trained_batch(folder: Path, last: list[str | Exception], traces: int) -> Any:
    """A group of as many episodes as there are last answers, through prime-rl's train sink.

    Gives a batch of so many traces, the server that sampled, and the episodes.
    """
    tokenizer = QWEN.tokenizer()
    tokenizer.save_pretrained(folder / "policy")
    policy = Policy(QWEN, tokenizer, last)
    server = GenerateServer(policy.sample)
    async with generate_served(server) as url:
        config = config_of(folder, url, len(last))
        pool = InferencePool(
            config.model.client, config.model.name, "renderer", renderer_config=config.renderer
        )
        envs = TrainEnvs(
            config.train.source, config.env_addresses, policy_pool=pool,
            renderer_config=config.renderer,
        )  # fmt: skip
        sink = TrainSink(
            config, tokenizer=tokenizer, train_envs=envs, mm_token_type_ids_mapping=None,
            progress=Progress(), batch_size=traces, token_batch_size=None,
        )  # fmt: skip
        episodes = []
        batch = None
        async with env_server(folder, config) as process:
            starting = asyncio.create_task(envs.start())
            ending = asyncio.create_task(process.wait())
            await asyncio.wait((starting, ending), return_when=asyncio.FIRST_COMPLETED)
            if ending.done():
                starting.cancel()
            ending.cancel()
            assert not starting.cancelling(), "the environment server ended"
            await starting
            env = envs.get("hut")
            [task] = env.tasks
            group = vf.GroupInfo(id=str(uuid.uuid4()))
            for _ in last:
                # One at a time, as the policy counts its answers.
                episode = await env.run(
                    pool.train_client, pool.model_name, None, task.data.model_dump(mode="json")
                )
                # As prime-rl's dispatcher writes it.
                episode.env.name, episode.group = "hut", group
                work = vf.TrainWorkInfo(step=1, policy=vf.PolicySpan(start=0, end=0))
                episode.record_run(vf.TrainRunInfo(id="run", name="run", work=work))
                episodes.append(episode)
                batch = await sink.add(episode)
                policy.next_episode()
            await env.env_client.close()
        await pool.stop()
    return batch, server, episodes
