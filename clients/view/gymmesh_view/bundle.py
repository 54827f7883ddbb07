"""A static site of some rollouts: the page, and its data as scripts, so that it opens from a file.

If a page is opened from a file, browsers let it load only scripts beside it. So each part of the
data is a script that passes one text, which is JSON, to the page:

    data/index.js   every rollout's summary, the facets, and the sources
    data/N.js       the rollouts number N, N + 1 … in all their parts, with their tokens
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from gymmesh_client.problems import UserError, unwritable
from gymmesh_view.index import Indexer, Store, index_path, own_index
from gymmesh_view.reading import Reading, to_json
from gymmesh_view.rows import ONE_OF, SETS, Filters, Json, Sort, ViewSource
from gymmesh_view.server import STATIC, static_file
from gymmesh_view.vocabulary import read_vocabulary

_MARK: Final = "gymmesh-bundle"
_PAGE: Final = 500
# Rollouts are put together up to so many characters of JSON.
_PIECE: Final = 1 << 20
_SEARCHED: Final = 4_000


@dataclass(frozen=True, slots=True)
class BundleSummary:
    """The result: rollouts written, rollouts that matched but exceeded the limit, and bytes."""

    rollouts: int
    left_out: int
    bytes: int


def write_bundle(
    sources: Sequence[ViewSource],
    folder: Path,
    filters: Filters,
    sort: Sort,
    *,
    limit: int,
    overwrite: bool = False,
    index: Path | None = None,
    tokenizer: Path | None = None,
) -> BundleSummary:
    """Write a static site of the rollouts that match the filters.

    Args:
        folder: is created. An existing folder must be empty, or, with `overwrite`, an earlier
            bundle.
        limit: the maximum number of rollouts: the first in the order of `sort`.
        tokenizer: the tokenizer.json for token ids, or its folder. None: the one beside the rows.

    Raises:
        UserError: the folder has other contents, or a file cannot be read or written.
    """
    vocabulary = read_vocabulary(tokenizer) if tokenizer else None
    path = index or index_path(sources)
    indexer = Indexer(sources, path, own_index(sources) if index is None else None)
    indexer.prepare()
    try:
        indexer.run_once()
        with closing(Store(path)) as store:
            _make_room(folder, overwrite)
            try:
                return _write(Reading(store, sources, vocabulary), folder, filters, sort, limit)
            except OSError as error:
                raise unwritable(folder, error) from None
    finally:
        indexer.stop()


def _make_room(folder: Path, overwrite: bool) -> None:
    """An empty folder. Raises UserError where there is anything but an earlier bundle."""
    if folder.is_dir() and any(folder.iterdir()):
        if not (folder / _MARK).is_file():
            raise UserError(
                f"{folder} is not empty, and gym-cli view --bundle did not write it. Choose "
                "another folder with --bundle"
            )
        if not overwrite:
            raise UserError(
                f"{folder} already has a static site. Replace the site with --overwrite"
            )
        shutil.rmtree(folder / "data", ignore_errors=True)
    elif folder.exists() and not folder.is_dir():
        raise UserError(f"{folder} is a file. Name a folder with --bundle")


def _write(
    reading: Reading, folder: Path, filters: Filters, sort: Sort, limit: int
) -> BundleSummary:
    data = folder / "data"
    data.mkdir(parents=True, exist_ok=True)
    (folder / _MARK).write_text("A bundle of gym-cli view.\n")
    for name in STATIC:
        # index.html says that there is a bundle beside it.
        page = static_file(name).replace(b'<html lang="en">', b'<html lang="en" data-bundle>')
        (folder / name).write_bytes(page)
    summaries: list[Json] = []
    piece: dict[str, Any] = {}
    size = first = written = 0
    rows = _chosen(reading, filters, sort, limit)
    sources = _sources(reading, rows)
    for row in rows:
        detail = reading.rollout(row["key"])
        detail["summary"] |= {"id": row["id"], "source": row["source"]}
        detail["tokens"] = _tokens(reading, row["key"], detail)
        row["part"], row["text"] = first, _searched(row, detail)
        row["tools"] = sorted({one["name"] for one in detail["items"] if one["kind"] == "call"})
        row["actors"] = [one["name"] for one in detail["actors"]]
        row["path"] = sources[row["source"]]["path"]
        row["run_id"] = detail["run_id"]
        summaries.append(row)
        piece[row["key"]] = detail
        size += len(to_json(detail))
        if size >= _PIECE:
            written += _script(data / f"{first}.js", str(first), piece)
            piece, size, first = {}, 0, len(summaries)
    if piece:
        written += _script(data / f"{first}.js", str(first), piece)
    chosen = reading.store.counted(filters)
    about = {
        "rollouts": summaries,
        "facets": _facets(summaries),
        "chosen": chosen,
        "sources": sources,
    }
    written += _script(data / "index.js", "index", about)
    return BundleSummary(len(summaries), chosen - len(summaries), written)


def _facets(rows: Sequence[Json]) -> Json:
    """The names that filters may ask for. Those of the index are of rollouts that are not here."""
    found: Json = {kind: sorted({row[kind] for row in rows} - {""}) for kind in (*ONE_OF, "run")}
    for kind, column in SETS.items():
        found[kind] = sorted({name for row in rows for name in row[column]})
    return found


def _sources(reading: Reading, rows: Sequence[Json]) -> list[Json]:
    """The sources that some row is from, by name. Rows are numbered anew, and so are their sources:
    the index's numbers count what is not here.
    """
    shown = reading.status()["sources"]
    used = sorted({row["source"] for row in rows})
    for number, row in enumerate(sorted(rows, key=lambda row: row["id"]), 1):
        row["id"], row["source"] = number, used.index(row["source"])
    return [{**shown[number], "path": Path(shown[number]["path"]).name} for number in used]


def _tokens(reading: Reading, key: str, detail: Json) -> Json:
    """The tokens of all model calls, by `thread.call`."""
    threads = [(0, detail["calls"])]
    for actor in detail["actors"]:
        threads += [(one["thread"], one["calls"]) for one in actor["conversations"]]
    return {
        f"{thread}.{call['call']}": reading.tokens(key, call["call"], thread)
        for thread, calls in threads
        for call in calls
    }


def _chosen(reading: Reading, filters: Filters, sort: Sort, limit: int) -> list[Json]:
    rows: list[Json] = []
    while page := reading.store.listed(filters, sort, len(rows), min(_PAGE, limit - len(rows))):
        rows += page
    return rows


def _searched(row: Json, detail: Json) -> str:
    """The text that a search in the bundle looks in."""
    pieces = [row["task"], row["rollout_id"]]
    spoken = [one["items"] for actor in detail["actors"] for one in actor["conversations"]]
    for item in [item for items in (detail["items"], *spoken) for item in items]:
        pieces += [item.get("name", ""), *(part["text"] for part in item["parts"])]
    return "\n".join(pieces)[:_SEARCHED].lower()


def _script(path: Path, name: str, value: Any) -> int:
    """A script that hands a part of the data to the page; its size."""
    # A text for JSON.parse and no object of JavaScript, in which `__proto__` is more than a key.
    text = to_json(value).decode("utf-8", "replace")
    script = f"gymmeshPart({json.dumps(name)}, {json.dumps(text)});\n"
    path.write_text(script, encoding="ascii")
    return len(script)
