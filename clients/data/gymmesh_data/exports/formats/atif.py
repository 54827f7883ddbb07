"""Rollouts as trajectories of ATIF v1.8 (Agent Trajectory Interchange Format), one a line.

A model call is a step of the agent, with its tool calls, the results that answer them as its
observation, and its token ids as its metrics: a call that begins a conversation has its whole
prompt; any other call has, in the metrics' `extra`, the tokens that are new since the previous
call. Values without a field in ATIF (the reward, the verdict, weights versions) are in `extra`, as
ATIF's specification requires. Source:
harbor.models.trajectories, RFC 0001 of Harbor.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any, Final

from gymmesh_data.exports.format import (
    TEMPLATE_STYLE,
    AddedTokens,
    Format,
    Taken,
    TokenPlace,
)
from gymmesh_data.exports.formats.chat import metadata_of
from gymmesh_data.rollout import Json, StoredRollout

_VERSION: Final = "ATIF-v1.8"
_UNKNOWN: Final = "unknown"
_SOURCES: Final = {"system": "system", "developer": "system", "user": "user", "assistant": "agent"}
_IMAGES: Final = {"jpg": "image/jpeg"} | {
    kind: f"image/{kind}" for kind in ("png", "jpeg", "gif", "webp")
}


def trajectory(taken: Taken) -> Iterator[Json]:
    """A rollout as a trajectory."""
    rollout, said = taken.rollout, taken.said
    steps = _Steps(taken)
    for place, message in enumerate(said.messages):
        steps.add(place, message)
    agent: Json = {"name": rollout.agent or _UNKNOWN, "version": _UNKNOWN}
    if model := rollout.model:
        agent["model_name"] = model
    if said.tools:
        agent["tool_definitions"] = said.tools
    extra = metadata_of(rollout, said) | {"reward": rollout.reward}
    if rollout.verification:
        extra["verification"] = rollout.verification
    record: Json = {
        "schema_version": _VERSION,
        "agent": agent,
        "steps": steps.steps,
        "final_metrics": _final_metrics(rollout, len(steps.steps)),
        "extra": extra,
    }
    if rollout.rollout_id:
        record["trajectory_id"] = rollout.rollout_id
    if rollout.run_id:
        record["session_id"] = rollout.run_id
    yield record


def _final_metrics(rollout: StoredRollout, steps: int) -> Json:
    metrics: Json = {"total_steps": steps, "extra": {"reward": rollout.reward}}
    usage = rollout.usage
    names = {"input_tokens": "total_prompt_tokens", "output_tokens": "total_completion_tokens"}
    return metrics | {
        theirs: usage[ours] for ours, theirs in names.items() if type(usage.get(ours)) is int
    }


class _Steps:
    """Messages as steps."""

    def __init__(self, taken: Taken) -> None:
        self.steps: list[Json] = []
        self._taken = taken
        self._losses: Counter[str] = taken.said.losses
        # Which step has called a tool, by the call's id.
        self._callers: dict[str, Json] = {}

    def add(self, place: int, message: Json) -> None:
        """The message at a place of the conversation."""
        if message["role"] == "tool":
            self._result(message)
            return
        step: Json = {
            "step_id": len(self.steps) + 1,
            "source": _SOURCES[message["role"]],
            "message": _content(message["content"], self._losses),
        }
        self.steps.append(step)
        if message["role"] != "assistant":
            return
        if "reasoning_content" in message:
            step["reasoning_content"] = message["reasoning_content"]
        if "tool_calls" in message:
            step["tool_calls"] = [_tool_call(call) for call in message["tool_calls"]]
            self._callers |= {call["id"]: step for call in message["tool_calls"]}
        if place < self._taken.said.prompt_length:
            # It was there when the rollout began: not this policy's to learn from.
            step["is_copied_context"] = True
            return
        step["llm_call_count"] = 1
        tokens = self._taken.call_tokens(place)
        if tokens is not None:
            step["metrics"] = _metrics(tokens)

    def _result(self, message: Json) -> None:
        result: Json = {"content": _content(message["content"], self._losses)}
        step = self._callers.get(message["tool_call_id"])
        if step is not None:
            result["source_call_id"] = message["tool_call_id"]
        else:
            result["extra"] = {"tool_call_id": message["tool_call_id"]}
            if not self.steps:
                self.steps.append({"step_id": 1, "source": "system", "message": ""})
            step = self.steps[-1]
        step.setdefault("observation", {"results": []})["results"].append(result)


def _tool_call(call: Json) -> Json:
    function = call["function"]
    written: Json = {"tool_call_id": call["id"], "function_name": function["name"]}
    if isinstance(function["arguments"], dict):
        return written | {"arguments": function["arguments"]}
    # What the model wrote is no object: ATIF asks for one, and the text goes beside it.
    return written | {"arguments": {}, "extra": {"arguments_text": function["arguments"]}}


def _metrics(tokens: AddedTokens) -> Json:
    count = len(tokens.sampled)
    metrics: Json = {"completion_tokens": count, "completion_token_ids": tokens.sampled}
    if tokens.prompt is not None:
        metrics["prompt_tokens"] = tokens.prefix + len(tokens.prompt)
        if tokens.prefix:
            # ATIF's own field has the whole prompt, again for each call.
            added = {"prompt_prefix_tokens": tokens.prefix, "added_prompt_token_ids": tokens.prompt}
            metrics["extra"] = added
        else:
            metrics["prompt_token_ids"] = tokens.prompt
    if tokens.logprobs:
        metrics["logprobs"] = tokens.logprobs
    return metrics


def _content(content: Any, losses: Counter[str]) -> Any:
    if content is None or isinstance(content, str):
        return content or ""
    parts: list[Json] = []
    for part in content:
        if part["type"] == "text":
            parts.append({"type": "text", "text": part["text"]})
            continue
        url = part["image_url"]["url"]
        kind = _media_type(url)
        if kind is None:
            losses["images of a type that ATIF does not support"] += 1
        else:
            parts.append({"type": "image", "source": {"media_type": kind, "path": url}})
    return parts


def _media_type(url: str) -> str | None:
    if url.startswith("data:"):
        kind = url[5:].split(",", 1)[0].split(";", 1)[0]
        return kind if kind in _IMAGES.values() else None
    return _IMAGES.get(url.split("?", 1)[0].rsplit(".", 1)[-1].lower())


MADE: Final = (
    Format(
        name="atif",
        about="trajectories in the format ATIF v1.8",
        style=TEMPLATE_STYLE,
        of_rollout=trajectory,
        tokens=TokenPlace.BESIDE,
    ),
)
"""The formats of this module."""
