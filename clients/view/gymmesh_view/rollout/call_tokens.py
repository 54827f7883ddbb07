"""The token ids and logprobs of a rollout's model calls, from its row. Pure.

The row may have the text of each token, as `logprobs` of the Responses API do. If it does not, the
texts come from a vocabulary, which `gymmesh_view.vocabulary` reads.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from gymmesh_data import StoredRollout
from gymmesh_data.rollout import objects_of
from gymmesh_data.samples import token_reads
from gymmesh_view.rows import Json, clean, text_of, texts_of

_MOST: Final = 20_000


def calls_of(rollout: StoredRollout, most: int | None = None) -> list[Json]:
    """The model calls with tokens. Each has `call`, `prompt` and `sampled` (numbers of ids),
    `shared` (the number of ids in the prompt that the previous call read or wrote), `fork` (whether
    the prompt does not continue all of these), `mean_logprob` and `least_logprob`.

    Args:
        most: the most calls to return; default: all.
    """
    numbers = {call.call_id: number for number, (_, _, call) in enumerate(rollout.answers())}
    found: list[Json] = []
    for one in token_reads(rollout):
        if len(found) == most:
            break
        tokens = rollout.tokens_of(one.call)
        if tokens is None or one.call.call_id not in numbers:
            continue
        logprobs = [each for each in tokens.logprobs if each is not None]
        found.append(
            {
                "call": numbers[one.call.call_id],
                "prompt": one.prompt_length or 0,
                "sampled": len(tokens.output_token_ids),
                "shared": one.shared,
                "fork": bool(one.held) and one.shared < one.held,
                "mean_logprob": sum(logprobs) / len(logprobs) if logprobs else None,
                "least_logprob": min(logprobs, default=None),
            }
        )
    return found


def tokens_of(rollout: StoredRollout, call: int) -> Json:
    """The sampled tokens of a call: `ids`, `logprobs` (None if not captured), `texts` (None if the
    row has none), `left`: the number of further tokens, and `said`: the texts of the answer, which
    its tokens must spell.
    """
    for number, (begin, end, one) in enumerate(rollout.answers()):
        tokens = rollout.tokens_of(one)
        if number != call or tokens is None:
            continue
        sampled = tokens.output_token_ids
        (last,) = rollout.columns.items(rollout.unparsed_output[max(begin, end - 1) : end])
        texts = _texts(last)
        return {
            "ids": sampled[:_MOST],
            "logprobs": tokens.logprobs[:_MOST] or None,
            "texts": texts[:_MOST] if len(texts) == len(sampled) else None,
            "left": max(0, len(sampled) - _MOST),
            "said": _said(rollout.columns.items(rollout.unparsed_output[begin:end])),
        }
    return {"ids": [], "logprobs": None, "texts": None, "left": 0, "said": []}


def spells(texts: Sequence[str | None], said: Iterable[str]) -> bool:
    """Whether the tokens' texts contain the whole answer, ignoring white space."""
    whole = "".join("".join(one or "" for one in texts).split())
    return all("".join(one.split()) in whole for one in said)


def _said(items: Iterable[Any]) -> list[str]:
    """Texts of messages and names of tools that were called. Arguments and reasoning may have been
    written otherwise than they were sampled.
    """
    found: list[str] = []
    for item in items:
        if item.get("type") == "function_call":
            found.append(text_of(item, "name"))
        elif item.get("type", "message") == "message":
            found += texts_of(item.get("content"))
    return [one for one in found if one]


def _texts(item: Any) -> list[str]:
    """The text of each token, from the `logprobs` of the item's parts."""
    return [
        clean(one["token"])
        for part in objects_of(item, "content")
        for one in objects_of(part, "logprobs")
        if isinstance(one.get("token"), str)
    ]
