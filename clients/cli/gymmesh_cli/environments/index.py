"""gym-cli env index: the documents that the environment web_search searches."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from gymmesh_cli.options import FILE
from gymmesh_cli.terminal import echo, one_line

if TYPE_CHECKING:
    from gymmesh_mesh.authoring.environments import TokenizerName


@click.command("index", short_help="Index documents for the environment web_search.")
@click.argument(
    "documents", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="DOCS..."
)
@click.option(
    "--output",
    "-o",
    required=True,
    type=FILE,
    help=("Write the index to this file. A new index replaces an existing index as a whole."),
)
@click.option(
    "--tokenizer",
    type=click.Choice(["unicode", "english", "trigram"]),
    default="unicode",
    show_default=True,
    help=(
        "How searches match words. unicode: exact words. english: word stems. trigram: "
        "parts of words, for languages without spaces between words."
    ),
)
def index(documents: tuple[Path, ...], output: Path, tokenizer: TokenizerName) -> None:
    """Index documents for the search tool of the environment `web_search`.

    DOCS are files (JSONL, text, Markdown, HTML) or folders. Files in subfolders are also indexed.

    \b
      gym-cli env index docs/ more.jsonl --output index.db

    Exit code 2: the documents can't be indexed.
    """
    from gymmesh_client.safe_writes import refuse_foreign, refuse_inputs
    from gymmesh_mesh.authoring.environments import index_documents, is_index

    refuse_inputs([output], {"DOCS": documents})
    refuse_foreign(output, is_index, "an index of documents")
    count, passed_over = index_documents(documents, output, tokenizer)
    for line in passed_over:
        echo(one_line(f"skipped {line}"), err=True)
    echo(f"{output}: {count} document{'' if count == 1 else 's'}")
