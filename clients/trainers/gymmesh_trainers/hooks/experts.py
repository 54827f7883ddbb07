"""Routed experts between trainers' own forms and side data."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any, Final

from gymmesh_client import UserError
from gymmesh_model.tokens import SideRows
from gymmesh_trainers.rollouts import Rollout, SampleSideData, TrainingSample

ROUTED_EXPERTS: Final = "routed_experts"


def experts_given(name: str, given: Any) -> Sequence[SideRows]:
    """The side data of an answer of a trainer's own engine; empty where it gave none.

    name: the trainer's. given: an array or nested lists of [tokens, layers, experts], from the
    prompt's first token on. Raises UserError where numpy is missing.
    """
    if given is None or len(given) == 0:
        return ()
    numpy = _numpy(name)
    array = numpy.asarray(given)
    if array.dtype == numpy.int64:  # of lists
        array = array.astype(numpy.int32)
    return (SideRows.of_array(ROUTED_EXPERTS, array),)


def experts_of(rollout: Rollout, sample: TrainingSample) -> SampleSideData | None:
    """The routed experts of a sample; None where none were captured.

    Raises UserError where a token before the last has none: a trainer would take its zeros for
    experts.
    """
    found = sample.side_data.get(ROUTED_EXPERTS)
    if found is None:
        return None
    if found.missing and found.missing[0][0] < len(sample) - 1:
        begin, end = found.missing[0]
        raise UserError(
            f"rollout {rollout.id}: the tokens {begin} to {end - 1} of {len(sample)} have no "
            "routed experts, because a model call did not capture them"
        )
    return found


def _numpy(name: str) -> Any:
    try:
        return importlib.import_module("numpy")
    except ImportError:
        raise UserError(f"routed experts of {name} need numpy: pip install numpy") from None
