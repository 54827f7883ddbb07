"""The token ids and logprobs of a rollout's model calls, as its row has them. Pure.

Ids are shown as ids: a text is shown beside them only where the row itself has each token's text,
as `logprobs` of the Responses API do.
"""

from __future__ import annotations

import math
from typing import Any, Final

from gymmesh_data.rollout import list_of, objects_of
from gymmesh_view.rows.summary import Json, call_numbers, clean

_MOST: Final = 20_000


def calls_of(output: list[Json]) -> list[Json]:
    """Of each model call with tokens: `call`, `prompt` and `sampled` (how many ids), `shared` (how
    many ids of the prompt are those that the call before it read and wrote), `fork` (whether it
    did not go on from them), `mean_logprob` and `least_logprob`.
    """
    found: list[Json] = []
    held: list[Any] = []
    for number, item in _calls(output):
        prompt, sampled = list_of(item, "prompt_token_ids"), list_of(item, "generation_token_ids")
        logprobs = [one for one in list_of(item, "generation_log_probs") if _number(one)]
        shared = _common(held, prompt)
        found.append(
            {
                "call": number,
                "prompt": len(prompt),
                "sampled": len(sampled),
                "shared": shared,
                "fork": bool(held) and shared < len(held),
                "mean_logprob": sum(logprobs) / len(logprobs) if logprobs else None,
                "least_logprob": min(logprobs, default=None),
            }
        )
        held = prompt + sampled
    return found


def tokens_of(output: list[Json], call: int) -> Json:
    """The sampled tokens of a call: `ids`, `logprobs` (None where not captured), `texts` (None
    where the row has none), `left`: how many more there are.
    """
    for number, item in _calls(output):
        if number != call:
            continue
        sampled = list_of(item, "generation_token_ids")
        logprobs = list_of(item, "generation_log_probs")
        texts = _texts(item)
        return {
            "ids": [one if type(one) is int else None for one in sampled[:_MOST]],
            "logprobs": [one if _number(one) else None for one in logprobs[:_MOST]] or None,
            "texts": texts[:_MOST] if len(texts) == len(sampled) else None,
            "left": max(0, len(sampled) - _MOST),
        }
    return {"ids": [], "logprobs": None, "texts": None, "left": 0}


def _calls(output: list[Json]) -> list[tuple[int, Json]]:
    """The last item of each model call with tokens, with the call's number among all calls."""
    numbered = zip(call_numbers(output), output, strict=True)
    return [(number, item) for number, item in numbered if "generation_token_ids" in item]


def _texts(item: Json) -> list[str]:
    """The text of each token, from the `logprobs` of the item's parts."""
    return [
        clean(one["token"])
        for part in objects_of(item, "content")
        for one in objects_of(part, "logprobs")
        if isinstance(one.get("token"), str)
    ]


def _number(value: Any) -> bool:
    return type(value) in (int, float) and math.isfinite(value)


def _common(before: list[Any], after: list[Any]) -> int:
    if after[: len(before)] == before:
        return len(before)
    pairs = enumerate(zip(before, after, strict=False))
    apart = (place for place, (left, right) in pairs if left != right)
    return next(apart, min(len(before), len(after)))
