"""A row with its new verdict. Pure.

The row is the old one but for the verdict: `reward`, `verification`, `metadata.verified`, the
rewards of actors, and the keys that evidence brings. `verification.previous` has the earlier
verdicts, the oldest first. `verification.reverified` says when and by which verifier the new
verdict was made.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from gymmesh.rollout.v1 import rollout_pb2 as pb
from gymmesh_client.rows import status_dict, verification_row
from gymmesh_data.actors import rewarded
from gymmesh_data.rollout import Json
from gymmesh_data.tasks import evidence_keys
from gymmesh_rows import COLUMNS
from gymmesh_runtime.errors import MeshError, to_status

_USAGE: Final = ("model", "calls", "input_tokens", "output_tokens")


def judged_row(row: Json, verdict: pb.Verification, origin: Json, known: frozenset[str]) -> Json:
    """The row with a new verdict. The old row is not changed.

    Args:
        origin: when and by which verifier the verdict was given.
        known: keys that belong to the task, at any place in the row.
    """
    new: dict[str, Any] = verification_row(verdict)
    usage = [{key: getattr(one, key) for key in _USAGE} for one in verdict.model_usage]
    new["reverified"] = origin | ({"model_usage": usage} if usage else {})
    new["previous"] = _verdicts_of(row)
    # Of keys that tasks have, too, the old value goes only where there is a new one.
    gone = evidence_keys(row) - (known - new["evidence"].keys())
    judged = {key: value for key, value in row.items() if key not in gone}
    judged["reward"], judged["verification"] = new["reward"], new
    if isinstance(judged.get("metadata"), dict):
        judged["metadata"] = judged["metadata"] | {"verified": new["reward"] is not None}
    if "actors" in judged:
        judged["actors"] = rewarded(row, new["components"])
    for key, value in new["evidence"].items():
        if key not in COLUMNS:
            judged.setdefault(key, value)
    return judged


def unjudged_row(row: Json, error: MeshError, component: str, origin: Json) -> Json:
    """The row of a rollout that could not be judged: the row has a failure and a reward of null,
    and keeps the earlier verdicts under `failure.previous`.
    """
    left = {key: value for key, value in row.items() if key != "verification"} | {"reward": None}
    if "actors" in left:
        left["actors"] = rewarded(row, [])
    left["failure"] = {
        "boundary": "VERIFIER",
        "status": status_dict(to_status(error)),
        "retry_safe": True,  # nothing but the verdict is asked for
        "component": component,
        "call_id": "",
        "reverified": origin,
        "previous": _verdicts_of(row),
    }
    return left


def last_reward(row: Mapping[str, Any]) -> float | None:
    """The reward of the verdict before the last, in a row of `judged_row`."""
    previous = row["verification"]["previous"]
    reward = previous[-1].get("reward") if previous else None
    return None if reward is None else float(reward)


def _verdicts_of(row: Json) -> list[Json]:
    """The verdicts that a row has, the oldest first; of another program's row its reward."""
    verdict = row.get("verification")
    if not isinstance(verdict, dict):
        return [{"reward": row["reward"]}] if row.get("reward") is not None else []
    own = {key: value for key, value in verdict.items() if key != "previous"}
    previous = verdict.get("previous")
    return [*(previous if isinstance(previous, list) else []), own]
