"""Random trees of calls, with several actors and calls that nobody learns from: the samples of a
rollout, of its row and of what is read back from it, against a count of each call's tokens.
"""

from __future__ import annotations

import random
from array import array
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import pytest

from gymmesh.model.v1 import tokens_pb2
from gymmesh.rollout.v1 import rollout_pb2 as pb
from gymmesh_client import completed_row, fold
from gymmesh_client.rollout import completed_of_row
from gymmesh_data import StoredRollout, actors_of, stored_rollout
from gymmesh_data.samples import NoTokens
from gymmesh_data.samples import samples_of as stored_samples_of
from gymmesh_responses import dumps, loads, new_message
from gymmesh_rows import read_row
from gymmesh_trainers import samples_of
from tests.support.rollouts import answer, completed, make_events, make_task, verdict

Sample = tuple[list[int], list[int], list[float], str]


@dataclass
class Call:
    """What is known of a call; each sampled id is sampled once in a rollout."""

    event: pb.RolloutEvent
    prompt: list[int]
    output: list[int]

    @property
    def said(self) -> pb.ModelCallCompleted:
        return self.event.model_call_completed

    @property
    def logprobs(self) -> list[float]:
        return [-(one % 97) / 8 for one in self.output]


class Tree:
    """A rollout of up to seven calls."""

    def __init__(self, seed: int, actors: Sequence[str], frozen: float) -> None:
        self.calls: dict[str, Call] = {}
        self._random, self._next = random.Random(seed), 100
        last: dict[str, str] = {}
        for number in range(1, self._random.randint(1, 7) + 1):
            actor = self._random.choice(actors)
            call = self._call(f"c{number}", actor, self._parent(last.get(actor, "")))
            call.said.trainable = self._random.random() >= frozen
            last[actor] = call.said.call_id
        events = [one.event for one in self.calls.values()]
        self.task = make_task()
        ended = make_events("ro", 1, *events, verdict(1.0), completed(), task=self.task)
        self.rollout = fold(ended, "ro")

    def _parent(self, own: str) -> str:
        kind = self._random.choice(["own", "own", "any", "start"])
        if kind == "any" and self.calls:
            return self._random.choice(list(self.calls))
        return own if kind == "own" else ""

    def _fresh(self, most: int) -> list[int]:
        found = list(range(self._next, self._next + self._random.randint(1, most)))
        self._next += most
        return found

    def _call(self, name: str, actor: str, parent: str) -> Call:
        event = answer(f"say {name}", name)
        said = event.model_call_completed
        said.actor, said.parent_call_id = actor, parent
        said.context_items.append(new_message("user", f"ask {name}"))
        said.detached = bool(parent) and self._random.random() < 0.2
        above = self.calls[parent] if parent and not said.detached else None
        before, new = [] if above is None else above.prompt + above.output, self._fresh(3)
        if above is not None and self._random.random() < 0.2:
            said.tokens.fork.reason = tokens_pb2.FORK_REASON_HISTORY_REWRITTEN
            before = []
        call = self.calls[name] = Call(event, before + new, self._fresh(3))
        said.tokens.prompt_prefix_tokens = len(before)
        said.tokens.prompt_token_ids = array("i", new).tobytes()
        said.tokens.output_token_ids = array("i", call.output).tobytes()
        said.tokens.logprobs = array("f", call.logprobs).tobytes()
        return call

    def check(self, samples: Sequence[Sample]) -> None:
        """Each call to be learned from is trained once, after all that it read, as its actor's;
        nothing else is.
        """
        trained: Counter[str] = Counter()
        for tokens, mask, logprobs, actor in samples:
            left = list(mask)
            for name, call in self.calls.items():
                begin, end = len(call.prompt), len(call.prompt) + len(call.output)
                if tokens[:end] == call.prompt + call.output and 1 in mask[begin:end]:
                    trained[name] += 1
                    assert mask[begin:end] == [1] * len(call.output)
                    assert logprobs[begin:end] == call.logprobs
                    assert actor == call.said.actor
                    left[begin:end] = [0] * len(call.output)
            assert 1 not in left
        assert trained == {name: 1 for name, call in self.calls.items() if call.said.trainable}


def live(rollout: pb.Rollout) -> list[Sample]:
    found = samples_of(rollout.model_calls)
    return [(one.tokens, one.mask, one.logprobs, one.actor) for one in found]


def stored(rollout: StoredRollout) -> list[Sample]:
    said = [("", rollout)]
    for actor in actors_of(rollout):
        said += [(actor.name, one) for one in actor.conversations if actor.trainable]
    found = list[Sample]()
    for name, one in said:
        try:
            samples = stored_samples_of(one)
        except NoTokens:
            continue
        found += [(each.input_ids, each.mask, each.logprobs, name) for each in samples]
    return found


@pytest.mark.parametrize("frozen", [0.0, 0.3])
@pytest.mark.parametrize("actors", [[""], ["", "critic"], ["white", "black"]], ids=str)
def test_each_call_is_trained_once_and_as_its_actors(actors: list[str], frozen: float) -> None:
    for seed in range(150):
        tree = Tree(seed, actors, frozen)
        tree.check(live(tree.rollout))
        row = loads(dumps(completed_row(tree.task, tree.rollout)))
        tree.check(stored(stored_rollout(row, "x:1")))
        tree.check(live(completed_of_row(read_row(dumps(row)))))
