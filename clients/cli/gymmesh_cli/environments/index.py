"""gym-cli env index: what the environment web_search searches."""

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
    help="The index to write; one that is there is replaced when the new one is whole.",
)
@click.option(
    "--tokenizer",
    type=click.Choice(["unicode", "english", "trigram"]),
    default="unicode",
    show_default=True,
    help="unicode: words as they are; english: word forms together; trigram: parts of words, for "
    "languages without spaces between them.",
)
def index(documents: tuple[Path, ...], output: Path, tokenizer: TokenizerName) -> None:
    """Index documents for the environment web_search: its search tool finds what is in here.

    DOCS are files (JSONL, text, Markdown, HTML) and folders, with all below them.

    \b
      gym-cli env index docs/ more.jsonl --output index.db

    Exit code 2 for documents that cannot be indexed.
    """
    from gymmesh_client.safe_writes import refuse_foreign, refuse_inputs
    from gymmesh_mesh.authoring.environments import index_documents, is_index

    refuse_inputs([output], {"DOCS": documents})
    refuse_foreign(output, is_index, "an index of documents")
    count, passed_over = index_documents(documents, output, tokenizer)
    for line in passed_over:
        echo(one_line(f"passed over {line}"), err=True)
    echo(f"{count} documents in {output}")
