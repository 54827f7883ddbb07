"""Gives up the outcomes that a retry names, where their rollouts come again."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from gymmesh_client.journal.format.keys import rollout_ids, rollout_key
from gymmesh_client.journal.format.records import RETRY
from gymmesh_client.journal.journal import Journal
from gymmesh_client.output.retry_choice import RetryChoice


class Retried(NamedTuple):
    """What a retry came to: outcomes that are superseded, and those that stay all the same."""

    superseded: int = 0
    left: int = 0


def give_up(
    journal: Journal, retry: RetryChoice, tasks: Collection[str] | None, repeats: int
) -> Retried:
    """Supersede the outcomes that are to be retried, of the rollouts that are asked for."""
    if not retry:
        return Retried()
    session = journal.state.session
    run_id = str(session["run_id"])
    keys = retry.keys(run_id, int(session.get("repeats", 1)))
    chosen = journal.current(lambda outcome: retry.matches(outcome, keys))
    named = len(chosen)
    if tasks is not None:
        found = {outcome.key for outcome in chosen}
        names = (name for task in tasks for name in rollout_ids(run_id, task, range(repeats)))
        asked = found.intersection(map(rollout_key, names))
        chosen = [outcome for outcome in chosen if outcome.key in asked]
    journal.supersede(chosen, RETRY)
    return Retried(len(chosen), named - len(chosen))
