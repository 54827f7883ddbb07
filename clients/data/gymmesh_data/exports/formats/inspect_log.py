"""Rollouts as a log of Inspect (`.eval`): a zip archive with a file for each sample.

A task is a sample, its repeats are epochs, its reward is the score `reward`, and the components of
the reward are scores of their own. Token ids are in the sample's metadata. Source:
inspect_ai.log, version 2 of the log's schema.

The archive's members are compressed by deflate, which every version of Inspect reads, since
zipfile writes zstd from Python 3.14 on only. It keeps some 500 bytes a sample in memory.
"""

from __future__ import annotations

import hashlib
import math
import zipfile
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from gymmesh_data.exports.format import Format, Taken, TokenPlace
from gymmesh_data.exports.formats.chat import metadata_of
from gymmesh_data.exports.lines import line_of, read_line, without_surrogates
from gymmesh_data.rollout import Json, object_of, objects_of, text_of
from gymmesh_data.tasks import answer_of, task_of
from gymmesh_responses import CodecError, loads

_STOPS: Final = {
    "MODEL_FINISHED": "stop",
    "MAX_OUTPUT_TOKENS": "max_tokens",
    "CONTEXT_LENGTH": "model_length",
    "CONTENT_FILTER": "content_filter",
}
_SCORE: Final = "reward"
_LONGEST_TEXT: Final = 1000  # of a summary's metadata, as Inspect cuts it
# What a summary has of its sample.
_SUMMARY: Final = ("id", "epoch", "input", "target", "scores", "model_usage", "started_at", "uuid")


def sample(taken: Taken) -> Iterator[Json]:
    """A rollout as a sample."""
    rollout, said = taken.rollout, taken.said
    model = rollout.model
    messages = [_message(one, model, taken) for one in said.messages]
    last = next(one for one in reversed(messages) if one["role"] == "assistant")
    target = answer_of(task_of(rollout))
    usage = _usage(rollout.usage)
    metadata = metadata_of(rollout, said)
    if samples := taken.samples():
        metadata["tokens"] = samples
    if said.tools:
        metadata["tools"] = said.tools
    began = _began(object_of(rollout.metadata, "timings"))
    yield {
        # It is part of a member's path: no part of it leads upwards.
        "id": "/".join(
            "__" if part in ("", ".", "..") else part for part in rollout.task_id.split("/")
        ),
        "epoch": max(rollout.repeat_index, 0) + 1,
        "uuid": rollout.rollout_id or None,
        "input": [_message(one, model, taken) for one in said.prompt],
        "target": target if isinstance(target, str) else "" if target is None else str(target),
        "messages": messages,
        "output": {
            "model": model,
            "choices": [
                {"message": last, "stop_reason": _STOPS.get(rollout.stop_reason, "unknown")}
            ],
            "usage": usage,
        },
        "scores": _scores(taken),
        "metadata": metadata,
        "store": {},
        "events": [],
        "attachments": {},
        "model_usage": {model: usage} if usage and model else {},
        "started_at": began,
    }


def pack_eval(lines: Path, target: Path, losses: Counter[str]) -> None:
    """The samples as an archive. Raises OSError."""
    known, ids, summaries = set[bytes](), dict[str, None](), list[Json]()
    model = environment = ""
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED, allowZip64=True) as archive:
        with lines.open("rb") as file:
            for line in file:
                one = read_line(without_surrogates(line, losses))
                while (key := _key(one)) in known:
                    one["epoch"] += 1
                known.add(key)
                ids.setdefault(one["id"])
                model = model or one["output"]["model"]
                environment = environment or one["metadata"]["environment"]
                archive.writestr(
                    _member(f"samples/{one['id']}_epoch_{one['epoch']}.json"), line_of(one)
                )
                summaries.append(_summary(one))
        header = _header(summaries, list(ids), model or "unknown", environment or "gymmesh")
        start = {key: header[key] for key in ("version", "eval", "plan")}
        archive.writestr(_member("_journal/start.json"), line_of(start))
        archive.writestr(_member("summaries.json"), line_of(summaries))
        archive.writestr(_member("header.json"), line_of(header))


def _header(summaries: list[Json], ids: list[str], model: str, environment: str) -> Json:
    created = min((one["started_at"] for one in summaries if one["started_at"]), default=None)
    made = hashlib.sha256("\n".join([*ids, created or ""]).encode()).hexdigest()[:22]
    epochs = max((one["epoch"] for one in summaries), default=1)
    return {
        "version": 2,
        "status": "success",
        "eval": {
            "eval_id": made,
            "run_id": made,
            "created": created or "1970-01-01T00:00:00+00:00",
            "task": environment,
            "task_id": made,
            "task_version": 0,
            "dataset": {"name": environment, "samples": len(ids), "sample_ids": ids},
            "model": model,
            "config": {"epochs": epochs},
        },
        "plan": {"name": "plan", "steps": [], "config": {}},
        "results": _results(summaries),
        "stats": {"started_at": created or "", "completed_at": "", "model_usage": {}},
    }


def _results(summaries: list[Json]) -> Json:
    rewards = [one["scores"][_SCORE]["value"] for one in summaries if _SCORE in one["scores"]]
    metrics: Json = {}
    if rewards:
        # Neither the sum of rewards nor a square of one may exceed what a float can hold.
        scale = max(1.0, max(map(abs, rewards)))
        parts = [one / scale for one in rewards]
        mean = math.fsum(parts) / len(parts)
        metrics["mean"] = {"name": "mean", "value": mean * scale}
        if len(rewards) > 1:
            spread = math.fsum((one - mean) ** 2 for one in parts) / (len(rewards) - 1)
            error = math.sqrt(spread / len(rewards)) * scale
            metrics["stderr"] = {"name": "stderr", "value": error}
    return {
        "total_samples": len(summaries),
        "completed_samples": len(summaries),
        "scores": [
            {
                "name": _SCORE,
                "scorer": _SCORE,
                "scored_samples": len(rewards),
                "unscored_samples": len(summaries) - len(rewards),
                "metrics": metrics,
            }
        ],
    }


def _summary(one: Json) -> Json:
    metadata = {
        key: value
        for key, value in one["metadata"].items()
        if not isinstance(value, list | dict) and len(str(value)) <= _LONGEST_TEXT
    }
    told = {key: one[key] for key in _SUMMARY}
    # The text of the last message of the prompt: the whole prompt is in the sample.
    told["input"] = next(
        (m["content"] for m in reversed(one["input"]) if isinstance(m["content"], str)), ""
    )[:_LONGEST_TEXT]
    count = len(one["messages"])
    return told | {"metadata": metadata, "completed": True, "message_count": count}


def _scores(taken: Taken) -> Json:
    """The reward, where there is one, and its components."""
    rollout, scores = taken.rollout, Json()
    verification = rollout.verification
    for part in objects_of(verification, "components"):
        if isinstance(part.get("value"), int | float):
            scores[str(part.get("name"))] = {"value": part["value"]}
    if rollout.reward is not None:
        score: Json = {"value": rollout.reward}
        if reason := text_of(verification, "reason"):
            score["explanation"] = reason
        if evidence := object_of(verification, "evidence"):
            score["metadata"] = evidence
        scores[_SCORE] = score
    return scores


def _message(message: Json, model: str, taken: Taken) -> Json:
    role = "system" if message["role"] == "developer" else message["role"]
    written: Json = {"role": role, "content": _content(message["content"])}
    if role == "tool":
        return written | {"tool_call_id": message["tool_call_id"]}
    if role != "assistant":
        return written
    if model:
        written["model"] = model
    if "reasoning_content" in message:
        thought = {"type": "reasoning", "reasoning": message["reasoning_content"]}
        content = written["content"]
        said = [{"type": "text", "text": content}] if isinstance(content, str) else content
        written["content"] = [thought, *said]
    if "tool_calls" in message:
        written["tool_calls"] = [_tool_call(call) for call in message["tool_calls"]]
    return written


def _tool_call(call: Json) -> Json:
    function = call["function"]
    written: Json = {"id": call["id"], "type": "function", "function": function["name"]}
    try:
        value = loads(function["arguments"]) if function["arguments"] else {}
    except CodecError as error:
        return written | {"arguments": {}, "parse_error": f"{error}: {function['arguments']}"}
    if not isinstance(value, dict):
        return written | {"arguments": {}, "parse_error": function["arguments"]}
    return written | {"arguments": value}


def _content(content: Any) -> Any:
    if content is None or isinstance(content, str):
        return content or ""
    return [
        {"type": "text", "text": part["text"]}
        if part["type"] == "text"
        else {
            "type": "image",
            "image": part["image_url"]["url"],
            "detail": part["image_url"].get("detail", "auto"),
        }
        for part in content
    ]


def _usage(usage: Json) -> Json | None:
    if not usage:
        return None
    keys = ("input_tokens", "output_tokens", "total_tokens")
    return {key: usage[key] for key in keys if type(usage.get(key)) is int}


def _began(timings: Json) -> str | None:
    began = timings.get("started_at")
    if not isinstance(began, int | float) or not 0 < began < 1e10:
        return None
    return datetime.fromtimestamp(began, UTC).isoformat(timespec="milliseconds")


def _key(one: Json) -> bytes:
    return hashlib.blake2b(f"{one['epoch']}/{one['id']}".encode(), digest_size=16).digest()


def _member(name: str) -> zipfile.ZipInfo:
    """A member without a time of its own, so that the same rollouts make the same archive."""
    member = zipfile.ZipInfo(name)
    member.compress_type = zipfile.ZIP_DEFLATED
    return member


MADE: Final = (
    Format(
        name="inspect",
        about="a log of the framework Inspect",
        of_rollout=sample,
        tokens=TokenPlace.SAMPLES,
        pack=pack_eval,
        suffixes=(".eval",),
    ),
)
"""The formats of this module."""
