"""Chat answers with nothing unusual in them, straight to messages.

`plain_response` gives the very message that `from_chat` and the codec give, in a third of the
time, or None for whatever it does not know; the longer way then decides. So each check here only
has to be sure, never complete.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import orjson

from gymmesh.responses.v1 import responses_pb2 as pb
from gymmesh_model.convert.from_chat import CARRIED, DONE, ECHO, NewId

_INT64_MAX: Final = 2**63 - 1
_Init = dict[str, Any]
_ECHO: Final[_Init] = {"store": False, **ECHO}


def plain_response(
    answer: Mapping[str, Any],
    params: Mapping[str, Any],
    *,
    new_id: NewId,
    now: float,
    echo: bytes | None = None,
) -> pb.Response | None:
    """The response for a chat answer, or None; arguments as for `from_chat`.

    echo: what `echo_of` gave for the parameters, if it was asked before.
    """
    try:
        return _response(answer, echo or _echo(params), new_id, now)
    except (KeyError, IndexError, TypeError, ValueError, AttributeError):
        # Another shape, or text and numbers that fit no typed field: not for here.
        return None


def echo_of(params: Mapping[str, Any]) -> bytes | None:
    """What a response repeats of the parameters; None where the longer way has to."""
    try:
        return _echo(params)
    except TypeError:
        return None


def _echo(params: Mapping[str, Any]) -> bytes:
    """Members of a JSON object, without its braces."""
    given = {key: value for key, value in params.items() if value is not None and key in ECHO}
    return _members({**_ECHO, **given})


def _members(document: _Init) -> bytes:
    return orjson.dumps(document, option=orjson.OPT_PASSTHROUGH_SUBCLASS)[1:-1]


def _response(
    answer: Mapping[str, Any], echo: bytes, new_id: NewId, now: float
) -> pb.Response | None:
    choice = answer["choices"][0]
    finish = choice["finish_reason"]
    model = answer["model"]
    if finish == "length":
        reason, status = "max_output_tokens", "incomplete"
    elif finish is None or finish in DONE:
        reason, status = None, "completed"
    else:
        return None
    logprobs = choice.get("logprobs")
    if (logprobs is not None and logprobs.get("content")) or type(model) is not str:
        return None
    output = _items(choice["message"], status, new_id)
    if output is None:
        return None
    given = answer.get("id")
    init: _Init = {
        "id": given if type(given) is str and given else new_id("resp_"),
        "model": model,
        "status": status,
        "output": output,
    }
    created = answer.get("created")
    rest: _Init = {
        "object": "response",
        "created_at": created if isinstance(created, int | float) else now,
        "error": None,
    }
    if reason is None:
        rest["incomplete_details"] = None
    else:
        init["incomplete_details"] = {"reason": reason}
    usage = answer.get("usage")
    if usage is None:
        rest["usage"] = None
    else:
        init["usage"] = _usage(usage)
    carried = {key: answer[key] for key in CARRIED if answer.get(key) is not None}
    more = b",%b" % _members(carried) if carried else b""
    init["overlay_json"] = b"{%b,%b%b}" % (_members(rest), echo, more)
    return pb.Response(**init)


def _items(message: Mapping[str, Any], status: str, new_id: NewId) -> list[_Init] | None:
    get = message.get
    content = get("content")
    if get("refusal") or get("annotations") or get("function_call"):
        return None
    if content is not None and type(content) is not str:
        return None
    items: list[_Init] = []
    reasoning = get("reasoning_content") or get("reasoning")
    if reasoning:
        if type(reasoning) is not str:
            return None
        texts = {"texts": [reasoning]}
        items.append({"reasoning": {"id": new_id("rs_"), "summary": {}, "content": texts}})
    tool_calls = get("tool_calls")
    calls = [_call(one, new_id) for one in tool_calls] if tool_calls else []
    if content or not (items or calls):
        part = {"text": content or "", "annotations_empty": True, "logprobs_empty": True}
        said: _Init = {
            "id": new_id("msg_"),
            "role": "assistant",
            "status": "completed",
            "parts": {"parts": [{"output_text": part}]},
        }
        items.append({"message": said})
    items += calls
    if status != "completed":
        ((kind, last),) = items[-1].items()
        if kind != "reasoning":
            last["status"] = "incomplete"
    return items


def _call(call: Mapping[str, Any], new_id: NewId) -> _Init:
    function = call["function"]
    name, arguments, given = function["name"], function["arguments"], call["id"]
    if type(name) is not str or type(given) is not str or not given:
        raise TypeError
    made: _Init = {
        "id": new_id("fc_"),
        "call_id": given,
        "name": name,
        "arguments": arguments.encode(),
        "status": "completed",
    }
    return {"function_call": made}


def _usage(usage: Mapping[str, Any]) -> _Init:
    read, written = usage["prompt_tokens"], usage["completion_tokens"]
    total = usage.get("total_tokens") or read + written
    prompt, completion = usage.get("prompt_tokens_details"), usage.get("completion_tokens_details")
    counts = (
        read,
        written,
        total,
        _detail(prompt, "cached_tokens"),
        _detail(completion, "reasoning_tokens"),
    )
    for count in counts:
        if type(count) is not int or not 0 <= count <= _INT64_MAX:
            raise ValueError
    return dict(zip(_COUNTS, counts, strict=True))


def _detail(details: Any, key: str) -> Any:
    count = details.get(key) if details else None
    return 0 if count is None else count


_COUNTS: Final = (
    "input_tokens",
    "output_tokens",
    "total_tokens",
    "cached_tokens",
    "reasoning_tokens",
)
