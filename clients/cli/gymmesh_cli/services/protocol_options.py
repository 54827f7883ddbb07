"""The options by which `gym-cli serve environment` speaks other frameworks' protocols."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from gymmesh_cli.options import together
from gymmesh_cli.terminal import OptionGroup, option

if TYPE_CHECKING:
    from gymmesh_mesh.authoring.protocols import AskedProtocols

# A file of tasks without a split's name is that of this one.
_SPLIT: Final = "train"

protocol_options = together(
    option(
        "--as",
        "protocols",
        group=OptionGroup.PROTOCOLS,
        metavar="NAMES",
        help=(
            "For an environment: also serve the environment over these protocols, separated "
            "by commas. Protocols: mcp, openenv, ors, nemo_gym."
        ),
    ),
    option(
        "--as-port",
        group=OptionGroup.PROTOCOLS,
        type=click.IntRange(0, 65535),
        help=(
            "HTTP port for the protocols openenv, ors and nemo_gym. Default: the operating "
            "system picks a free port. The protocol mcp has its own port."
        ),
    ),
    option(
        "--as-host",
        group=OptionGroup.PROTOCOLS,
        metavar="HOST",
        help=(
            "Listen on this address with --as-port. Default: 127.0.0.1. Any other address "
            "needs --insecure and --as-token-file."
        ),
    ),
    option(
        "--as-token-file",
        group=OptionGroup.PROTOCOLS,
        type=click.Path(dir_okay=False, path_type=Path),
        metavar="FILE",
        help="File with the token that clients of the --as protocols must send.",
    ),
    option(
        "--as-tasks",
        "task_files",
        group=OptionGroup.PROTOCOLS,
        multiple=True,
        metavar="[SPLIT=]FILE",
        help=(
            "Task file for clients of the --as protocols. SPLIT is the data split of the "
            "tasks, by default train. Without --as-tasks, clients receive the environment's "
            "examples. Repeatable."
        ),
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
    """The requested protocols; None: none. Raises UsageError for options that need --as."""
    from gymmesh_mesh.authoring.protocols import AskedProtocols

    names = [name.strip() for name in (protocols or "").split(",") if name.strip()]
    if not names:
        if as_port is not None or as_host or as_token_file or task_files:
            raise click.UsageError(
                "--as-port, --as-host and the other --as-… options need --as, which selects "
                "the protocols"
            )
        return None
    if kind != "environment":
        raise click.UsageError(
            "--as applies only to environments, and this service is of the kind "
            f"'{kind}'; remove --as"
        )
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
                f"--as-tasks names split {split!r} twice: {files[split]} and {file}. Give each "
                "file its own split (SPLIT=FILE), or join the files"
            )
        files[split] = file
    return files


def _split_and_file(text: str) -> tuple[str, str]:
    split, separator, file = text.partition("=")
    return (split, file) if separator else (_SPLIT, text)
