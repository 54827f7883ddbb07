"""How to collect."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from gymmesh.agent.v1 import agent_pb2
from gymmesh.rollout.v1 import rollout_pb2 as pb
from gymmesh_client.collector.order import Order
from gymmesh_client.dispatch import DispatchOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectOptions(DispatchOptions):
    """How to collect, in addition to DispatchOptions.

    Attributes:
        repeats: rollouts per task.
        order: which rollouts start first.
        length: for longest-first: tokens per rollout of a task; None: estimated from the prompt.
        timeout_s: time limit of one attempt, in seconds. `rollout_s` limits all attempts of a
            rollout together.
        deadline_s: seconds after which the run starts no more attempts. Running attempts then get
            `grace_s`.
        grace_s: seconds that running attempts get after the first `interrupt`.
        group_s: time limit for scoring a group together, in seconds.
        hand_out: for a trainer: no new group starts while this many finished groups are
            unacknowledged; 0: groups are not sent to a trainer.
        hand_out_parts: whether to send groups that an earlier session started; they contain only
            this session's rollouts.
        consumer_lease_s: how many seconds one of several consumers that share the groups may be
            without a stream. After that, its groups are sent to other consumers.
        rollout: options sent with each rollout.
    """

    repeats: int = 1
    order: Order = Order.TASKS
    length: Callable[[pb.Task], float] | None = None
    timeout_s: float = 900.0
    deadline_s: float = float("inf")
    grace_s: float = 10.0
    group_s: float = 300.0
    hand_out: int = 0
    hand_out_parts: bool = False
    consumer_lease_s: float = 60.0
    rollout: agent_pb2.RolloutOptions | None = None

    def __post_init__(self) -> None:
        if self.hand_out and self.order is Order.INTERLEAVED and self.repeats > 1:
            # All groups would be open until the last round, and all in memory.
            raise ValueError(
                "order: hand_out needs whole groups, but Order.INTERLEAVED finishes all groups "
                "at the end. Choose another order"
            )
