"""A Chat Completions answer as a Responses document.

An assistant message becomes, in this order, a `reasoning` item, a `message` item and one
`function_call` item per tool call; the finish reason becomes `status` and `incomplete_details`. The
document also gets `system_fingerprint`, which Responses does not define. Formats: OpenAI's API
reference; `reasoning_content` and `reasoning` as vLLM, SGLang and llama.cpp write them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from gymmesh_model.convert.content import content_pieces
from gymmesh_model.convert.document import NewId, count_of, cut_short, document, status_for
from gymmesh_model.convert.endpoint_text import is_object
from gymmesh_model.errors import AnswerInvalid, spelled_out
from gymmesh_responses import Finish, finish_of, promises_calls

Json = dict[str, Any]


def from_chat(
    answer: Mapping[str, Any], params: Mapping[str, Any], *, new_id: NewId, now: float
) -> Json:
    """The Responses document for a chat answer.

    answer: the parsed body of the endpoint's reply. params: the Responses parameters of the call,
    which the document repeats as OpenAI's API does. now: seconds since 1970, for an answer without
    `created`. The arguments are not changed. Raises AnswerInvalid.
    """
    choices = answer.get("choices")
    if not isinstance(choices, list) or not choices:
        raise AnswerInvalid("the response has no choices")
    choice = choices[0]
    if not isinstance(choice, Mapping) or not isinstance(choice.get("message"), Mapping):
        raise AnswerInvalid("the response's first choice has no message")
    reason = _cut_short(choice)
    output = items_from_message(choice["message"], status=status_for(reason), new_id=new_id)
    _check_whole(output, choice.get("finish_reason"))
    _attach_logprobs(output, choice.get("logprobs"))
    created, model = answer.get("created"), answer.get("model")
    return document(
        answer,
        params,
        given_id=answer.get("id"),
        created=created if isinstance(created, int | float) else now,
        reason=reason,
        model=model if isinstance(model, str) else None,
        output=output,
        usage=_usage(answer.get("usage")),
        new_id=new_id,
    )


def _cut_short(choice: Mapping[str, Any]) -> str | None:
    """Why the answer is incomplete; None if it is complete. Raises AnswerInvalid.

    Failures, and aborts that nobody requested, are not answers. `failure_in` finds them earlier.
    """
    given = choice.get("finish_reason")
    if finish_of(given) is Finish.FAILED:
        raise AnswerInvalid(f"the response ended with finish_reason {spelled_out(given)!r}")
    return cut_short(given)


def _check_whole(output: list[Json], given: object) -> None:
    """Raises AnswerInvalid in two cases: the finish reason promises calls, but the answer has
    neither calls nor text; or neither the finish reason nor the answer shows that the answer is
    complete.
    """
    finish = finish_of(given)
    calls = [item for item in output if item["type"] == "function_call"]
    said = any(part.get("text") or part.get("refusal") for part in _parts(output))
    if promises_calls(given) and not calls and not said:
        raise AnswerInvalid(
            f"the response ended with finish_reason {spelled_out(given)!r}, without a call"
        )
    if finish is not Finish.UNKNOWN:
        return
    why = f"the response's finish_reason {spelled_out(given)!r} does not say why the response ended"
    if not calls and not said:
        raise AnswerInvalid(f"the response is empty, and {why}")
    if given and not all(_is_whole(call["arguments"]) for call in calls):
        raise AnswerInvalid(f"a tool call of the response is cut off, and {why}")


def _is_whole(arguments: str) -> bool:
    return not arguments.strip() or is_object(arguments)


def _parts(output: list[Json]) -> list[Json]:
    return [part for item in output if item["type"] == "message" for part in item["content"]]


def items_from_message(
    message: Mapping[str, Any], *, new_id: NewId, status: str = "completed"
) -> list[Json]:
    """The output items of one assistant message.

    status: the status of the whole answer. An incomplete answer was cut in its last item. An empty
    answer becomes a message with empty text. Raises AnswerInvalid.
    """
    items: list[Json] = []
    content, within = _content(message)
    reasoning = message.get("reasoning_content") or message.get("reasoning")
    reasoning = (reasoning if isinstance(reasoning, str) else "") + within
    if reasoning:
        part = {"type": "reasoning_text", "text": reasoning}
        items.append({"type": "reasoning", "id": new_id("rs_"), "summary": [], "content": [part]})
    calls = [_call(call, new_id) for call in _calls(message)]
    if content or not (items or calls):
        items.append(
            {
                "type": "message",
                "id": new_id("msg_"),
                "role": "assistant",
                "status": "completed",
                "content": content or [_output_text("", [])],
            }
        )
    items += calls
    if status != "completed" and "status" in items[-1]:
        items[-1]["status"] = "incomplete"
    return items


def _content(message: Mapping[str, Any]) -> tuple[list[Json], str]:
    """The parts of the message's content, and the reasoning that the content contains."""
    given = message.get("annotations")
    annotations = [_annotation(one) for one in given] if isinstance(given, list) else []
    parts: list[Json] = []
    reasoning: list[str] = []
    for kind, said in content_pieces(message.get("content")):
        if kind == "reasoning":
            reasoning.append(said)
        elif kind == "refusal":
            parts.append({"type": "refusal", "refusal": said})
        elif kind == "note":
            annotations.append(dict(said))
        elif said:
            parts.append(_output_text(said, []))
    texts = [part for part in parts if part["type"] == "output_text"]
    if texts:
        texts[-1]["annotations"] = annotations
    refusal = message.get("refusal")
    if isinstance(refusal, str) and refusal:
        parts.append({"type": "refusal", "refusal": refusal})
    return parts, "".join(reasoning)


def _output_text(text: str, annotations: list[Any]) -> Json:
    return {"type": "output_text", "text": text, "annotations": annotations, "logprobs": []}


def _annotation(annotation: Any) -> Any:
    """An annotation in Responses' flat form. In Chat, it is nested: `{"type": T, T: {…}}`."""
    if isinstance(annotation, Mapping):
        nested = annotation.get(str(annotation.get("type")))
        if isinstance(nested, Mapping):
            return {"type": annotation["type"], **nested}
    return annotation


def _calls(message: Mapping[str, Any]) -> list[Any]:
    calls = message.get("tool_calls") or []
    if not isinstance(calls, list):
        raise AnswerInvalid("the response's tool calls are not a list")
    legacy = message.get("function_call")
    if not calls and isinstance(legacy, Mapping):
        return [{"function": legacy}]
    return calls


def _call(call: Any, new_id: NewId) -> Json:
    function = call.get("function") if isinstance(call, Mapping) else None
    if not isinstance(function, Mapping) or "name" not in function:
        raise AnswerInvalid("a tool call of the response does not name a function")
    return {
        "type": "function_call",
        "id": new_id("fc_"),
        "call_id": _id(call.get("id"), "call_", new_id),
        "name": as_written(function.get("name")),
        "arguments": as_written(function.get("arguments")),
        "status": "completed",
    }


def as_written(said: Any) -> str:
    """A function's name or arguments as text, even if the policy wrote nonsense.

    Contrary to the API, some servers send parsed values, and null for missing values. These values
    are serialised as JSON again. A call that no tool understands is then the policy's mistake,
    which the policy sees, and not a failure of the endpoint.
    """
    if said is None:
        return ""
    if isinstance(said, str):
        return said
    return json.dumps(said, ensure_ascii=False, separators=(",", ":"))


def _attach_logprobs(output: list[Json], logprobs: object) -> None:
    tokens = logprobs.get("content") if isinstance(logprobs, Mapping) else None
    if not isinstance(tokens, list) or not tokens:
        return
    for item in output:
        for part in item.get("content") or [] if item["type"] == "message" else []:
            if part["type"] == "output_text":
                part["logprobs"] = list(tokens)
                return


def _usage(usage: object) -> Json | None:
    if not isinstance(usage, Mapping):
        return None
    read, written = count_of(usage, "prompt_tokens"), count_of(usage, "completion_tokens")
    prompt, completion = usage.get("prompt_tokens_details"), usage.get("completion_tokens_details")
    return {
        "input_tokens": read,
        "input_tokens_details": {"cached_tokens": count_of(prompt, "cached_tokens")},
        "output_tokens": written,
        "output_tokens_details": {"reasoning_tokens": count_of(completion, "reasoning_tokens")},
        "total_tokens": count_of(usage, "total_tokens") or read + written,
    }


def _id(given: object, prefix: str, new_id: NewId) -> str:
    return given if isinstance(given, str) and given else new_id(prefix)
