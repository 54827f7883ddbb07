"""The work of gym-cli view: it keeps an index up to date, and serves the page."""

from __future__ import annotations

import asyncio
import webbrowser
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from gymmesh_client import UserError
from gymmesh_client.control import read_entries
from gymmesh_view.index import Indexer, Store, index_path, own_index
from gymmesh_view.reading import Reading
from gymmesh_view.rows import ViewSource
from gymmesh_view.server import ViewServer
from gymmesh_view.vocabulary import read_vocabulary


@asynccontextmanager
async def viewing(
    sources: Sequence[ViewSource],
    *,
    port: int = 0,
    index: Path | None = None,
    tokenizer: Path | None = None,
) -> AsyncIterator[ViewServer]:
    """Index some sources and serve their page until the context ends.

    Args:
        port: the port of 127.0.0.1. 0: the system chooses.
        index: the file of the index. None: beside the run if one run is shown, else in the user's
            cache folder.
        tokenizer: the tokenizer.json for token ids, or its folder. None: the one beside the rows.

    Raises:
        UserError: the index cannot be written, the tokenizer cannot be read, or the port is taken.
    """
    vocabulary = await asyncio.to_thread(read_vocabulary, tokenizer) if tokenizer else None
    path = index or index_path(sources)
    indexer = Indexer(sources, path, own_index(sources) if index is None else None)
    indexer.prepare()
    store = Store(path)
    try:
        indexer.start()
        async with ViewServer(Reading(store, sources, vocabulary)).serving(port) as server:
            yield server
    finally:
        store.close()
        await asyncio.to_thread(indexer.stop)


async def serve(
    sources: Sequence[ViewSource],
    *,
    port: int,
    browser: bool,
    ready: Callable[[str], None],
    tokenizer: Path | None = None,
) -> None:
    """Serve until cancelled.

    Args:
        browser: whether to open the page in the user's browser.
        ready: is called with the address.
        tokenizer: as for `viewing`.
    """
    async with viewing(sources, port=port, tokenizer=tokenizer) as server:
        ready(server.url)
        if browser:
            await asyncio.to_thread(webbrowser.open, server.url)
        await asyncio.Event().wait()


def outputs_of_runs(names: Iterable[str]) -> list[Path]:
    """The outputs of runs in progress, selected by the beginnings of their ids. `live` selects all
    of them.

    Raises:
        UserError: a name matches no run, or several.
    """
    entries = list(read_entries())
    found: list[Path] = []
    for name in names:
        if name == "live":
            outputs = [entry.output for entry in entries]
        else:
            outputs = [entry.output for entry in entries if entry.run_id.startswith(name)]
        if not outputs:
            known = ", ".join(entry.run_id for entry in entries) or "none"
            raise UserError(
                f"--run {name}: no run in progress has this id; runs in progress: {known}"
            )
        if len(outputs) > 1 and name != "live":
            raise UserError(
                f"--run {name}: several runs have an id that begins with {name} "
                f"({len(outputs)}). Pass more characters of the id"
            )
        found += map(Path, outputs)
    return found
