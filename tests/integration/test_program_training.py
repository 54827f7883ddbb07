"""A few steps of a training whose agent is a program in a sandbox: what the trainer gets is what
the model read and wrote. That a training by such a loop raises the reward: tests/handoff/trainers.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from examples.grpo.program import program_tasks, through_program
from examples.grpo.sums import tasks
from gymmesh.rollout.v1 import rollout_pb2
from gymmesh_trainers import (
    Generation,
    SamplingParams,
    TokenBackend,
    TrainerCollector,
)
from gymmesh_trainers.rollouts import Rollout
from tests.support.docs import ROOT
from tests.support.optional import require
from tests.unit.trainers.char_model import EOS, CharTokenizer
from tests.unit.trainers.trainer_collector.engines import drawn

# Added to the id of a character, it is another token for the same character.
_OTHER = 500_000


class TwoTokensEach(CharTokenizer):
    """Reads two tokens for each character, and writes one of them: text that were tokenised again
    would have other ids than the model sampled.
    """

    def decode(self, token_ids: Sequence[int], **options: Any) -> str:
        return super().decode([one - _OTHER if one > _OTHER else one for one in token_ids])


class NotingEngine:
    """Answers a sum with a number or with none, in tokens that the tokenizer would not choose.

    Attributes:
        version: of its weights.
        noted: each call's prompt, answer and version, by rollout.
    """

    def __init__(self) -> None:
        self.version = 0
        self.noted: dict[str, list[tuple[list[int], list[int], int]]] = defaultdict(list)

    async def __call__(self, prompt: list[int], params: SamplingParams) -> Generation:
        text = TwoTokensEach().decode(prompt)
        answer = ("0", "2", "+")[drawn(text, params.seed, self.version, 3)]
        ids = [*(one + _OTHER for one in TwoTokensEach().encode(answer)), EOS]
        self.noted[params.request_id].append((prompt, ids, self.version))
        weights = [(self.version, 0)]
        return Generation(ids, [-0.5] * len(ids), finished=True, weights=weights)


def holds_what_was_noted(
    rollout: Rollout, noted: Sequence[tuple[list[int], list[int], int]]
) -> None:
    """The rollout's one sample is the model's last prompt and answer, and trains each answer."""
    said = [TwoTokensEach().decode(answer) for _, answer, _ in noted]
    # It asks until the answer is a number, three times at most.
    assert set(said[:-1]) <= {"+"}
    assert said[-1] != "+" or len(said) == 3
    prompt, answer, version = noted[-1]
    (sample,) = rollout.samples
    assert sample.tokens == prompt + answer
    answers = {at for read, wrote, _ in noted for at in range(len(read), len(read + wrote))}
    assert {place for place, on in enumerate(sample.mask) if on} == answers
    assert set(sample.weights_versions) == {-1, version}
    assert rollout.counts.sampled == rollout.counts.trained == len(answers)
    links = [one.link for one in rollout.message.model_calls]
    assert links == [rollout_pb2.CALL_LINK_CONTINUATION] * len(noted)
    assert rollout.stop_reason == "PROGRAM_EXITED"
    right = rollout.task.require("expected_answer", str)
    assert rollout.reward == float(said[-1] == right)


async def test_each_step_trains_what_the_model_wrote_for_the_program() -> None:
    require(shutil.which("bwrap"), "bubblewrap", "install the Debian package bubblewrap")
    engine = NotingEngine()
    sums = [task | {"seed": seed} for seed, task in enumerate(program_tasks(tasks(1)))]
    collector = TrainerCollector(
        through_program(),
        model=TokenBackend(TwoTokensEach(), engine),
        repeats=2,
        concurrency=4,
        params={"temperature": 1.0},
        max_staleness=0,
    )
    lengths = set[int]()
    async with collector:
        await collector.set_weights_version(0)
        for number in range(3):
            async with collector.step(sums[number : number + 2]) as step:
                groups = [group async for group in step]
            for group in groups:
                assert len(group.rollouts) == 2, group.failed
                for rollout in group.rollouts:
                    noted = engine.noted.pop(rollout.id)
                    holds_what_was_noted(rollout, noted)
                    lengths.add(len(noted))
            assert not engine.noted  # no call is of no rollout
            engine.version = number + 1
            await collector.set_weights_version(engine.version)
        assert collector.counts["rollouts"] == 12
    assert {1, 2} <= lengths, lengths  # the same everywhere: answers follow from the seeds


def test_the_loop_says_what_it_takes_without_the_libraries_that_it_trains_with() -> None:
    loop = ROOT / "examples" / "grpo" / "loop.py"
    blocked = "import sys, runpy; sys.modules['torch'] = None; sys.argv = ['loop.py', '--help']; "
    run = f"{blocked}runpy.run_path({str(loop)!r}, run_name='__main__')"
    ended = subprocess.run([sys.executable, "-c", run], capture_output=True, text=True, timeout=60)
    assert ended.returncode == 0, ended.stderr
    assert "--folder FOLDER" in ended.stdout
