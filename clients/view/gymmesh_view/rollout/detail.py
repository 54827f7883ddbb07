"""One rollout as the page shows it: messages, the verdict, the failure, the timeline. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain, islice
from typing import Any, Final

from msgspec import UNSET

from gymmesh_data import Actor, StoredRollout, actors_of
from gymmesh_data.rollout import list_of, object_of, objects_of
from gymmesh_rows import parsed
from gymmesh_runtime.errors import reason_of, repeats
from gymmesh_view.rollout.call_tokens import calls_of
from gymmesh_view.rollout.conversation import items_of, laid_out
from gymmesh_view.rollout.images import numbered
from gymmesh_view.rows import Json, clean, text_of

_SHOWN: Final = frozenset(
    (
        "responses_create_params", "first_items", "response", "reward", "verification", "failure",
        "metadata", "task_id", "rollout_id", "run_id", "repeat_index", "attempt", "environment",
        "agent", "tags", "stop_reason", "stop_detail", "actors", "calls", "tool_calls", "turns",
        "annotations", "media",
        # May hold expected answers, and a page may be published.
        "final_state",
    )
)  # fmt: skip
# A page has so many items, calls and the like; the rest of a row is in its file.
_MOST: Final = 2_000


def detail_of(rollout: StoredRollout) -> Json:
    """The facts of a row about a rollout, in the parts that the page shows."""
    row, metadata = rollout.columns, rollout.metadata
    others = {
        key: rollout.value(key) for key in row.members if key in row.extras or key not in _SHOWN
    }
    actors = actors_of(rollout)
    spoken = [rollout, *(one for actor in actors for one in actor.conversations)]
    said = items_of(rollout, _MOST)
    count = sum(len(one.first_items) + len(one.unparsed_output) for one in spoken)
    by_actors = actors_shown(actors, _MOST if count <= _MOST else max(1, _MOST // len(spoken)))
    threads = chain.from_iterable(one["conversations"] for one in by_actors)
    return {
        "where": clean(rollout.where),
        "run_id": clean(rollout.run_id),
        "stop_detail": clean(row.stop_detail),
        "instructions": clean(rollout.instructions),
        "tools": [_tool(tool) for tool in rollout.tools],
        "images": numbered([*said, *chain.from_iterable(one["items"] for one in threads)]),
        "items": said,
        "items_left": max(0, len(rollout.first_items) + len(rollout.unparsed_output) - _MOST),
        "actors": by_actors,
        "calls": calls_of(rollout, _MOST),
        "forks": forks_of(rollout)[:_MOST],
        "weights": row.metadata.weights_versions,
        "side_calls": _listed(_side_calls(rollout)),
        "tool_rewards": _listed(
            {"tool": one.name, "call_id": one.call_id, "reward": one.reward}
            for one in row.tool_calls
            if one.reward is not UNSET
        ),
        "turns": _listed(
            {"turn": one.turn, "done": one.done}
            | ({} if one.reward is UNSET else {"reward": one.reward})
            for one in row.turns
        ),
        "annotations": _listed(
            {"key": one.key, "value": parsed(one.value)}
            | ({"model_call_id": one.model_call_id} if one.model_call_id else {})
            for one in row.annotations
        ),
        "verification": _verification(rollout),
        "failure": _failure(rollout.value("failure")),
        "timeline": timeline_of(rollout),
        "params": laid_out(rollout.request.params),
        "metadata": laid_out(metadata),
        "others": laid_out(others) if others else "",
    }


def forks_of(rollout: StoredRollout) -> list[Json]:
    """The calls that did not continue the call before, by their tokens or as a program sent them:
    `call_id`, `reason` and `common_tokens`.
    """
    told = []
    for call in rollout.columns.calls:
        of_tokens = UNSET if call.tokens is UNSET else call.tokens.fork
        fork = call.fork if of_tokens is UNSET else of_tokens
        if fork is not UNSET:
            named = {"call_id": call.call_id, "reason": fork.reason}
            told.append({**named, "common_tokens": fork.common_tokens})
    if rollout.columns.of_earlier_form:
        told = objects_of(rollout.metadata, "token_forks")
    return [
        _texts(fork, "call_id", "reason") | {"common_tokens": _whole(fork.get("common_tokens"))}
        for fork in told
    ]


def _side_calls(rollout: StoredRollout) -> Iterator[Json]:
    """The root agent's calls that are not in its conversation: what for, and what was answered."""
    for call in rollout.columns.calls:
        if not call.actor and call.first_item is UNSET:
            named = {"call_id": call.call_id, "model": call.model}
            why = {"for": call.side_call} if call.side_call else {}
            yield named | why | {"answer": rollout.columns.items(rollout.columns.answer(call))}


def _listed(told: Iterator[Json]) -> str:
    """The first of some objects, laid out; empty where there are none."""
    found = list(islice(told, _MOST))
    return laid_out(found) if found else ""


def timeline_of(rollout: StoredRollout) -> Json:
    """The durations in microseconds: `duration_us` of the whole rollout, and `stages`, each with
    `name`, `kind` (model, tools, verify or stage), `duration_us` and `note`. The kind `stage` is a
    stage of the verifier, and part of `verify`.

    Stages are sums over a rollout, not spans: concurrent tool calls count separately.
    """
    timings = object_of(rollout.metadata, "timings")
    stages: list[Json] = []
    for name in ("model", "tools", "verify"):
        if duration := _whole(timings.get(f"{name}_us")):
            stages.append({"name": name, "kind": name, "duration_us": duration, "note": ""})
    for number, stage in enumerate(objects_of(rollout.verification, "stages"), 1):
        duration = _whole(stage.get("duration_us"))
        told = {"kind": "stage", "duration_us": duration, "note": text_of(stage, "note")}
        stages.append({"name": f"verify: {text_of(stage, 'name') or number}"} | told)
    return {"duration_us": _whole(timings.get("duration_us")), "stages": stages, "spans": []}


def _tool(tool: Json) -> Json:
    name = text_of(tool, "name") or text_of(tool, "type")
    rest = {key: value for key, value in tool.items() if key not in ("name", "description", "type")}
    shown = rest.get("parameters", rest) if set(rest) <= {"parameters", "strict"} else rest
    about = text_of(tool, "description")
    return {"name": name, "description": about, "parameters": laid_out(shown)}


def actors_shown(actors: Sequence[Actor], most: int) -> list[Json]:
    """Actors, for the page: `name`, `reward`, `about`, and `conversations`, each with `thread` (its
    number in the rollout, from 1), `after`, `items` (a limited number; `items_left` has the number
    of the others) and `calls`. The items that a conversation continues are not repeated.
    """
    found: list[Json] = []
    thread = 0
    for actor in actors:
        conversations = []
        for one, after in zip(actor.conversations, actor.after, strict=True):
            thread += 1
            items = items_of(one, most, first=not after)
            left = len(one.unparsed_output) + len(one.first_items) * (not after) - len(items)
            told = {"thread": thread, "after": clean(after), "items": items}
            told |= {"items_left": left} if left else {}
            conversations.append(told | {"calls": calls_of(one, most)})
        found.append(
            {
                "name": clean(actor.name),
                "reward": _float(actor.said.get("reward")),
                "about": _about(actor.said),
                "conversations": conversations,
            }
        )
    return found


def thread_of(rollout: StoredRollout, thread: int) -> StoredRollout | None:
    """An actor's conversation by its number; None if there is no such conversation."""
    said = [one for actor in actors_of(rollout) for one in actor.conversations]
    return said[thread - 1] if thread <= len(said) else None


def _about(actor: Json) -> str:
    models = [clean(one) for one in list_of(actor, "models") if type(one) is str]
    facts = [f"model {', '.join(models)}"] if models else []
    calls = _whole(actor.get("model_calls"))
    facts += [f"{calls} model call{'' if calls == 1 else 's'}"] if calls else []
    trainable = actor.get("trainable")
    if isinstance(trainable, bool):
        facts.append("trained" if trainable else "not trained")
    return " · ".join(facts)


def _verification(rollout: StoredRollout) -> Json | None:
    said = rollout.verification
    if not said:
        return None
    evidence = said.get("evidence")
    texts = _texts(said, "status", "reason", "verifier", "version")
    # A verdict with a reward has no reason for its status, and perhaps a line that explains it.
    texts["reason"] = texts["reason"] or text_of(said, "explanation")
    return texts | {
        "components": [
            {"name": text_of(one, "name")}
            | {key: _float(one.get(key)) for key in ("value", "weight")}
            for one in objects_of(said, "components")
        ],
        "evidence": laid_out(evidence) if evidence else "",
    }


def _failure(failure: Any) -> Json | None:
    if failure is None:
        return None
    said: Json = failure if isinstance(failure, dict) else {}
    status = object_of(said, "status")
    metadata = status.get("metadata")
    return (
        _texts(said, "boundary")
        | _texts(status, "reason", "message")
        | {"retry_safe": said.get("retry_safe") is True}
        | {"repeats": repeats(reason_of(text_of(status, "reason")))}
        | _texts(said, "component", "call_id")
        | {"metadata": laid_out(metadata) if metadata else ""}
    )


def _texts(said: Json, *keys: str) -> Json:
    return {key: text_of(said, key) for key in keys}


def _whole(value: Any) -> int:
    return value if type(value) is int and 0 <= value < 1 << 53 else 0


def _float(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and type(value) is not bool else None
