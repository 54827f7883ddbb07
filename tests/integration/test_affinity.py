"""A rollout's calls stay with one environment instance and one model instance of several."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Final

from gymmesh.agent.v1 import agent_pb2
from gymmesh.rollout.v1 import rollout_pb2
from gymmesh_agent.config import AgentConfig
from gymmesh_agent.service import AgentService
from gymmesh_client import TaskDefaults, TaskReader, run_attempt
from gymmesh_client.tasks import TaskRow
from gymmesh_discovery.service import DiscoveryService
from gymmesh_mesh import Mesh, remote
from gymmesh_model.config import ModelConfig
from gymmesh_model.service import ModelService
from gymmesh_resource.config import EnvironmentConfig
from gymmesh_resource.service import ResourceService
from gymmesh_runtime.serve import ServeOptions, serving
from tests.support.cli import sums, write_tasks
from tests.unit.runtime.probe import MODEL, until

RESOURCE: Final = "gymmesh.resource.v1.ResourceService"
ROLLOUTS: Final = 24
Seen = dict[str, set[str]]  # by rollout: the instances that its calls came to


class Noting:
    """A servicer whose calls are noted."""

    def __init__(self, servicer: object, note: Callable[[Any], None]) -> None:
        self._servicer = servicer
        self._note = note

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._servicer, name)  # AttributeError: not offered

        def noted(request: Any, *more: Any) -> Any:
            self._note(request)
            return method(request, *more)

        return noted


class NotedModel(ModelService):
    def __init__(self, config: ModelConfig, instance_id: str, seen: Seen) -> None:
        super().__init__(config, "policy", instance_id)
        self._noted_in = seen

    def servicers(self) -> Mapping[str, object]:
        return {key: Noting(one, self._note_call) for key, one in super().servicers().items()}

    def _note_call(self, request: Any) -> None:
        call = getattr(request, "call", request)  # of StreamResponse
        if getattr(call, "rollout_id", ""):
            self._noted_in[call.rollout_id].add(self.instance_id)


class NotedEnvironment(ResourceService):
    def __init__(self, instance_id: str, seen: Seen) -> None:
        super().__init__(EnvironmentConfig(), "math", instance_id)
        self._noted_in = seen

    def servicers(self) -> Mapping[str, object]:
        return {key: Noting(one, self._note_call) for key, one in super().servicers().items()}

    def _note_call(self, request: Any) -> None:
        fields = request.DESCRIPTOR.fields_by_name
        if "session_id" in fields and request.session_id:
            self._noted_in[request.session_id].add(self.instance_id)
        if "rollout_id" in fields and request.rollout_id:
            self._noted_in[f"rollout {request.rollout_id}"].add(self.instance_id)


def replaying(folder: Path) -> ModelConfig:
    path = folder / "answers.jsonl"
    call = {"type": "function_call", "name": "calculator", "call_id": "call_1"}
    call["arguments"] = '{"expression": "1 + 1"}'
    path.write_text(json.dumps({"match": "*", "answers": [{"output": [call]}, {"text": "2"}]}))
    return ModelConfig(backend="replay", path=str(path))


async def collect(mesh: Mesh, tasks: Path, attempt: int) -> None:
    reader = TaskReader(TaskDefaults(environment="math", agent="tool_loop"))
    for number, row in enumerate(reader.read(tasks)):
        assert isinstance(row, TaskRow)
        request = agent_pb2.RunRolloutRequest(
            task=row.task, rollout_id=f"r{number}", attempt=attempt
        )
        ended = await run_attempt(mesh.agents.connect, request, repeat_index=0, timeout_s=120.0)
        assert isinstance(ended, rollout_pb2.Rollout), ended


async def test_a_rollout_stays_where_its_session_and_its_prefix_are(tmp_path: Path) -> None:
    models: Seen = defaultdict(set)
    sessions: Seen = defaultdict(set)
    tasks = write_tasks(tmp_path, sums(ROLLOUTS))
    async with AsyncExitStack() as stack:
        registry = DiscoveryService("registry-0")
        plain = ServeOptions(metrics_port=None, drain_s=1.0)
        served = await stack.enter_async_context(serving(registry, plain))
        found = ServeOptions(
            metrics_port=None, drain_s=1.0, discovery_address=served.instance.address
        )
        config = replaying(tmp_path)
        leaving = AsyncExitStack()
        await leaving.enter_async_context(serving(NotedModel(config, "m0", models), found))
        stack.push_async_callback(leaving.aclose)
        await stack.enter_async_context(serving(NotedModel(config, "m1", models), found))
        for name in ("e0", "e1"):
            await stack.enter_async_context(serving(NotedEnvironment(name, sessions), found))
        agent = AgentService(AgentConfig(), "tool_loop", "agent-0")
        at = await stack.enter_async_context(serving(agent, found))
        mesh = await stack.enter_async_context(remote(at.instance.address))
        known = at.directory
        await until(lambda: len(known.serving(MODEL, "policy")) == 2)
        await until(lambda: len(known.serving(RESOURCE, "math")) == 2)

        await collect(mesh, tasks, 1)
        assert set(models) == {f"r{number}" for number in range(ROLLOUTS)}
        for seen in (models, sessions):
            assert all(len(instances) == 1 for instances in seen.values()), seen
            assert len({next(iter(one)) for one in seen.values()}) == 2  # both have their part

        # One goes: its rollouts go to the other, and those of the other stay.
        first = {rollout: next(iter(one)) for rollout, one in models.items()}
        await leaving.aclose()
        await until(lambda: len(known.serving(MODEL, "policy")) == 1)
        models.clear()
        await collect(mesh, tasks, 2)
        assert set(first.values()) == {"m0", "m1"}
        assert all(one == {"m1"} for one in models.values())
