"""The records of an export, as lines of JSON, in a fixed order."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from hashlib import blake2b
from pathlib import Path
from typing import Final

from msgspec import UNSET

from gymmesh_data.actors import actors_of
from gymmesh_data.conversation import (
    AS_TEXT,
    Conversation,
    arguments_as_text,
    beginning_of,
    conversation_of,
    numbered_calls,
)
from gymmesh_data.exports.format import (
    Format,
    KeptOfTask,
    OfPair,
    OfRollout,
    OfTask,
    PairFacts,
    Taken,
    TaskFacts,
    TokenPlace,
)
from gymmesh_data.exports.lines import line_of, read_line
from gymmesh_data.exports.spool import Spool
from gymmesh_data.exports.summary import ExportOptions, ExportSummary
from gymmesh_data.pairs import Pair, choose_pairs, pair_of
from gymmesh_data.rollout import StoredRollout
from gymmesh_data.samples import NoTokens
from gymmesh_data.selection import share_of
from gymmesh_responses import JsonValue, loads

_NOT_CARRIED = "token ids of rollouts"
_OF_ACTORS = "conversations of actors"
_LEFT = "conversations that the agent abandoned, for example after a summary"
_TEXT_LEFT = "text of conversations that the agent abandoned (their tokens are exported)"
_ALL_FAILED = "tasks without a completed rollout"
# What is not judged is worse than any reward, and told from 0 by being no number.
_NOT_JUDGED: Final = float("-inf")


def records(
    rollouts: Iterable[StoredRollout],
    form: Format,
    options: ExportOptions,
    summary: ExportSummary,
    spool: Path,
    failed: Iterable[StoredRollout] = (),
) -> Iterator[bytes]:
    """The lines of an export, each with its newline. Counts go to `summary`. `spool`: the path of a
    temporary file. `failed`: the failed rollouts, which formats of tasks read last, to count tasks
    without a record. Raises UserError if a rollout's row is malformed.
    """
    making = _Records(form, options, summary, spool)
    selected = making.selected(rollouts)
    if form.of_task is not None:
        yield from making.of_tasks(selected, failed, *form.of_task)
    elif form.of_pair is not None:
        yield from making.of_pairs(making.chosen(selected), form.of_pair)
    elif form.of_rollout is not None:
        yield from making.of_rollouts(making.chosen(selected), form.of_rollout)


class _Records:
    """One export: its format and options, and where it counts."""

    def __init__(
        self, form: Format, options: ExportOptions, summary: ExportSummary, spool: Path
    ) -> None:
        self._form = form
        self._options = options
        self._summary = summary
        self._spool = spool
        reasoning = form.style.keep_reasoning and options.reasoning
        self._style = replace(form.style, keep_reasoning=reasoning)

    def selected(self, rollouts: Iterable[StoredRollout]) -> Iterator[StoredRollout]:
        """The rollouts that the selection accepts."""
        summary, part = self._summary, self._options.part
        for rollout in rollouts:
            if part is not None and not part[0] <= share_of(rollout.task_id) < part[1]:
                continue
            summary.rollouts += 1
            if refusal := self._options.selection.refusal(rollout):
                summary.left_out[refusal] += 1
                continue
            summary.environments[rollout.environment or "(none)"] += 1
            if rollout.model:
                summary.models[rollout.model] += 1
            # No format has a place for it; the rows have the references.
            for name in _side_data(rollout):
                summary.losses[f"side data '{name}' of rollouts"] += 1
            yield rollout

    def chosen(self, selected: Iterable[StoredRollout]) -> Iterator[Taken]:
        """The rollouts that are not empty and not duplicates. Token ids, actors and earlier
        conversations that the format can't represent are counted.
        """
        form, summary, distinct = self._form, self._summary, self._options.selection.distinct
        known = set[bytes]()
        # Ids alone need no messages, but where these tell one rollout from another.
        in_words = distinct or form.tokens is not TokenPlace.ONLY
        for rollout in selected:
            said = conversation_of(rollout, self._style) if in_words else Conversation()
            if not (said.answered if in_words else any(rollout.answers())):
                summary.left_out["rollouts without an answer"] += 1
                continue
            if distinct:
                digest = _digest([numbered_calls(said.messages), said.tools])
                if digest in known:
                    summary.left_out["duplicates of an earlier rollout"] += 1
                    continue
                known.add(digest)
            if form.tokens is TokenPlace.NONE and said.token_calls:
                said.losses[_NOT_CARRIED] += 1
            if form.tokens is not TokenPlace.ONLY and len(rollout.agent_paths) > 1:
                in_samples = form.tokens is TokenPlace.SAMPLES and self._options.tokens
                left = _TEXT_LEFT if in_samples and said.token_calls else _LEFT
                said.losses[left] += len(rollout.agent_paths) - 1
            if not form.actors:
                for actor in actors_of(rollout):
                    said.losses[_OF_ACTORS] += len(actor.conversations)
            yield Taken(rollout, said, self._options.tokens, self._style)

    def of_rollouts(self, chosen: Iterable[Taken], of_rollout: OfRollout) -> Iterator[bytes]:
        """The lines of all rollouts, or of each task's best rollouts. Of equal rollouts, the first
        are kept.
        """
        most = self._options.selection.per_task
        if most is None:
            for taken in chosen:
                yield self._lines(taken, of_rollout)
            return
        with Spool(self._spool) as spool:
            for taken in chosen:
                if lines := self._lines(taken, of_rollout):
                    task = spool.number(_task_key(taken.rollout))
                    spool.add(task, _score(taken.rollout), lines)
            for scored in spool.tasks():
                ranked = sorted(scored, key=lambda found: (-found[0], found[1]))
                if len(ranked) > most:
                    self._summary.left_out[
                        "rollouts that are not among the best of their task"
                    ] += len(ranked) - most
                for number in sorted(number for _, number in ranked[:most]):
                    yield spool.content(number)

    def of_tasks(
        self,
        selected: Iterable[StoredRollout],
        failed: Iterable[StoredRollout],
        keep: KeptOfTask,
        make: OfTask,
    ) -> Iterator[bytes]:
        """A line for each task, in the order of their first rollouts."""
        losses, tasks = self._summary.losses, 0
        with Spool(self._spool) as spool:
            for rollout in selected:
                task, content = spool.number(_task_key(rollout)), b""
                if task > tasks:  # a new one
                    tasks = task
                    # What came after its beginning is none of its task's.
                    taken = Taken(rollout, beginning_of(rollout, self._style))
                    content = line_of(keep(taken))
                    losses.update(taken.said.losses)
                    self._summary.changed.update(taken.said.changed)
                if rollout.has_tokens:
                    losses[_NOT_CARRIED] += 1
                spool.add(task, _score(rollout), content)
            for number, scored in enumerate(spool.tasks()):
                rewards = [reward for reward, _ in scored if reward != _NOT_JUDGED]
                facts = TaskFacts(number, rewards, len(scored), self._options.agent)
                yield line_of(make(read_line(spool.content(scored[0][1])), facts))
            keys = (_task_key(one) for one in failed if self._is_asked_for(one))
            if missing := max(map(spool.number, keys), default=tasks) - tasks:
                self._summary.left_out[_ALL_FAILED] += missing

    def _is_asked_for(self, rollout: StoredRollout) -> bool:
        """Whether a failed rollout is of a task that the selection accepts."""
        names, part = self._options.selection.environments, self._options.part
        if part is not None and not part[0] <= share_of(rollout.task_id) < part[1]:
            return False
        return not names or rollout.environment in names

    def of_pairs(self, chosen: Iterable[Taken], of_pair: OfPair) -> Iterator[bytes]:
        """A line for each pair of a task's rollouts."""
        summary, rules = self._summary, self._options.pairs
        with Spool(self._spool) as spool:
            for taken in chosen:
                rollout, said = taken.rollout, taken.said
                if rollout.reward is None:
                    summary.left_out["rollouts without a reward"] += 1
                    continue
                found = (rollout.task_id, rollout.rollout_id, said.messages, said.tools)
                content = line_of([*found, dict(said.losses)])
                spool.add(spool.number(_task_key(rollout)), rollout.reward, content)
            for scored in spool.tasks():
                pairs = list(choose_pairs([(one[0], one) for one in scored], rules))
                if not pairs:
                    summary.left_out["tasks without two rewards that differ enough"] += 1
                for both in pairs:
                    better, worse = (loads(spool.content(number)) for _, number in both)
                    pair = pair_of(better[2], worse[2], rules)
                    if pair is None or better[3] != worse[3]:
                        summary.left_out["pairs whose rollouts do not differ in an answer"] += 1
                        continue
                    for one in (better, worse):
                        summary.losses.update(one[4])
                    self._count_changed(pair)
                    ids, rewards = (better[1], worse[1]), (both[0][0], both[1][0])
                    yield line_of(of_pair(pair, PairFacts(better[0], ids, rewards, better[3])))

    def _count_changed(self, pair: Pair) -> None:
        """Count what a pair has in another form: it may end before its rollouts do."""
        if self._style.arguments_as_objects:
            for messages in (pair.prompt, pair.chosen, pair.rejected):
                if count := arguments_as_text(messages):
                    self._summary.changed[AS_TEXT] += count

    def _lines(self, taken: Taken, of_rollout: OfRollout) -> bytes:
        """A rollout's lines; none where it has no token ids and the format is made of them."""
        try:
            lines = b"".join(map(line_of, of_rollout(taken)))
        except NoTokens as error:
            self._summary.left_out[error.why] += 1
            return b""
        self._summary.losses.update(taken.said.losses)
        self._summary.changed.update(taken.said.changed)
        return lines


def _score(rollout: StoredRollout) -> float:
    return _NOT_JUDGED if rollout.reward is None else rollout.reward


def _task_key(rollout: StoredRollout) -> str:
    """What tells a task from all others: ids are only unique within a task file, and the rollouts
    may be of several, so the environment and the prompt belong to it.
    """
    given = _digest(rollout.columns.params.get("input")).hex()
    return "\0".join((rollout.environment, given, rollout.task_id))


def _digest(value: JsonValue) -> bytes:
    return blake2b(line_of(value), digest_size=16).digest()


def _side_data(rollout: StoredRollout) -> set[str]:
    """The names of the side data that its calls have."""
    return {
        side.name
        for call in rollout.columns.calls
        if call.tokens is not UNSET
        for side in call.tokens.side_data
    }
