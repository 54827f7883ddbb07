"""What somebody would write by hand in the place of an export: the plain loops of bench_export.py.

Each reads a line, takes it apart with orjson, puts the same record together and writes it. None
checks a row, counts what it cannot carry, knows more kinds of items than the bench's rows have, or
can be resumed; `dpo` holds all messages in memory (as JSON, which is the least). What they write is
what an export writes (tests/unit/data/exports/test_loops.py), so that they do the same work.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final

import orjson

from gymmesh_data.exports.arrow import rollout_schema

Json = dict[str, Any]
_BATCH: Final = 1000


def copy(source: Path, target: Path) -> None:
    """Reads and writes each row as it is: the least that any program does."""
    _write(target, _rows(source))


def messages(source: Path, target: Path) -> None:
    """As `export --format messages`."""
    _write(target, map(_message_record, _rows(source)))


def _message_record(row: Json) -> Json:
    chat, length = _chat(row)
    return {
        "prompt": chat[:length],
        "messages": chat,
        "tools": _tools(row),
        "reward": row["reward"],
        "metadata": _metadata(row),
        "samples": [
            {"input_ids": ids, "mask": mask, "logprobs": logprobs}
            for ids, mask, _, logprobs in _samples(row)
        ],
    }


def sft(source: Path, target: Path) -> None:
    """As `export --format sft`: rewards of 1, and no two of the same messages."""
    _write(target, _demonstrations(source))


def _demonstrations(source: Path) -> Iterator[Json]:
    known = set[bytes]()
    for row in _rows(source):
        if row["reward"] < 1:
            continue
        chat, _ = _chat(row, as_objects=True)
        tools = _tools(row)
        digest = blake2b(orjson.dumps([chat, tools]), digest_size=16).digest()
        if digest not in known:
            known.add(digest)
            yield {"messages": chat, "tools": orjson.dumps(tools).decode()}


def tokens(source: Path, target: Path) -> None:
    """As `export --format tokens`."""
    _write(target, (record for row in _rows(source) for record in _token_records(row)))


def _token_records(row: Json) -> Iterator[Json]:
    samples = _samples(row)
    for number, (ids, mask, labels, logprobs) in enumerate(samples):
        yield {
            "input_ids": ids,
            "labels": labels,
            "mask": mask,
            "logprobs": logprobs,
            "reward": row["reward"],
            "task_id": row["task_id"],
            "rollout_id": row["rollout_id"],
            "sample": number,
            "samples": len(samples),
            "weights_versions": row["metadata"].get("weights_versions", []),
        }


def dpo(source: Path, target: Path) -> None:
    """As `export --format dpo`: the best rollout of a task with the worst, at most four pairs."""
    tasks = defaultdict[str, list[tuple[float, str, bytes]]](list)
    for row in _rows(source):
        chat, _ = _chat(row, as_objects=True)
        kept = orjson.dumps([chat, _tools(row)])
        tasks[row["task_id"]].append((row["reward"], row["rollout_id"], kept))
    _write(target, (pair for task, scored in tasks.items() for pair in _pairs(task, scored)))


def _pairs(task: str, scored: list[tuple[float, str, bytes]]) -> Iterator[Json]:
    ranked = sorted(scored, key=lambda one: -one[0])
    for place in range(min(4, len(ranked) // 2)):
        better, worse = ranked[place], ranked[-1 - place]
        if better[0] <= worse[0]:
            return
        (good, tools), (bad, _) = orjson.loads(better[2]), orjson.loads(worse[2])
        common = 0
        while good[common] == bad[common]:
            common += 1
        yield {
            "prompt": good[:common],
            "chosen": good[common : common + 1],
            "rejected": bad[common : common + 1],
            "tools": orjson.dumps(tools).decode(),
            "task_id": task,
            "chosen_reward": better[0],
            "rejected_reward": worse[0],
            "chosen_rollout_id": better[1],
            "rejected_rollout_id": worse[1],
        }


def parquet(source: Path, target: Path) -> None:
    """As `export --format parquet`, by pyarrow's own way from Python's objects."""
    import pyarrow
    import pyarrow.parquet

    schema = rollout_schema()
    with pyarrow.parquet.ParquetWriter(target, schema, compression="zstd") as writer:
        batch = list[Json]()
        for row in _rows(source):
            batch.append(_table_row(row))
            if len(batch) == _BATCH:
                writer.write_table(pyarrow.Table.from_pylist(batch, schema))
                batch = []
        writer.write_table(pyarrow.Table.from_pylist(batch, schema))


def _table_row(row: Json) -> Json:
    chat, length = _chat(row)
    kept = ("task_id", "responses_create_params", "environment")
    return {
        **{key: row[key] for key in ("task_id", "rollout_id", "repeat_index", "reward")},
        **{key: row[key] for key in ("environment", "stop_reason")},
        **{key: row["metadata"][key] for key in ("steps_taken", "tools_used")},
        "tool_outcomes": [],
        "run_id": "",
        "agent": "",
        "model": "",
        "verified": True,
        "weights_versions": [],
        "prompt_length": length,
        "messages": chat,
        "tools": orjson.dumps(_tools(row)).decode(),
        "task": orjson.dumps({key: row[key] for key in kept}).decode(),
        "samples": [
            {"input_ids": ids, "mask": mask, "logprobs": logprobs}
            for ids, mask, _, logprobs in _samples(row)
        ],
    }


LOOPS: Final[Mapping[str, Callable[[Path, Path], None]]] = {
    "copy": copy,
    "messages": messages,
    "sft": sft,
    "tokens": tokens,
    "dpo": dpo,
    "parquet": parquet,
}
"""By the format that each writes; `copy` writes the rows."""


def _rows(source: Path) -> Iterator[Json]:
    with source.open("rb") as lines:
        for line in lines:
            yield orjson.loads(line)


def _write(target: Path, records: Iterator[Json]) -> None:
    with target.open("wb") as out:
        for record in records:
            out.write(orjson.dumps(record, option=orjson.OPT_APPEND_NEWLINE))


def _chat(row: Json, *, as_objects: bool = False) -> tuple[list[Json], int]:
    """The messages, and how many of them are the prompt."""
    chat = [
        {"role": one["role"], "content": one["content"]}
        for one in row["responses_create_params"]["input"]
    ]
    length, answer = len(chat), dict[str, Any]()
    for item in row["response"]["output"]:
        kind = item["type"]
        if kind == "function_call_output":
            chat.append(
                {"role": "tool", "tool_call_id": item["call_id"], "content": item["output"]}
            )
            answer = {}
            continue
        if not answer:
            answer = {"role": "assistant", "content": None}
            chat.append(answer)
        if kind == "reasoning":
            answer["reasoning_content"] = "\n".join([one["text"] for one in item["content"]])
        elif kind == "message":
            answer["content"] = "".join([one["text"] for one in item["content"]])
        else:
            arguments = orjson.loads(item["arguments"]) if as_objects else item["arguments"]
            function = {"name": item["name"], "arguments": arguments}
            call = {"id": item["call_id"], "type": "function", "function": function}
            answer.setdefault("tool_calls", []).append(call)
    return chat, length


def _tools(row: Json) -> list[Json]:
    return [
        {
            "type": "function",
            "function": {key: one[key] for key in ("name", "parameters", "strict")},
        }
        for one in row["responses_create_params"]["tools"]
    ]


def _metadata(row: Json) -> Json:
    keys = ("task_id", "rollout_id", "repeat_index", "environment", "stop_reason")
    notes = {key: row["metadata"][key] for key in ("steps_taken", "tools_used")}
    return {key: row[key] for key in keys} | notes | {"verified": True}


_Sample = tuple[list[int], list[int], list[int], list[float]]


def _samples(row: Json) -> list[_Sample]:
    """Ids, mask, labels and log probabilities of each sample: another one after a fork."""
    samples = list[_Sample]()
    for item in row["response"]["output"]:
        if "generation_token_ids" not in item:
            continue
        prompt, sampled = item["prompt_token_ids"], item["generation_token_ids"]
        held = len(samples[-1][0]) if samples else 0
        if not samples or prompt[:held] != samples[-1][0]:
            samples.append(([], [], [], []))
            held = 0
        ids, mask, labels, logprobs = samples[-1]
        read = prompt[held:]
        ids += read + sampled
        mask += [0] * len(read) + [1] * len(sampled)
        labels += [-100] * len(read) + sampled
        logprobs += [0.0] * len(read) + item["generation_log_probs"]
    return samples
