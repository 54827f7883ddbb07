"""The options by which `gym-cli serve environment` speaks other frameworks' protocols."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from gymmesh_cli.options import together

if TYPE_CHECKING:
    from gymmesh_mesh.authoring.protocols import AskedProtocols

# A file of tasks without a split's name is that of this one.
_SPLIT: Final = "train"

protocol_options = together(
    click.option(
        "--as",
        "protocols",
        metavar="NAMES",
        help="With an environment: serve it with these protocols, too, separated by commas: mcp,"
        " openenv, ors, nemo_gym.",
    ),
    click.option(
        "--as-port",
        type=click.IntRange(0, 65535),
        help="The HTTP port of --as, mcp's excepted; by default the system chooses.",
    ),
    click.option(
        "--as-host",
        metavar="HOST",
        help="The address of --as-port; default: 127.0.0.1. Another one needs --insecure and"
        " --as-token-file.",
    ),
    click.option(
        "--as-token-file",
        type=click.Path(dir_okay=False, path_type=Path),
        metavar="FILE",
        help="The token that clients of --as must send.",
    ),
    click.option(
        "--as-tasks",
        "task_files",
        multiple=True,
        metavar="[SPLIT=]FILE",
        help="The tasks that clients of --as choose from, as split SPLIT (default: train);"
        " repeatable. Without it, the environment's examples.",
    ),
)


def asked_protocols(
    kind: str,
    *,
    protocols: str | None,
    as_port: int | None,
    as_host: str | None,
    as_token_file: Path | None,
    task_files: tuple[str, ...],
    **_: Any,
) -> AskedProtocols | None:
    """What the options ask for; None: nothing. Raises UsageError for those that need --as."""
    from gymmesh_mesh.authoring.protocols import AskedProtocols

    names = [name.strip() for name in (protocols or "").split(",") if name.strip()]
    if not names:
        if as_port is not None or as_host or as_token_file or task_files:
            raise click.UsageError("the options --as-… belong to --as, which names the protocols")
        return None
    if kind != "environment":
        raise click.UsageError(f"--as is for an environment; a {kind} service has no tasks")
    return AskedProtocols(
        names=names,
        port=as_port,
        host=as_host,
        token_file=str(as_token_file) if as_token_file else None,
        tasks=_files_of_splits(task_files),
    )


def _files_of_splits(task_files: tuple[str, ...]) -> dict[str, str]:
    files: dict[str, str] = {}
    for split, file in map(_split_and_file, task_files):
        if split in files:
            raise click.UsageError(
                f"--as-tasks names the split {split!r} twice, {files[split]} and {file}: give each"
                " file a split of its own (SPLIT=FILE), or join the files"
            )
        files[split] = file
    return files


def _split_and_file(text: str) -> tuple[str, str]:
    split, separator, file = text.partition("=")
    return (split, file) if separator else (_SPLIT, text)
