"""The records of an export, as lines of JSON, in an order that is the same each time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from hashlib import blake2b
from pathlib import Path

from gymmesh_data.conversation import Conversation, conversation_of
from gymmesh_data.exports.formats import TEXT_ONLY, Format, OfPair, OfRollout, PairFacts
from gymmesh_data.exports.lines import line_of
from gymmesh_data.exports.spool import Spool
from gymmesh_data.exports.summary import ExportOptions, ExportSummary
from gymmesh_data.pairs import choose_pairs, pair_of
from gymmesh_data.rollout import StoredRollout
from gymmesh_data.samples import NoTokens
from gymmesh_responses import loads

_Chosen = tuple[StoredRollout, Conversation]


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
    form = replace(form, style=style)
    chosen = _chosen(rollouts, form, options, summary)
    if form.of_pair is not None:
        yield from _pair_lines(chosen, form.of_pair, options, summary, spool)
        return
    of_rollout = form.of_rollout
    assert of_rollout is not None
    if form.has_tokens and not options.tokens:
        of_rollout = TEXT_ONLY
    if options.selection.per_task is None:
        for one in chosen:
            yield _lines(one, of_rollout, summary)
    else:
        yield from _best_lines(chosen, of_rollout, options.selection.per_task, summary, spool)


def _chosen(
    rollouts: Iterable[StoredRollout], form: Format, options: ExportOptions, summary: ExportSummary
) -> Iterator[_Chosen]:
    """The rollouts that are taken, each with its conversation."""
    selection, known = options.selection, set[bytes]()
    for rollout in rollouts:
        summary.rollouts += 1
        refusal = selection.refusal(rollout)
        if not refusal:
            said = conversation_of(rollout, form.style)
            if not said.answered:
                refusal = "without an answer"
            elif selection.distinct:
                digest = blake2b(line_of([said.messages, said.tools]), digest_size=16).digest()
                refusal = "the same as another" if digest in known else ""
                known.add(digest)
        if refusal:
            summary.left_out[refusal] += 1
        else:
            yield rollout, said


def _lines(one: _Chosen, of_rollout: OfRollout, summary: ExportSummary) -> bytes:
    """The lines of a rollout; none where it has no token ids and the format is made of them."""
    rollout, said = one
    try:
        lines = b"".join(map(line_of, of_rollout(rollout, said)))
    except NoTokens:
        summary.left_out["without token ids"] += 1
        return b""
    summary.losses += said.losses
    return lines


def _best_lines(
    chosen: Iterable[_Chosen], of_rollout: OfRollout, most: int, summary: ExportSummary, path: Path
) -> Iterator[bytes]:
    """The lines of each task's best rollouts; of equal ones the first."""
    with Spool(path) as spool:
        for one in chosen:
            lines = _lines(one, of_rollout, summary)
            if lines:
                # Not judged is worse than any reward.
                reward = one[0].reward
                spool.add(one[0].task_id, float("-inf") if reward is None else reward, lines)
        for scored in spool.tasks():
            ranked = sorted(scored, key=lambda found: (-found[0], found[1]))
            if len(ranked) > most:
                summary.left_out["not among the best of its task"] += len(ranked) - most
            for number in sorted(number for _, number in ranked[:most]):
                yield spool.content(number)


def _pair_lines(
    chosen: Iterable[_Chosen],
    of_pair: OfPair,
    options: ExportOptions,
    summary: ExportSummary,
    path: Path,
) -> Iterator[bytes]:
    with Spool(path) as spool:
        for rollout, said in chosen:
            if rollout.reward is None:
                summary.left_out["without a reward"] += 1
                continue
            summary.losses += said.losses
            content = line_of([rollout.task_id, rollout.rollout_id, said.messages, said.tools])
            spool.add(rollout.task_id, rollout.reward, content)
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
    facts = PairFacts(
        better[0],
        (better[1], worse[1]),
        (rewards[numbers[0]], rewards[numbers[1]]),
        better[3],
    )
    return line_of(of_pair(pair, facts))
