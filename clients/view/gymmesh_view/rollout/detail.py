"""One rollout as the page shows it: who said what, the verdict, the failure, the timeline. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from gymmesh_data import StoredRollout
from gymmesh_data.rollout import list_of, object_of, objects_of
from gymmesh_view.rollout.call_tokens import calls_of
from gymmesh_view.rollout.conversation import items_of, laid_out
from gymmesh_view.rows.summary import Json, actors_in, clean, conversations_of, text_of

_SHOWN: Final = frozenset(
    (
        "responses_create_params", "first_items", "response", "reward", "verification", "failure",
        "metadata", "task_id", "rollout_id", "run_id", "repeat_index", "attempt", "environment",
        "agent", "tags", "stop_reason", "stop_detail", "actors",
        # May hold expected answers, and a page may be published.
        "final_state",
    )
)  # fmt: skip


def detail_of(rollout: StoredRollout) -> Json:
    """What a row says of a rollout, in the parts that a page has for it."""
    row, metadata = rollout.row, rollout.metadata
    params = {
        key: value
        for key, value in row["responses_create_params"].items()
        if key not in ("input", "tools", "instructions")
    }
    others = {key: value for key, value in row.items() if key not in _SHOWN}
    return {
        "where": clean(rollout.where),
        "run_id": clean(rollout.text("run_id")),
        "stop_detail": clean(rollout.text("stop_detail")),
        "instructions": clean(rollout.instructions),
        "tools": [_tool(tool) for tool in rollout.tools],
        "items": items_of(rollout.first_items, rollout.output),
        "actors": actors_shown(actors_in(row)),
        "calls": calls_of(rollout.output),
        "forks": [
            _texts(fork, "call_id", "reason") | {"common_tokens": _whole(fork.get("common_tokens"))}
            for fork in objects_of(metadata, "token_forks")
        ],
        "weights": [one for one in list_of(metadata, "weights_versions") if type(one) is int],
        "verification": _verification(row),
        "failure": _failure(row),
        "timeline": timeline_of(rollout),
        "params": laid_out(params),
        "metadata": laid_out(metadata),
        "others": laid_out(others) if others else "",
    }


def timeline_of(rollout: StoredRollout) -> Json:
    """How long the stages took, in microseconds: `duration_us` of the whole, and `stages`, each
    with `name`, `kind` (model, tools, verify, other or stage), `duration_us` and `note`.

    Stages are sums over a rollout, not spans: tool calls that ran side by side count each.
    """
    timings = object_of(rollout.metadata, "timings")
    stages: list[Json] = []
    for name in ("model", "tools", "verify"):
        if duration := _whole(timings.get(f"{name}_us")):
            stages.append({"name": name, "kind": name, "duration_us": duration, "note": ""})
    for stage in objects_of(object_of(rollout.row, "verification"), "stages"):
        duration = _whole(stage.get("duration_us"))
        told = {"kind": "stage", "duration_us": duration, "note": text_of(stage, "note")}
        stages.append({"name": text_of(stage, "name")} | told)
    return {"duration_us": _whole(timings.get("duration_us")), "stages": stages, "spans": []}


def _tool(tool: Json) -> Json:
    name = text_of(tool, "name") or text_of(tool, "type")
    rest = {key: value for key, value in tool.items() if key not in ("name", "description", "type")}
    shown = rest.get("parameters", rest) if set(rest) <= {"parameters", "strict"} else rest
    about = text_of(tool, "description")
    return {"name": name, "description": about, "parameters": laid_out(shown)}


def actors_shown(actors: Mapping[str, Json]) -> list[Json]:
    """Actors as a page has them: `name`, `reward`, `about`, and `conversations`, each with `thread`
    (its number among all of the rollout, from 1), `after`, `items` and `calls`. What one goes on
    from is not said again.
    """
    found: list[Json] = []
    thread = 0
    for name, said in actors.items():
        conversations = []
        for one in conversations_of(said):
            thread += 1
            after = text_of(one, "after")
            conversations.append(
                {
                    "thread": thread,
                    "after": after,
                    "items": items_of([] if after else one["first_items"], one["items"]),
                    "calls": calls_of(one["items"]),
                }
            )
        found.append(
            {
                "name": name,
                "reward": _float(said.get("reward")),
                "about": _about(said),
                "conversations": conversations,
            }
        )
    return found


def items_of_thread(actors: Mapping[str, Json], thread: int) -> list[Json]:
    """The items of an actor's conversation by its number; empty where there is none."""
    said = [one for actor in actors.values() for one in conversations_of(actor)]
    items: list[Json] = said[thread - 1]["items"] if thread <= len(said) else []
    return items


def _about(actor: Json) -> str:
    models = [clean(one) for one in list_of(actor, "models") if type(one) is str]
    facts = [f"model {', '.join(models)}"] if models else []
    calls = _whole(actor.get("model_calls"))
    facts += [f"{calls} model call{'' if calls == 1 else 's'}"] if calls else []
    trainable = actor.get("trainable")
    if isinstance(trainable, bool):
        facts.append("trained" if trainable else "not trained")
    return " · ".join(facts)


def _verification(row: Json) -> Json | None:
    said = row.get("verification")
    if not isinstance(said, dict):
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


def _failure(row: Json) -> Json | None:
    if "failure" not in row:
        return None
    said = object_of(row, "failure")
    status = object_of(said, "status")
    metadata = status.get("metadata")
    return (
        _texts(said, "boundary")
        | _texts(status, "reason", "message")
        | {"retry_safe": said.get("retry_safe") is True}
        | _texts(said, "component", "call_id")
        | {"metadata": laid_out(metadata) if metadata else ""}
    )


def _texts(said: Json, *keys: str) -> Json:
    return {key: text_of(said, key) for key in keys}


def _whole(value: Any) -> int:
    return value if type(value) is int and 0 <= value < 1 << 53 else 0


def _float(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and type(value) is not bool else None
