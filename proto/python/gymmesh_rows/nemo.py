"""Rows in NeMo Gym's form: all tokens that a call read and sampled, with the last item it wrote.

Such a row grows with the square of its calls. Beside NeMo Gym's keys it has what version 0.1 of
gymmesh wrote: the conversations of actors, `metadata.token_forks` and `metadata.model_calls`.
"""

from __future__ import annotations

from typing import Any, Final

from msgspec import UNSET

from gymmesh_responses import JsonValue
from gymmesh_rows.columns import Actor, ModelCall, RowResponse
from gymmesh_rows.earlier import NEW_COLUMNS, is_earlier
from gymmesh_rows.row import Row, parsed

Json = dict[str, Any]
_COLUMNS: Final = frozenset(RowResponse.__struct_encode_fields__)


def nemo_row(row: Row) -> Json:
    """The row in NeMo Gym's form. A row that was read in this form is returned unchanged, except
    for the session's state, which is removed because it may hold expected answers. Raises RowError.
    """
    document: Json = parsed(row.line)
    document.pop("final_state", None)
    if is_earlier(document):
        return document
    for key in NEW_COLUMNS:
        document.pop(key, None)
    final = row.final_call
    path = [] if final is None else row.path(final)
    _put_images_back(row, document)
    if final is not None and row.is_asked_by_program(final):
        _put_sent_params(row, final, document)
    output = document["response"]["output"]
    placed = set[str]()
    for call in path:
        if call.trainable and not call.actor and call.first_item is not UNSET and call.answer_count:
            last = call.first_item + call.context_count + call.answer_count - 1
            _put(row, call, output, last, placed)
    if row.actors:
        document["actors"] = [
            _actor(row, actor, said, placed)
            for actor, said in zip(row.actors, document["actors"], strict=True)
        ]
    notes = document["metadata"]
    if forks := [_fork(call) for call in row.calls if _forked(call)]:
        notes["token_forks"] = forks
    if timed := [_timed(call) for call in row.calls if _is_timed(call)]:
        notes["model_calls"] = timed
    return document


def _put_images_back(row: Row, document: Json) -> None:
    """Put images where that form has them: in the items that name them."""
    if not row.media:
        return
    params, response = document["responses_create_params"], document["response"]
    document["response"] = {**response, "output": row.items(row.response.output)}
    if row.first_items:
        document["first_items"] = row.items(row.first_items)
    if "input" in params:
        document["responses_create_params"] = {**params, "input": row.params["input"]}


def _put_sent_params(row: Row, final: ModelCall, document: Json) -> None:
    """Put what the program asked for where that form has it: its tools, its instructions, and the
    parameters that a response repeats of its request. Names that the API does not have are left
    out: NeMo Gym reads none.
    """
    sent = row.sent_params(final)
    response: Json = document["response"]
    repeated = [key for key in response if key not in _COLUMNS]
    document["response"] = response | {key: sent[key] for key in repeated if key in sent}
    document["response"]["tools"] = sent["tools"]
    document["response"]["instructions"] = sent.get("instructions")
    params: Json = {
        key: value
        for key, value in document["responses_create_params"].items()
        if key not in ("tools", "instructions")
    }
    named = {*repeated, "tools", "instructions"}
    told = {key: value for key, value in sent.items() if key in named}
    document["responses_create_params"] = params | told


def _put(row: Row, call: ModelCall, items: list[JsonValue], place: int, placed: set[str]) -> None:
    """Put a call's tokens to an item; those of each call once."""
    tokens = call.tokens
    if tokens is UNSET or call.call_id in placed or type(items[place]) is not dict:
        return
    if not (tokens.output_token_ids or tokens.prompt_token_ids):
        return
    placed.add(call.call_id)
    fields: Json = {}
    if (prompt := row.prompt(call)) is not None:
        fields["prompt_token_ids"] = prompt.tolist()
    fields["generation_token_ids"] = tokens.output_token_ids
    fields["generation_log_probs"] = tokens.logprobs
    items[place] = items[place] | fields


def _actor(row: Row, actor: Actor, said: Json, placed: set[str]) -> Json:
    learned = any(call.trainable for call in row.calls if call.actor == actor.name)
    conversations: list[Json] = []
    for one in row.actor_conversations(actor.name):
        items: list[JsonValue] = []
        for call in one.calls:
            begins = len(items)
            items += row.items(row.part(call))
            if call.answer_count and (call.trainable or not learned):
                _put(row, call, items, begins + call.context_count + call.answer_count - 1, placed)
        conversation: Json = {"after": one.after} if one.after else {}
        if one.before:
            conversation["first_items"] = row.items(one.before)
        conversations.append(conversation | {"items": items})
    return said | {"conversations": conversations}


def _forked(call: ModelCall) -> bool:
    return call.tokens is not UNSET and call.tokens.fork is not UNSET


def _fork(call: ModelCall) -> Json:
    if call.tokens is UNSET or call.tokens.fork is UNSET:
        return {}
    fork = call.tokens.fork
    return {"call_id": call.call_id, "reason": fork.reason, "common_tokens": fork.common_tokens}


def _is_timed(call: ModelCall) -> bool:
    return bool(call.retries) or (call.timings is not UNSET and call.timings.endpoint_us > 0)


def _timed(call: ModelCall) -> Json:
    timings = call.timings
    keys = ("total_us", "queue_us", "endpoint_us", "retry_us")
    spent = {key: 0 if timings is UNSET else getattr(timings, key) for key in keys}
    retries = {one.reason: one.count for one in call.retries}
    return {"call_id": call.call_id, **spent, "retries": retries}
