"""What a rollout starts with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gymmesh.agent.v1 import agent_pb2
from gymmesh.responses.v1 import responses_pb2
from gymmesh_agent.loop import LoopLimits


# Not frozen: a frozen one takes three times as long to make, and each rollout makes one.
@dataclass(slots=True, kw_only=True)
class RolloutSetup:
    """Put together by attempt.py, and not changed any more.

    Attributes:
        params: the parameters of policy calls, session tools included, without input.
        items: the items that every conversation starts from.
        limits: the policy's limits in force.
        models: the names of model services, by role.
        model_timeout_s: seconds that one model call may take.
        task_seed: the task's seed; None: it has none.
        capture_tokens: whether tokens are captured where the options do not say.
    """

    agent: str
    rollout_id: str
    attempt: int
    params: responses_pb2.ResponseParams
    items: Sequence[responses_pb2.Item]
    options: agent_pb2.RolloutOptions
    limits: LoopLimits
    models: Mapping[str, str]
    model_timeout_s: float
    task_seed: int | None
    capture_tokens: bool = False
