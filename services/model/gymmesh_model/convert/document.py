"""Builds the Responses document for an answer of another API. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from gymmesh_model.errors import spelled_out
from gymmesh_responses import Finish, finish_of

Json = dict[str, Any]
NewId = Callable[[str], str]
"""Makes an id that begins with the given prefix, such as `msg_`."""

ECHO: Final[Mapping[str, Any]] = {
    "background": False,
    "instructions": None,
    "max_output_tokens": None,
    "max_tool_calls": None,
    "metadata": {},
    "parallel_tool_calls": True,
    "previous_response_id": None,
    "prompt": None,
    "reasoning": None,
    "temperature": None,
    "text": {"format": {"type": "text"}},
    "tool_choice": "auto",
    "tools": [],
    "top_p": None,
    "truncation": "disabled",
    "user": None,
}
"""Parameters that a document repeats, with their values if the request did not set them."""

CARRIED: Final = ("service_tier", "system_fingerprint")
"""Keys of an OpenAI or Anthropic answer that the document also has."""

_CUT_SHORT: Final[Mapping[Finish, str]] = {
    Finish.LENGTH: "max_output_tokens",
    Finish.FILTERED: "content_filter",
    Finish.ABORTED: "aborted",
}


def cut_short(given: object) -> str | None:
    """Why an answer with this finish reason is incomplete, for `incomplete_details`; None:
    complete.
    """
    finish = finish_of(given)
    return spelled_out(given) if finish is Finish.CUT else _CUT_SHORT.get(finish)


def document(
    answer: Mapping[str, Any],
    params: Mapping[str, Any],
    *,
    given_id: object,
    created: float,
    reason: str | None,
    model: object,
    output: list[Json],
    usage: Json | None,
    new_id: NewId,
) -> Json:
    """The Responses document of an answer.

    Args:
        answer: the answer as the endpoint sent it. The document gets its keys that are in
            `CARRIED`.
        params: the Responses parameters of the call. The document repeats them, as OpenAI's API
            does.
        given_id: the endpoint's own id of the answer. A value that is not text is ignored.
        created: seconds since 1970.
        reason: why the answer is incomplete; None: it is complete.
        model: the endpoint's own name of the model; empty: the name in the request.
    """
    made: Json = {
        "id": given_id if isinstance(given_id, str) and given_id else new_id("resp_"),
        "object": "response",
        "created_at": created,
        "status": status_for(reason),
        "error": None,
        "incomplete_details": None if reason is None else {"reason": reason},
        "model": model or params.get("model"),
        "output": output,
        "usage": usage,
        "store": False,
    }
    for key, default in ECHO.items():
        given = params.get(key)
        made[key] = default if given is None else given
    for key in CARRIED:
        if answer.get(key) is not None:
            made[key] = answer[key]
    return made


def status_for(reason: str | None) -> str:
    """The status of an answer that is incomplete for this reason; None: it is complete."""
    return "completed" if reason is None else "incomplete"


def count_of(counts: object, key: str) -> int:
    """A count of tokens that an endpoint reports; 0 if the reported value is not a valid count."""
    value = counts.get(key) if isinstance(counts, Mapping) else None
    return value if isinstance(value, int) and value >= 0 else 0
