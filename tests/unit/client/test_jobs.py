"""What agents are asked for."""

from __future__ import annotations

from gymmesh.agent.v1 import agent_pb2
from gymmesh.rollout.v1 import rollout_pb2 as pb
from gymmesh_client.jobs import Requests, repeat_seed
from gymmesh_client.order import Job


def job(task: pb.Task, repeat: int) -> Job:
    name = f"ro-{task.task_id}-{repeat}"
    return Job(task, repeat, task.environment, task.agent, task.task_id, name)


def test_repeats_are_asked_for_alike_in_messages_of_their_own() -> None:
    task = pb.Task(task_id="t", environment="sums", agent="solo", seed=5, tags={"kind": "easy"})
    options = agent_pb2.RolloutOptions(deltas=True)
    requests = Requests("run-1", options)
    made = [requests.of(job(task, repeat), 1) for repeat in range(4)]
    for repeat, request in enumerate(made):
        expected = pb.Task()
        expected.CopyFrom(task)
        expected.seed = repeat_seed(5, repeat)
        assert request == agent_pb2.RunRolloutRequest(
            task=expected, rollout_id=f"ro-t-{repeat}", attempt=1, run_id="run-1", options=options
        )
    made[2].task.tags["kind"] = "changed"
    assert made[3].task.tags["kind"] == "easy"
    assert task.tags["kind"] == "easy"


def test_tasks_in_turn_are_told_apart() -> None:
    one, other = pb.Task(task_id="one", seed=1), pb.Task(task_id="other")
    requests = Requests("run-1", None)
    for attempt in (1, 2, 3):
        for task in (one, one, other, other, other):
            request = requests.of(job(task, 0), attempt)
            assert (request.task, request.attempt) == (task, attempt)
            assert not request.HasField("options")
