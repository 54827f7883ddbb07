"""gym-cli view."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
from click.core import ParameterSource

from gymmesh_cli.terminal import DONE, NOTHING_DONE, echo, one_line

if TYPE_CHECKING:
    from gymmesh_view import Found

# What counts for a page that is served; all other options are those of a bundle.
_OF_THE_PAGE: Final = ("paths", "runs", "port", "browser", "tokenizer")


@click.command("view")
@click.argument("paths", metavar="[DIR|ROLLOUTS]…", nargs=-1, type=click.Path(path_type=Path))
@click.option(
    "--run",
    "runs",
    multiple=True,
    metavar="ID",
    help=(
        "Show the active run with this id, or with an id that begins with ID. The ID "
        "`live` shows all active runs. Repeatable."
    ),
)
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=0,
    help="Port on 127.0.0.1. Default: 0 (the operating system picks a free port).",
)
@click.option(
    "--browser/--no-browser",
    default=True,
    help="Open the page in the browser, or only print the address.  [default: browser]",
)
@click.option(
    "--tokenizer",
    type=click.Path(path_type=Path),
    metavar="PATH",
    help=(
        "A file tokenizer.json, or a folder with this file. The page then shows token "
        "ids as text. Default: tokenizer.json in the folder of the rows, if the file "
        "exists."
    ),
)
@click.option(
    "--bundle",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Write a static web site with the rollouts to the folder DIR, and serve nothing.",
)
@click.option("--overwrite", is_flag=True, help="With --bundle: replace an existing bundle.")
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    default=1_000,
    show_default=True,
    metavar="N",
    help="With --bundle: include at most N rollouts.",
)
@click.option(
    "--sort",
    default="order",
    metavar="KEY",
    help=(
        "With --bundle: sort the rollouts by KEY, such as `reward`. -KEY sorts in "
        "descending order, such as `-reward`."
    ),
)
@click.option(
    "--environment",
    multiple=True,
    metavar="NAME",
    help=("With --bundle: only rollouts of this environment."),
)
@click.option(
    "--tag",
    multiple=True,
    metavar="KEY=VALUE",
    help=("With --bundle: only rollouts with this tag."),
)
@click.option("--task", metavar="ID", default="", help="With --bundle: only rollouts of this task.")
@click.option(
    "--text",
    metavar="WORDS",
    default="",
    help="With --bundle: only rollouts that contain these words.",
)
@click.option(
    "--min-reward", metavar="R", help="With --bundle: only rollouts with at least this reward."
)
@click.option(
    "--max-reward", metavar="R", help="With --bundle: only rollouts with at most this reward."
)
@click.option(
    "--outcome",
    type=click.Choice(["completed", "failed"]),
    help=("With --bundle: only rollouts with this outcome."),
)
def view(
    paths: tuple[Path, ...],
    runs: tuple[str, ...],
    port: int,
    browser: bool,
    tokenizer: Path | None,
    bundle: Path | None,
    overwrite: bool,
    limit: int,
    sort: str,
    **chosen: Any,
) -> int:
    """Browse rollouts in a web page that only you can open.

    \b
      gym-cli view rollouts.jsonl
      gym-cli view runs/
      gym-cli view --run live
      gym-cli view rollouts.jsonl --bundle site --outcome failed

    ROLLOUTS is the --output of `gym-cli collect` (the run can still be active), or another file
    with rows of rollouts. DIR is a folder: the page shows all files of rollouts in the folder and
    in subfolders. Default: the current folder. The command changes no rollouts and fetches nothing
    from the network.

    The command serves the page on 127.0.0.1. The printed address has a token, and the page opens
    only with this token. Ctrl-C stops the server. The command keeps an index of the rows in your
    cache folder, or in the folder GYMMESH_CACHE_DIR (environment variable).

    Exit code 0: the rollouts were shown or written. 1: there are no rollouts.
    """
    from gymmesh_view import find_sources, outputs_of_runs

    if bundle is None:
        _refuse_options_of_bundle()
    named = [*paths, *outputs_of_runs(runs)]
    found = find_sources(named or [Path()])
    if bundle is not None:
        return _bundle(found, bundle, sort, limit, overwrite, tokenizer, chosen)
    _serve(found, port, browser, tokenizer)
    return DONE


def _refuse_options_of_bundle() -> None:
    """Refuse options that have no effect on a page that is served. Raises UsageError."""
    context = click.get_current_context()
    for one in context.command.params:
        given = context.get_parameter_source(one.name or "") is ParameterSource.COMMANDLINE
        if given and one.name not in _OF_THE_PAGE:
            raise click.UsageError(f"{one.opts[0]} needs --bundle DIR")


def _serve(found: Found, port: int, browser: bool, tokenizer: Path | None) -> None:
    import asyncio

    from gymmesh_view import serve

    def ready(url: str) -> None:
        for source in found.sources:
            echo(one_line(f"shows         {source.path}"))
        if found.others:
            echo(f"ignored       files without rollouts: {len(found.others)}")
        echo(f"page          {url}")
        echo("Press Ctrl-C to stop.")

    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(
            serve(found.sources, port=port, browser=browser, ready=ready, tokenizer=tokenizer)
        )


def _bundle(
    found: Found,
    folder: Path,
    sort: str,
    limit: int,
    overwrite: bool,
    tokenizer: Path | None,
    chosen: dict[str, Any],
) -> int:
    from gymmesh_view import parse_filters, parse_sort, write_bundle

    query = {
        key: [value] if isinstance(value, str) else list(value)
        for key, value in chosen.items()
        if value
    }
    summary = write_bundle(
        found.sources,
        folder,
        parse_filters(query),
        parse_sort(sort),
        limit=limit,
        overwrite=overwrite,
        tokenizer=tokenizer,
    )
    echo(f"rollouts      {summary.rollouts} in {one_line(str(folder))}")
    if summary.left_out:
        echo(f"skipped       rollouts over --limit {limit}: {summary.left_out}")
    echo(f"open          {one_line(str(folder / 'index.html'))}")
    return DONE if summary.rollouts else NOTHING_DONE
