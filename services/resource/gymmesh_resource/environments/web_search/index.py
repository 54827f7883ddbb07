"""Builds a search index: `python -m gymmesh_resource.environments.web_search.index DOCS …`.

The index is one SQLite file with an FTS5 table over the documents' titles and texts.

Invariant: the file appears whole or not at all; an index there before stays until then.
"""

from __future__ import annotations

import argparse
import secrets
import sqlite3
import sys
from collections.abc import Iterable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Literal

from gymmesh_resource.environments.web_search.documents import (
    Document,
    DocumentError,
    read_documents,
)
from gymmesh_runtime.text import one_line

IS_FACE = True  # see tools/import_faces.py

# SQLite keeps both numbers in the file's head: "GMwx", and the version of this layout.
APPLICATION_ID = 0x474D7778
FORMAT = 1

TokenizerName = Literal["unicode", "english", "trigram"]
_TOKENIZERS: dict[str, str] = {
    "unicode": "unicode61 remove_diacritics 2",
    "english": "porter unicode61 remove_diacritics 2",
    "trigram": "trigram",
}
_SCHEMA = """
CREATE TABLE documents (
    number INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, url TEXT NOT NULL, title TEXT NOT NULL,
    text TEXT NOT NULL
);
CREATE INDEX by_url ON documents (url) WHERE url <> '';
CREATE VIRTUAL TABLE pages USING fts5 (
    title, text, content='documents', content_rowid='number', tokenize='{tokenizer}'
);
"""
_INSERT = "INSERT INTO documents (id, url, title, text) VALUES (?, ?, ?, ?)"


def build_index(
    documents: Iterable[Document], output: Path, *, tokenizer: TokenizerName = "unicode"
) -> int:
    """Write an index of the documents to `output`; how many there are.

    `tokenizer`: unicode splits at all but letters and digits; english takes word forms together;
    trigram finds parts of words, for languages that put no spaces between them.
    Raises `DocumentError` for an id that comes twice or no document at all, OSError.
    """
    unfinished = output.parent / f".{output.name}.{secrets.token_hex(8)}"
    # Made as any new file: by `tempfile` or by SQLite it would be for fewer people to read.
    unfinished.touch(exist_ok=False)
    try:
        count = _fill(unfinished, documents, _TOKENIZERS[tokenizer])
        if not count:
            raise DocumentError("There are no documents to index.")
        unfinished.replace(output)
    finally:
        unfinished.unlink(missing_ok=True)
    return count


def _fill(path: Path, documents: Iterable[Document], tokenizer: str) -> int:
    count = 0
    with closing(sqlite3.connect(path)) as database:
        database.executescript(
            f"PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = {FORMAT};"
            + _SCHEMA.format(tokenizer=tokenizer)
        )
        for document in documents:
            try:
                values = (document.id, document.url, document.title, document.text)
                database.execute(_INSERT, values)
            except sqlite3.IntegrityError:
                raise DocumentError(f"Two documents have the id {document.id!r}.") from None
            count += 1
        database.execute("INSERT INTO pages (pages) VALUES ('rebuild')")
        database.execute("INSERT INTO pages (pages) VALUES ('optimize')")
        database.commit()
    return count


def main(arguments: Sequence[str] | None = None) -> int:
    """Index files and folders; the exit status is 2 for what cannot be indexed."""
    parser = argparse.ArgumentParser(
        prog="python -m gymmesh_resource.environments.web_search.index",
        description="Index documents: JSONL, text, Markdown or HTML files, or folders with "
        "such files at any depth.",
    )
    parser.add_argument("documents", nargs="+", type=Path, metavar="DOCS")
    parser.add_argument("--output", required=True, type=Path, help="the index file to write")
    parser.add_argument(
        "--tokenizer", choices=sorted(_TOKENIZERS), default="unicode", help="(unicode)"
    )
    options = parser.parse_args(arguments)
    passed_over: list[str] = []
    try:
        documents = read_documents(options.documents, passed_over)
        count = build_index(documents, options.output, tokenizer=options.tokenizer)
    except (DocumentError, OSError, sqlite3.Error) as error:
        sys.stderr.write(f"error: {one_line(str(error))}\n")
        return 2
    for line in passed_over:
        sys.stderr.write(f"skipped {one_line(line)}\n")
    sys.stdout.write(f"{count} documents in {options.output}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
