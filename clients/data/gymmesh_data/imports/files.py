"""Rows of other programs' files, each with the place it came from.

| file               | its rows                                                          |
|--------------------|-------------------------------------------------------------------|
| .jsonl, .ndjson    | a line each                                                       |
| .json              | a list, or the list under `data`, `rows`, `train` or `samples`    |
| .parquet           | a row each; needs pyarrow, the extra `parquet`                    |
| .csv               | a row each, of texts; the first line has the columns' names       |
| .eval              | a sample each (an archive of Inspect)                             |
| a folder           | those of all files in it with these names, in order of their paths |
"""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from gymmesh_client.problems import UserError, unreadable
from gymmesh_data.exports import EXTRA
from gymmesh_data.imports.archive import members
from gymmesh_data.imports.items import RowRefused
from gymmesh_data.sources import lines_of
from gymmesh_responses import CodecError, loads, loads_line

_LINES: Final = (".jsonl", ".ndjson")
_KNOWN: Final = (*_LINES, ".json", ".parquet", ".csv", ".eval")
_OTHER_SEPARATORS: Final = (";", "\t", "|")
_LISTS: Final = ("data", "rows", "train", "samples")
_BATCH_ROWS: Final = 1024


def files_of(path: Path, *, also: tuple[str, ...] = ()) -> list[Path]:
    """The files of a folder that can be read, or the file itself. `also`: endings of further files
    that the caller can read. Raises UserError for a folder without a readable file.
    """
    if not path.is_dir():
        return [path]
    known = (*_KNOWN, *also)
    found = sorted(one for one in path.rglob("*") if one.suffix in known and one.is_file())
    if not found:
        raise UserError(f"{path}: the folder has no file of type {', '.join(known)}")
    return found


def rows_of(path: Path) -> Iterator[tuple[str, Any]]:
    """The rows of a file: place and row; RowRefused for one that is no JSON.

    Raises:
        UserError: the file cannot be read, or is of a kind that is not known.
        ConfigError: pyarrow is missing.
    """
    try:
        if path.suffix == ".parquet":
            yield from _parquet(path)
        elif path.suffix == ".eval":
            for name, content in members(path, "samples/"):
                yield f"{path}: {name}", _of_bytes(content)
        elif path.suffix == ".json":
            yield from _json(path)
        elif path.suffix == ".csv":
            yield from _csv(path)
        else:
            yield from ((where, _of_bytes(line, loads_line)) for where, line in lines_of(path))
    except OSError as error:
        raise unreadable(path, error) from None


def _of_bytes(text: bytes, read: Callable[[bytes], Any] = loads) -> Any:
    try:
        return read(text)
    except CodecError as error:
        return RowRefused(f"is {_not_json(error)}")


def _not_json(error: CodecError) -> str:
    """What is wrong with a text; most of these errors say themselves that it is not JSON."""
    told = str(error)
    return told if told.startswith("not ") else f"not JSON: {told}"


def _json(path: Path) -> Iterator[tuple[str, Any]]:
    try:
        document = loads(path.read_bytes())
    except CodecError as error:
        raise UserError(f"{path}: {_not_json(error)}") from None
    rows = document
    if isinstance(document, dict):
        rows = next((document[key] for key in _LISTS if isinstance(document.get(key), list)), None)
    if not isinstance(rows, list):
        raise UserError(
            f"{path}: must be a list of rows, or an object with this list under one of the "
            f"keys {', '.join(_LISTS)}"
        )
    for place, row in enumerate(rows):
        yield f"{path}: row {place}", row


def _csv(path: Path) -> Iterator[tuple[str, Any]]:
    with path.open(encoding="utf-8-sig", newline="") as file:
        reader = csv.reader(file, strict=True)
        try:
            names = next(reader, [])
            if len(set(names)) < len(names):
                raise UserError(f"{path}:1: has two columns with the same name")
            _refuse_other_separator(path, names)
            begin = reader.line_num + 1
            for fields in reader:
                where, begin = f"{path}:{begin}", reader.line_num + 1
                if len(fields) == len(names):
                    yield where, dict(zip(names, fields, strict=True))
                elif fields:
                    told = f"has {len(fields)} fields, but the file has {len(names)} columns"
                    yield where, RowRefused(told)
        except csv.Error as error:
            raise UserError(f"{path}:{reader.line_num}: not CSV: {error}") from None
        except UnicodeDecodeError as error:
            raise UserError(f"{path}: not UTF-8: {error.reason}") from None


def _refuse_other_separator(path: Path, names: list[str]) -> None:
    """Refuse a file whose columns are not separated by commas. Raises UserError."""
    sign = next((sign for sign in _OTHER_SEPARATORS if len(names) == 1 and sign in names[0]), None)
    if sign is not None:
        raise UserError(
            f"{path}:1: has one column, {names[0][:200]!r}, so the file seems to be separated by "
            f"{sign!r}. Write the file with commas as separators"
        )


def _parquet(path: Path) -> Iterator[tuple[str, Any]]:
    EXTRA.require(f"reading {path.name}")
    import pyarrow
    import pyarrow.parquet

    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            number = 0
            for batch in file.iter_batches(batch_size=_BATCH_ROWS):
                for row in batch.to_pylist():
                    yield f"{path}: row {number}", _json_row(row)
                    number += 1
    except (pyarrow.ArrowInvalid, pyarrow.ArrowNotImplementedError) as error:
        raise UserError(f"{path}: not a readable Parquet file: {error}") from None


def _json_row(row: Any) -> Any:
    """A row of a table, with null for NaN, as which tables have numbers that are missing."""
    try:
        return _without_nan(row)
    except RowRefused as refused:
        return refused


def _without_nan(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        if math.isnan(value):
            return None
        raise RowRefused(f"is not JSON: {value} is not a JSON number")
    if isinstance(value, dict):
        return {key: _without_nan(one) for key, one in value.items()}
    return [_without_nan(one) for one in value] if isinstance(value, list) else value
