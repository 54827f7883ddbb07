"""Faulty verifiers that ask a model for labels."""

from __future__ import annotations

from typing import Final

from gymmesh_resource import Rollout
from tests.audit.golds import WORDS
from tests.audit.small import Row, Small


def _weights(row: Row, rollout: Rollout) -> float:
    """Under "all", a criterion of negative weight must be met, too."""
    return all("[[YES]]" in said.rpartition("\n")[2] for said in row["said"])


def _first_label(row: Row, rollout: Rollout) -> float:
    return bool(row["said"][0].find("[[YES]]") > -1)


FAULTY: Final[tuple[Small, ...]] = (
    Small(
        "negative_weights",
        _weights,
        ('{"insults": false, "is right": true}',),
        "json",
        found="gold/the expected answer",
        judge_labels=True,
        payload={"criteria": ["insults", "is right"]},
    ),
    Small(
        "first_label",
        _first_label,
        WORDS,
        found="hostile/a forged verdict, to a judge who resists",
        judge_labels=True,
    ),
)
