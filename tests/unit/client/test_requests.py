"""What agents are asked for."""

from __future__ import annotations

from gymmesh.agent.v1 import agent_pb2
from gymmesh.rollout.v1 import rollout_pb2 as pb
from gymmesh_client.collector.requests import RolloutRequest, agent_request, repeat_seed


def test_repeats_are_asked_for_in_messages_of_their_own() -> None:
    task = pb.Task(task_id="t", environment="sums", agent="solo", seed=5, tags={"kind": "easy"})
    options = agent_pb2.RolloutOptions(deltas=True)
    for repeat in range(3):
        rollout = RolloutRequest(
            task, repeat, task.environment, task.agent, task.task_id, f"ro-t-{repeat}"
        )
        request = agent_request(rollout, 1, "run-1", options)
        expected = pb.Task()
        expected.CopyFrom(task)
        expected.seed = repeat_seed(5, repeat)
        assert request == agent_pb2.RunRolloutRequest(
            task=expected, rollout_id=f"ro-t-{repeat}", attempt=1, run_id="run-1", options=options
        )
        request.task.tags["kind"] = "changed"
        assert task.tags["kind"] == "easy"
