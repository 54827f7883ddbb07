"""The scores of an Inspect sample as a verdict. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from gymmesh_resource.verdicts import Outcome, Skipped, Verdict

_SHOWN: Final = 200


class NoVerdict(Exception):
    """The scores have no reward; the text is the reason, as one clause."""


def verdict_of(answer: Mapping[str, Any], wanted: str | None) -> Outcome:
    """The verdict from the answer of the script's `verify`.

    wanted: the score that is the reward: `scorer`, or `scorer.key` if the scorer returns several
    values. None: the first scorer's. Raises NoVerdict.
    """
    scores = {score["name"]: score for score in answer["scores"]}
    if not scores:
        raise NoVerdict("the scorers returned no score")
    name, key = _chosen(scores, wanted)
    score = scores[name]
    evidence = {
        "scores": {one: _evidence(scores[one]) for one in scores},
        **({"limit": answer["limit"]["type"]} if answer["limit"] else {}),
    }
    if score["unscored"]:
        reason = score["explanation"] or f"the scorer {name} returned no score for this sample"
        return Skipped(reason, evidence)
    numbers = score["numbers"]
    if key is None:
        if len(numbers) > 1:
            keys = ", ".join(f"{name}.{one}" for one in numbers)
            raise NoVerdict(
                f"the scorer {name} returned several values; set the option 'score' to one of "
                f"{keys}"
            )
        key = next(iter(numbers), None)
    if key is None or key not in numbers:
        shown = repr(score["value"])[:_SHOWN]
        raise NoVerdict(
            f"the scorer {name} returned {shown}, which Inspect can't convert to a number"
        )
    components = {
        one if not part else f"{one}.{part}": number
        for one in scores
        for part, number in scores[one]["numbers"].items()
    }
    return Verdict(numbers[key], components, evidence, score["explanation"] or "")


def _chosen(scores: Mapping[str, Any], wanted: str | None) -> tuple[str, str | None]:
    """The score and its key; None: it has one value."""
    if wanted is None:
        return next(iter(scores)), None
    if wanted in scores:
        return wanted, None
    # Either may have dots.
    for name in scores:
        if wanted.startswith(f"{name}."):
            return name, wanted[len(name) + 1 :]
    raise NoVerdict(
        f"the option 'score' is {wanted}, but the scorers returned only {', '.join(scores)}; set "
        "the option to one of these names"
    )


def _evidence(score: Mapping[str, Any]) -> dict[str, Any]:
    given = {key: score[key] for key in ("value", "answer", "explanation")}
    return {key: value for key, value in given.items() if value is not None}
