"""Rows of earlier forms as documents of this contract: NeMo Gym's, and those of version 0.1.

Their last item of a call has the call's tokens (`prompt_token_ids`, the whole prompt;
`generation_token_ids`; `generation_log_probs`), and 0.1 has conversations in `actors`. Calls are
derived from the items: the model's items up to an item of a different author, or up to tokens, are
one answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from gymmesh_responses import LOGPROB_ROUNDING
from gymmesh_rows.row import COLUMNS, RowError

Json = dict[str, Any]
TOKEN_KEYS: Final = ("prompt_token_ids", "generation_token_ids", "generation_log_probs")
"""The keys of an item whose call has tokens."""
_OTHERS: Final = ("user", "system", "developer")
# More tokens than any call before has: of a prompt that is not known.
UNKNOWN_PREFIX: Final = 2**31 - 1
_IDENTITY: Final = ("task_id", "rollout_id", "run_id", "environment", "agent")
# What every row of this contract has, and others lack.
_ALWAYS: Final = ("reward", "rollout_id", "metadata")
_USAGE: Final = ("input_tokens", "output_tokens", "total_tokens")
# Of `metadata`: what it has now, and had in version 0.1.
NEW_COLUMNS: Final = (
    *("calls", "tool_calls", "turns", "annotations", "media", "sandboxes", "program"),
    *("program_name", "program_version"),
)
"""Columns that neither earlier form had. In a row of an earlier form, a key with such a name is the
task's own key.
"""


def is_earlier(document: Json) -> bool:
    """Whether a row has an earlier form."""
    calls = document.get("calls")
    if not isinstance(calls, list) or not calls:
        verdict = document.get("verification")
        response = _object(document.get("response"))
        return (
            bool(response.get("output") or document.get("actors"))
            or "usage" not in response
            or any(key not in document for key in _ALWAYS)
            or not isinstance(document["metadata"], dict)
            or (isinstance(verdict, dict) and "components" not in verdict)
        )
    return not all(isinstance(one, dict) and "item_count" in one for one in calls)


def own_keys(row: Json) -> Json:
    """The keys that are not columns in an earlier form."""
    theirs = NEW_COLUMNS if are_actors(row.get("actors")) else (*NEW_COLUMNS, "actors")
    return {key: value for key, value in row.items() if key in theirs or key not in COLUMNS}


def are_actors(value: Any) -> bool:
    """Whether `actors` has the form of version 0.1, and is not the task's own key."""
    return (
        isinstance(value, list)
        and bool(value)
        and all(
            isinstance(one, dict)
            and isinstance(one.get("name"), str)
            and isinstance(one.get("conversations"), list)
            and all(isinstance(said, dict) and "items" in said for said in one["conversations"])
            for one in value
        )
    )


def of_this_contract(row: Json) -> tuple[Json, dict[str, tuple[int, str]]]:
    """The row with `calls` and all other columns that this contract requires, and the row's
    `Row.beginnings`. Raises RowError.
    """
    given = row["response"]
    output = _items(given.get("output") or [], "response.output")
    made = {key: value for key, value in row.items() if key not in (*NEW_COLUMNS, "actors")}
    metadata = _object(row.get("metadata"))
    calls = _Calls(row, metadata)
    calls.add_root(output)
    actors: list[Json] = row["actors"] if are_actors(row.get("actors")) else []
    for number, actor in enumerate(actors):
        calls.add_actor(actor, f"actors[{number}].conversations")
    made["response"] = _response(given, [_bare(item) for item in output])
    made["calls"] = calls.found
    made["actors"] = [_actor(one) for one in actors]
    made["metadata"] = _metadata(metadata)
    if row.get("first_items") is not None:
        _items(row["first_items"], "first_items")
    for key in _IDENTITY:
        value = row.get(key)
        made[key] = value if isinstance(value, str) else ""
    for key, least in (("repeat_index", 0), ("attempt", 1)):
        value = row.get(key)
        made[key] = value if type(value) is int and value >= 0 else least
    made["reward"] = row.get("reward")
    _keep_fitting(made)
    return made, calls.beginnings


def calls_of(items: list[Json], model: str) -> list[Json]:
    """The root agent's calls, in the form of `calls`, for a conversation of which only the items
    are known. items: those of `response.output`; the items between those of other authors are an
    answer.
    """
    calls = _Calls({"response": {"model": model}}, {})
    calls.add_root(items)
    return calls.found


class _Calls:
    """The calls of a row, made of its items."""

    def __init__(self, row: Json, metadata: Json) -> None:
        self.found: list[Json] = []
        self.beginnings: dict[str, tuple[int, str]] = {}
        self._model = row["response"].get("model")
        versions = [one for one in _list(metadata.get("weights_versions")) if type(one) is int]
        self._version = min(versions, default=None)
        self._forks = [one for one in _list(metadata.get("token_forks")) if isinstance(one, dict)]
        self._timed = [one for one in _list(metadata.get("model_calls")) if isinstance(one, dict)]

    def add_root(self, items: list[Any]) -> None:
        """The root agent's calls."""
        parts = _parts(items, "response.output")
        captured = any(_tokens(part.answer) for part in parts)
        named = self._timed if len(self._timed) == len(parts) else []
        parent: Json | None = None
        whole: list[int] | None = None
        place = 0
        for number, part in enumerate(parts):
            call = self._call(part, parent, "", not captured or _tokens(part.answer) is not None)
            call["first_item"] = place
            place += part.count
            if named:
                _put_timed(call, named[number], self.found)
            where = f"response.output[{part.last(call['first_item'])}]"
            whole = self._put_tokens(call, part, whole, where)
            self.found.append(call)
            parent = call

    def add_actor(self, actor: Json, where: str) -> None:
        """An actor's calls."""
        name, learned = actor["name"], actor.get("trainable") is True
        said: list[Json] = actor["conversations"]
        read = [
            _parts(_items(one["items"], f"{where}[{number}].items"), name)
            for number, one in enumerate(said)
        ]
        captured = any(_tokens(part.answer) for parts in read for part in parts)
        for number, (conversation, parts) in enumerate(zip(said, read, strict=True)):
            place = f"{where}[{number}]"
            before = _items(conversation.get("first_items") or [], f"{place}.first_items")
            parent: Json | None = None
            whole: list[int] | None = None
            count = 0
            for part in parts:
                trained = learned and (not captured or _tokens(part.answer) is not None)
                call = self._call(part, parent, name, trained)
                call["items"] = [_bare(item) for item in part.items]
                if parent is None:
                    # What it went on from is not named among these calls: it begins anew with it.
                    call["detached"] = True
                    call["items"] = [*before, *call["items"]]
                    call["context_count"] += len(before)
                    call["item_count"] += len(before)
                    beginning = len(before), _text(conversation.get("after"))
                    self.beginnings[call["call_id"]] = beginning
                whole = self._put_tokens(call, part, whole, f"{place}.items[{part.last(count)}]")
                count += part.count
                self.found.append(call)
                parent = call

    def _call(self, part: _Part, parent: Json | None, actor: str, trainable: bool) -> Json:
        return {
            "call_id": f"call-{len(self.found)}",
            "parent_call_id": "" if parent is None else parent["call_id"],
            "actor": actor,
            "model": self._model if isinstance(self._model, str) else "",
            "trainable": trainable,
            "item_count": part.count,
            "context_count": len(part.context),
            "answer_count": len(part.answer),
        }

    def _put_tokens(
        self, call: Json, part: _Part, before: list[int] | None, where: str
    ) -> list[int] | None:
        """Give a call the tokens that it added; all ids up to here, None where not known.

        before: the same of its parent; None: it has none, or its ids are not known.
        where: the place of the item that has them.
        """
        item = _tokens(part.answer)
        if item is None:
            return None
        sampled = _ids(item, "generation_token_ids", where)
        tokens: Json = {"output_token_ids": sampled, "prompt_token_ids": []}
        call["tokens"] = tokens
        if logprobs := _logprobs(item, len(sampled), where):
            tokens["logprobs"] = logprobs
        if self._version is not None and call["trainable"]:
            tokens["weights"] = [{"version": self._version, "first_token": 0}]
        if item.get("prompt_token_ids") is None:
            tokens["prompt_prefix_tokens"] = UNKNOWN_PREFIX
            return None
        prompt = _ids(item, "prompt_token_ids", where)
        if before is not None and prompt[: len(before)] == before:
            tokens["prompt_prefix_tokens"] = len(before)
            tokens["prompt_token_ids"] = prompt[len(before) :]
        else:
            tokens["prompt_token_ids"] = prompt
            if before is not None:
                tokens["fork"] = self._fork(prompt, before)
        return prompt + sampled

    def _fork(self, prompt: list[int], before: list[int]) -> Json:
        common = 0
        for one, other in zip(prompt, before, strict=False):
            if one != other:
                break
            common += 1
        for fork in self._forks:
            if fork.get("common_tokens") == common and isinstance(fork.get("reason"), str):
                return {"reason": fork["reason"], "common_tokens": common}
        return {"reason": "UNSPECIFIED", "common_tokens": common}


class _Part:
    """A call's part of a conversation."""

    def __init__(self) -> None:
        self.context: list[Json] = []
        self.answer: list[Json] = []
        self.replies: list[Json] = []

    @property
    def items(self) -> list[Json]:
        return [*self.context, *self.answer, *self.replies]

    def last(self, begins: int) -> int:
        """The place of the last item of its answer, in a conversation where it begins there."""
        return begins + len(self.context) + len(self.answer) - 1

    @property
    def count(self) -> int:
        return len(self.context) + len(self.answer) + len(self.replies)


def _parts(items: Sequence[Any], where: str) -> list[_Part]:
    """A conversation, call by call. What stands before the first answer is its context."""
    parts: list[_Part] = []
    part = _Part()
    ended = False
    for item in items:
        if "output" in item or item.get("role") in _OTHERS:
            (part.replies if part.answer else part.context).append(item)
            ended = bool(part.answer)
            continue
        if ended:
            parts.append(part)
            part, ended = _Part(), False
        part.answer.append(item)
        if "generation_token_ids" in item:
            ended = True
    if part.answer or part.context:
        parts.append(part)
    return parts


def _bare(item: Json) -> Json:
    """An item without tokens."""
    return {key: value for key, value in item.items() if key not in TOKEN_KEYS}


def _tokens(answer: Sequence[Json]) -> Json | None:
    """The item of an answer that has tokens: its last one."""
    if not answer or answer[-1].get("generation_token_ids") is None:
        return None
    return answer[-1]


def _ids(item: Json, key: str, where: str) -> list[int]:
    value = item[key]
    # Adding up takes a fifth of what looking at each does; true and false count as 1 and 0.
    try:
        right = type(value) is list and type(sum(value)) is int
    except TypeError:
        right = False
    if not right:
        raise RowError(f"{where}.{key}: must be a list of numbers")
    if value and min(value) < 0:
        raise RowError(
            f"{where}.{key}: has the token id {min(value)}; token ids must not be negative"
        )
    ids: list[int] = value
    return ids


def _logprobs(item: Json, sampled: int, where: str) -> list[float | None]:
    """Log probabilities, of which one that is not finite is None."""
    value = item.get("generation_log_probs") or []
    kinds = (int, float)
    if type(value) is not list or not all(one is None or type(one) in kinds for one in value):
        raise RowError(f"{where}.generation_log_probs: must be a list of numbers")
    if value and len(value) != sampled:
        raise RowError(
            f"{where}: {sampled} token ids were sampled, but there are {len(value)} log "
            "probabilities; there must be one for each token id"
        )
    most = max((one for one in value if one is not None), default=0.0)
    if most > LOGPROB_ROUNDING:
        raise RowError(f"{where}.generation_log_probs: {most:g} is positive")
    logprobs: list[float | None] = value
    return logprobs


def _put_timed(call: Json, timed: Json, known: Sequence[Json]) -> None:
    """What version 0.1 said of a call under `metadata.model_calls`."""
    name = timed.get("call_id")
    if isinstance(name, str) and all(one["call_id"] != name for one in known):
        call["call_id"] = name
    keys = ("queue_us", "total_us", "endpoint_us", "retry_us")
    call["timings"] = {key: timed[key] for key in keys if _is_count(timed.get(key))}
    retries = _object(timed.get("retries"))
    call["retries"] = [
        {"reason": reason, "count": count} for reason, count in retries.items() if _is_count(count)
    ]


def _response(given: Json, output: list[Any]) -> Json:
    return {
        "id": _text(given.get("id")),
        "object": "response",
        "created_at": _number(given.get("created_at")),
        "model": _text(given.get("model")),
        "status": _text(given.get("status")) or "completed",
        "error": given.get("error"),
        "incomplete_details": given.get("incomplete_details"),
        "output": output,
        "usage": _usage(_object(given.get("usage"))),
    }


def _usage(given: Json) -> Json:
    usage: Json = {key: _count(given.get(key)) for key in _USAGE}
    for outer, inner in (
        ("input_tokens_details", "cached_tokens"),
        ("output_tokens_details", "reasoning_tokens"),
    ):
        usage[outer] = {inner: _count(_object(given.get(outer)).get(inner))}
    return usage


def _actor(given: Json) -> Json:
    actor = {
        "name": given["name"],
        "models": [one for one in _list(given.get("models")) if isinstance(one, str)],
        "model_calls": _count(given.get("model_calls")),
        "trainable": given.get("trainable") is True,
        "usage": _usage(_object(given.get("usage"))),
    }
    reward = given.get("reward")
    return actor | ({"reward": reward} if _is_number(reward) else {})


def _metadata(given: Json) -> Json:
    timings = _object(given.get("timings"))
    metadata = {
        "steps_taken": _count(given.get("steps_taken")),
        "tools_used": [one for one in _list(given.get("tools_used")) if isinstance(one, str)],
        "tool_outcomes": [
            {key: one.get(key) for key in ("name", "outcome", "calls")}
            for one in _list(given.get("tool_outcomes"))
            if isinstance(one, dict)
            and isinstance(one.get("name"), str)
            and isinstance(one.get("outcome"), str)
            and _is_count(one.get("calls"))
        ],
        "verified": given.get("verified") is True,
        "weights_versions": [one for one in _list(given.get("weights_versions")) if _is_count(one)],
        "timings": {"started_at": _number(timings.get("started_at"))}
        | {
            key: _count(timings.get(key))
            for key in ("duration_us", "model_us", "tools_us", "verify_us")
        },
    }
    seed = given.get("seed")
    return metadata | ({"seed": seed} if type(seed) is int else {})


def _keep_fitting(made: Json) -> None:
    """Drop what is another program's under the name of a column."""
    verdict = made.get("verification")
    if isinstance(verdict, dict) and isinstance(verdict.get("status"), str):
        made["verification"] = {
            "components": [],
            "verifier": "",
            "version": "",
            "stages": [],
            "reason": "",
            "evidence": {},
            "reward": None,
        } | verdict
    else:
        made.pop("verification", None)
    failure = made.get("failure")
    if isinstance(failure, dict):
        status = _object(failure.get("status"))
        made["failure"] = {
            "boundary": _text(failure.get("boundary")),
            "status": {
                "code": _count(status.get("code")),
                "message": _text(status.get("message")),
                "reason": _text(status.get("reason")),
                "metadata": {key: str(one) for key, one in _object(status.get("metadata")).items()},
            },
            "retry_safe": failure.get("retry_safe") is True,
            "component": _text(failure.get("component")),
            "call_id": _text(failure.get("call_id")),
        }
    elif "failure" in made:
        del made["failure"]


def _items(value: Any, where: str) -> list[Json]:
    if not isinstance(value, list):
        raise RowError(f"{where}: must be a list of objects")
    for place, item in enumerate(value):
        if not isinstance(item, dict):
            raise RowError(f"{where}[{place}]: must be an object")
    return value


def _object(value: Any) -> Json:
    return value if isinstance(value, dict) else {}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _is_count(value: Any) -> bool:
    return type(value) is int and value >= 0


def _count(value: Any) -> int:
    return value if type(value) is int and value >= 0 else 0


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _number(value: Any) -> float:
    return float(value) if _is_number(value) else 0.0
