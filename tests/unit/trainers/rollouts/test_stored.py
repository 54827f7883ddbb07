"""A rollout that a resumed step reads from its files trains the same tokens."""

from __future__ import annotations

from array import array

from gymmesh.model.v1 import tokens_pb2
from gymmesh.rollout.v1 import rollout_pb2 as pb
from gymmesh_client import completed_row, fold
from gymmesh_client.rollout import completed_of_row
from gymmesh_resource import Task
from gymmesh_responses import dumps
from gymmesh_rows import read_row
from gymmesh_trainers import Rollout
from tests.support.rollouts import answer, completed, make_events, make_task, verdict


def rollout() -> Rollout:
    """A chain of two calls, with forced and bound tokens, rewards of parts, and a side call."""
    calls = [answer(f"say {name}", name) for name in ("c1", "c2", "title")]
    known: list[int] = []
    for number, one in enumerate(calls):
        said = one.model_call_completed
        said.trainable, new = True, list(range(10 * number, 10 * number + 2))
        out = list(range(10 * number + 2, 10 * number + 8))
        said.tokens.prompt_prefix_tokens = len(known)
        said.tokens.prompt_token_ids = array("i", new).tobytes()
        said.tokens.output_token_ids = array("i", out).tobytes()
        said.tokens.logprobs = array("f", [-0.5] * len(out)).tobytes()
        said.tokens.logprob_distribution = tokens_pb2.LOGPROB_DISTRIBUTION_SAMPLING
        known += new + out
    first, second, side = (one.model_call_completed for one in calls)
    second.parent_call_id = "c1"
    side.parent_call_id, side.side_call = "c2", "title"
    forced, grammar = tokens_pb2.CONSTRAINT_FORCED, tokens_pb2.CONSTRAINT_GRAMMAR
    first.tokens.constrained.add(first_token=0, tokens=2, constraint=forced)
    first.tokens.constrained.add(first_token=4, tokens=1, constraint=grammar)
    judged = verdict(1.0)
    spans = judged.verified.verification.spans
    spans.add(name="plan", value=0.5, last_call_id="c1", first_token=1, end_token=4)
    spans.add(value=0.25, last_call_id="c2")
    turned = pb.RolloutEvent()
    turned.turn_completed.CopyFrom(pb.TurnCompleted(turn=1, model_call_id="c1", reward=2.0))
    calls.insert(1, turned)
    task = make_task()
    events = make_events("ro", 1, *calls, judged, completed(), task=task)
    return Rollout(fold(events, "ro"), Task(task))


def test_what_is_trained_and_what_it_earned_is_the_same() -> None:
    made = rollout()
    row = dumps(completed_row(made.task.message, made.message))
    stored = Rollout(completed_of_row(read_row(row)), made.task)
    assert stored.counts == made.counts
    assert (made.counts.forced, made.counts.grammar, made.counts.side) == (2, 1, 6)
    assert stored.samples == made.samples
    [sample] = stored.samples
    assert [place for place, on in enumerate(sample.mask) if on] == [4, 5, 7, *range(10, 16)]
    assert {place: value for place, value in enumerate(sample.rewards) if value} == {
        5: 0.5, 7: 2.0, 15: 0.25
    }  # fmt: skip
    said = stored.message.model_calls[0].tokens.logprob_distribution
    assert said == tokens_pb2.LOGPROB_DISTRIBUTION_SAMPLING
