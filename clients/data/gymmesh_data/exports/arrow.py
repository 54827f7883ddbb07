"""Files of Arrow and Parquet, made of an export's JSON lines some megabytes at a time.

Needs pyarrow, the extra `parquet`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from gymmesh_client import UserError
from gymmesh_data.exports.lines import read_line, without_surrogates
from gymmesh_responses import dumps
from gymmesh_runtime.extras import Extra

EXTRA: Final = Extra("parquet", ("pyarrow",))
PARQUET_SUFFIXES: Final = (".parquet", ".pq")
# A row group of Parquet, and a batch of Arrow: in memory as a whole.
_CHUNK_BYTES: Final = 8 * 1024 * 1024


def pack_parquet(lines: Path, target: Path, losses: Counter[str]) -> None:
    """Rows of `table_row` as a Parquet file, compressed with zstd.

    Raises:
        UserError: a value does not fit its column.
        OSError: the disk can't be written.
    """
    import pyarrow.parquet

    schema = rollout_schema()
    with pyarrow.parquet.ParquetWriter(target, schema, compression="zstd") as writer:
        for table in _tables(lines, schema, losses):
            writer.write_table(table)


def pack_arrow(lines: Path, target: Path, losses: Counter[str]) -> None:
    """Rows of `table_row` as a stream of Arrow's IPC format. Raises as `pack_parquet`."""
    import pyarrow

    schema = rollout_schema()
    with pyarrow.OSFile(str(target), "wb") as file, pyarrow.ipc.new_stream(file, schema) as writer:
        for table in _tables(lines, schema, losses):
            writer.write_table(table)


def pack_verl(lines: Path, target: Path, losses: Counter[str]) -> None:
    """Rows of `verl_sft` as a Parquet file. Raises as `pack_parquet`.

    Tools are objects in this table, and a column has one type for all rows: a schema gets null for
    keys that only other schemas have. These nulls are counted. Tools without a common type with the
    earlier tools are omitted and counted.
    """
    import pyarrow
    import pyarrow.parquet

    kind, known = _tools_type(lines, losses)
    schema = pyarrow.schema({"messages": pyarrow.list_(_message_type())} | {"tools": kind})
    with pyarrow.parquet.ParquetWriter(target, schema, compression="zstd") as writer:
        for chunk in _chunks(lines, losses):
            rows = [read_line(line) for line in chunk.splitlines()]
            for row in rows:
                if row["tools"] is not None and dumps(row["tools"]) not in known:
                    row["tools"] = None
            writer.write_batch(pyarrow.RecordBatch.from_pylist(rows, schema))


def rollout_schema() -> Any:
    """The columns of `parquet` and `arrow`."""
    import pyarrow as pa

    text, whole, number = pa.string(), pa.int64(), pa.float64()
    sample = {
        "input_ids": pa.list_(pa.int32()),
        "mask": pa.list_(pa.int8()),
        "logprobs": pa.list_(pa.float32()),
    }
    outcome = {"name": text, "outcome": text, "calls": whole}
    return pa.schema(
        dict.fromkeys(("task_id", "rollout_id", "run_id"), text)
        | dict.fromkeys(("repeat_index", "attempt"), whole)
        | dict.fromkeys(("environment", "agent", "model", "stop_reason"), text)
        | {"reward": number, "verified": pa.bool_(), "explanation": text}
        | {"verification": text}
        | {"steps_taken": whole, "tools_used": pa.list_(text)}
        | {"tool_outcomes": pa.list_(pa.struct(outcome)), "weights_versions": pa.list_(whole)}
        | {"input_tokens": whole, "output_tokens": whole}
        | {"started_at": number, "duration_us": whole, "prompt_length": whole}
        | {"messages": pa.list_(_message_type({"parts": text})), "tools": text}
        | {"task": text, "samples": pa.list_(pa.struct(sample))}
    )


def _message_type(more: dict[str, Any] | None = None) -> Any:
    import pyarrow as pa

    function = pa.struct({"name": pa.string(), "arguments": pa.string()})
    call = pa.struct({"id": pa.string(), "type": pa.string(), "function": function})
    fields = dict.fromkeys(("role", "content", "reasoning_content", "tool_call_id"), pa.string())
    return pa.struct(fields | {"tool_calls": pa.list_(call)} | (more or {}))


def _tables(lines: Path, schema: Any, losses: Counter[str]) -> Iterator[Any]:
    import pyarrow
    import pyarrow.json

    how = pyarrow.json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="error")
    for chunk in _chunks(lines, losses):
        reading = pyarrow.json.ReadOptions(use_threads=False, block_size=len(chunk) + 1)
        try:
            source = pyarrow.BufferReader(chunk)
            table = pyarrow.json.read_json(source, read_options=reading, parse_options=how)
        except pyarrow.ArrowInvalid as error:
            raise UserError(f"{lines}: does not match the table's columns: {error}") from None
        yield table.select(schema.names).cast(schema)


def _chunks(lines: Path, losses: Counter[str]) -> Iterator[bytes]:
    """Some whole lines at a time, of well-formed text."""
    with lines.open("rb") as file:
        while some := file.readlines(_CHUNK_BYTES):
            yield b"".join([without_surrogates(line, losses) for line in some])


def _tools_type(lines: Path, losses: Counter[str]) -> tuple[Any, set[bytes]]:
    """A type that tools have in common, and those, as JSON, that have it."""
    import pyarrow as pa

    found, counts = dict[bytes, Any](), Counter[bytes]()
    for chunk in _chunks(lines, Counter()):
        for line in chunk.splitlines():
            if (tools := read_line(line)["tools"]) is not None:
                key = dumps(tools)
                found[key] = tools
                counts[key] += 1
    kept = _alike(found)
    # Where no rollout has tools the column is there all the same, and empty.
    kind = _without_empty(pa.array(list(kept.values())).type) if kept else pa.null()
    if left := sum(counts[key] for key in found if key not in kept):
        losses["tools that don't fit into one column with the tools of other tasks"] += left
    for key, tools in kept.items():
        if pa.array([tools], kind).to_pylist() != [tools]:
            losses[
                "tools whose schemas get nulls because all tools of a table share one schema"
            ] += counts[key]
    return kind, set(kept)


def _alike(found: dict[bytes, Any]) -> dict[bytes, Any]:
    """Those that have a type in common: mostly all."""
    import pyarrow as pa

    apart = (pa.ArrowInvalid, pa.ArrowTypeError)
    with suppress(*apart):
        pa.array(list(found.values()))
        return found
    kept: dict[bytes, Any] = {}
    for key, tools in found.items():
        with suppress(*apart):
            pa.array([*kept.values(), tools])
            kept[key] = tools
    return kept


def _without_empty(kind: Any) -> Any:
    """A type without structs that have no field, which Parquet does not know."""
    import pyarrow as pa

    if pa.types.is_list(kind):
        return pa.list_(_without_empty(kind.value_type))
    if pa.types.is_struct(kind):
        fields = [(one.name, _without_empty(one.type)) for one in kind]
        kept = [pair for pair in fields if not (pa.types.is_struct(pair[1]) and not len(pair[1]))]
        return pa.struct(kept)
    return kind
