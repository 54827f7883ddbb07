"""The records of an export, as lines of JSON, in an order that is the same each time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from hashlib import blake2b
from pathlib import Path

import msgspec

from gymmesh_data.actors import actors_of
from gymmesh_data.conversation import ChatStyle, Conversation, conversation_of, numbered_calls
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
    has_tokens,
)
from gymmesh_data.exports.lines import line_of
from gymmesh_data.exports.spool import Spool
from gymmesh_data.exports.summary import ExportOptions, ExportSummary
from gymmesh_data.pairs import choose_pairs, pair_of
from gymmesh_data.rollout import StoredRollout, is_answer
from gymmesh_data.samples import NoTokens
from gymmesh_data.selection import share_of
from gymmesh_responses import loads

_NOT_CARRIED = "token ids of rollouts"
_OF_ACTORS = "conversations of actors"


def records(
    rollouts: Iterable[StoredRollout],
    form: Format,
    options: ExportOptions,
    summary: ExportSummary,
    spool: Path,
) -> Iterator[bytes]:
    """The lines of an export, each with its newline. What is counted goes to `summary`.

    Args:
        spool: where a file may stand meanwhile.

    Raises:
        UserError: a rollout's row is malformed.
    """
    style = replace(form.style, keep_reasoning=form.style.keep_reasoning and options.reasoning)
    selected = _selected(rollouts, options, summary)
    if form.of_task is not None:
        yield from _task_lines(selected, style, form.of_task, options, summary, spool)
        return
    chosen = _chosen(selected, style, form, options, summary)
    if form.of_pair is not None:
        yield from _pair_lines(chosen, form.of_pair, options, summary, spool)
        return
    assert form.of_rollout is not None
    if options.selection.per_task is None:
        for taken in chosen:
            yield _lines(taken, form.of_rollout, summary)
    else:
        yield from _best_lines(chosen, form.of_rollout, options.selection.per_task, summary, spool)


def _selected(
    rollouts: Iterable[StoredRollout], options: ExportOptions, summary: ExportSummary
) -> Iterator[StoredRollout]:
    """The rollouts that the selection takes."""
    selection, part = options.selection, options.part
    for rollout in rollouts:
        if part is not None and not part[0] <= share_of(rollout.task_id) < part[1]:
            continue
        summary.rollouts += 1
        refusal = selection.refusal(rollout)
        if refusal:
            summary.left_out[refusal] += 1
        else:
            yield rollout


def _chosen(
    selected: Iterable[StoredRollout],
    style: ChatStyle,
    form: Format,
    options: ExportOptions,
    summary: ExportSummary,
) -> Iterator[Taken]:
    """The rollouts that have something to tell, and not what another one told, with their messages.

    Token ids and conversations of actors that the format has no place for are counted.
    """
    distinct, known = options.selection.distinct, set[bytes]()
    # Ids alone need no messages, but where these tell one rollout from another.
    in_words = distinct or form.tokens is not TokenPlace.ONLY
    for rollout in selected:
        said = conversation_of(rollout, style) if in_words else Conversation()
        if not (said.answered if in_words else any(map(is_answer, rollout.output))):
            summary.left_out["without an answer"] += 1
            continue
        if distinct:
            told = line_of([numbered_calls(said.messages), said.tools])
            digest = blake2b(told, digest_size=16).digest()
            if digest in known:
                summary.left_out["the same as another"] += 1
                continue
            known.add(digest)
        if form.tokens is TokenPlace.NONE and said.token_items:
            said.losses[_NOT_CARRIED] += 1
        if not form.actors:
            for actor in actors_of(rollout):
                said.losses[_OF_ACTORS] += len(actor.conversations)
        yield Taken(rollout, said, options.tokens, style)


def _lines(taken: Taken, of_rollout: OfRollout, summary: ExportSummary) -> bytes:
    """The lines of a rollout; none where it has no token ids and the format is made of them."""
    try:
        lines = b"".join(map(line_of, of_rollout(taken)))
    except NoTokens:
        summary.left_out["without token ids"] += 1
        return b""
    if taken.said.losses:
        summary.losses += taken.said.losses
    return lines


def _best_lines(
    chosen: Iterable[Taken], of_rollout: OfRollout, most: int, summary: ExportSummary, path: Path
) -> Iterator[bytes]:
    """The lines of each task's best rollouts; of equal ones the first."""
    with Spool(path) as spool:
        for taken in chosen:
            lines = _lines(taken, of_rollout, summary)
            if lines:
                # Not judged is worse than any reward.
                reward = taken.rollout.reward
                task, _ = spool.task(_task_key(taken.rollout))
                spool.add(task, float("-inf") if reward is None else reward, lines)
        for scored in spool.tasks():
            ranked = sorted(scored, key=lambda found: (-found[0], found[1]))
            if len(ranked) > most:
                summary.left_out["not among the best of its task"] += len(ranked) - most
            for number in sorted(number for _, number in ranked[:most]):
                yield spool.content(number)


def _task_lines(
    selected: Iterable[StoredRollout],
    style: ChatStyle,
    of_task: tuple[KeptOfTask, OfTask],
    options: ExportOptions,
    summary: ExportSummary,
    path: Path,
) -> Iterator[bytes]:
    """A line for each task, in the order of their first rollouts."""
    keep, make = of_task
    with Spool(path) as spool:
        for rollout in selected:
            task, is_new = spool.task(_task_key(rollout))
            content = b""
            if is_new:
                # What came after its beginning is none of its task's.
                begun = msgspec.structs.replace(rollout, output=[])
                taken = Taken(rollout, conversation_of(begun, style))
                content = line_of(keep(taken))
                summary.losses += taken.said.losses
            if has_tokens(rollout):
                summary.losses[_NOT_CARRIED] += 1
            # Not judged is told from 0 by being no number.
            spool.add(task, float("-inf") if rollout.reward is None else rollout.reward, content)
        for number, scored in enumerate(spool.tasks()):
            rewards = [reward for reward, _ in scored if reward != float("-inf")]
            facts = TaskFacts(number, rewards, len(scored), options.agent)
            kept = loads(spool.content(scored[0][1]))
            assert isinstance(kept, dict)  # written by us a moment ago
            yield line_of(make(kept, facts))


def _task_key(rollout: StoredRollout) -> str:
    """What tells a task from all others: ids are only unique within a task file, and the rollouts
    may be of several, so the environment and the prompt belong to it.
    """
    given = line_of(rollout.row["responses_create_params"].get("input"))
    digest = blake2b(given, digest_size=16).hexdigest()
    return "\0".join((rollout.text("environment"), digest, rollout.task_id))


def _pair_lines(
    chosen: Iterable[Taken],
    of_pair: OfPair,
    options: ExportOptions,
    summary: ExportSummary,
    path: Path,
) -> Iterator[bytes]:
    with Spool(path) as spool:
        for taken in chosen:
            rollout, said = taken.rollout, taken.said
            if rollout.reward is None:
                summary.left_out["without a reward"] += 1
                continue
            if said.losses:
                summary.losses += said.losses
            content = line_of([rollout.task_id, rollout.rollout_id, said.messages, said.tools])
            task, _ = spool.task(_task_key(rollout))
            spool.add(task, rollout.reward, content)
        for scored in spool.tasks():
            pairs = list(choose_pairs(scored, options.pairs))
            if not pairs:
                summary.left_out["tasks without two rewards that are apart"] += 1
            rewards = {number: reward for reward, number in scored}
            for better, worse in pairs:
                line = _pair_line(spool, (better, worse), rewards, of_pair, options)
                if line:
                    yield line
                else:
                    summary.left_out["pairs that do not part in an answer"] += 1


def _pair_line(
    spool: Spool,
    numbers: tuple[int, int],
    rewards: dict[int, float],
    of_pair: OfPair,
    options: ExportOptions,
) -> bytes:
    better, worse = (loads(spool.content(number)) for number in numbers)
    pair = pair_of(better[2], worse[2], options.pairs)
    if pair is None or better[3] != worse[3]:
        return b""
    both = (rewards[numbers[0]], rewards[numbers[1]])
    facts = PairFacts(better[0], (better[1], worse[1]), both, better[3])
    return line_of(of_pair(pair, facts))
