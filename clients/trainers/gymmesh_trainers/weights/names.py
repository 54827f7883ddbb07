"""The names of adapters, and the folders that weights lie in. Pure but for a look at the folder."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Final

from gymmesh_client import UserError

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_VERSIONED: Final = re.compile(r"(?P<name>.+)@(?P<version>[0-9]{1,20})")


def adapter_name(name: str, version: int) -> str:
    """An adapter's name at the endpoints: `NAME@VERSION`, so that a version names its adapter.

    Raises UserError for a name with other characters than letters, digits, `.`, `_` and `-`.
    """
    if not _NAME.fullmatch(name):
        raise UserError(
            f"adapter: {name!r} is not a valid name. Use at most 100 letters, digits, '.', "
            "'_' and '-', and begin with a letter or digit"
        )
    return f"{name}@{version}"


def older_adapters(
    loaded: Iterable[str], name: str, version: int, in_use: Collection[str]
) -> tuple[list[str], list[str]]:
    """Of the loaded adapters, the other versions of `name`: those without calls, and the rest."""
    free: list[str] = []
    busy: list[str] = []
    for one in loaded:
        found = _VERSIONED.fullmatch(one)
        if found is None or found["name"] != name or int(found["version"]) == version:
            continue
        (busy if one in in_use else free).append(one)
    return free, busy


def check_folder(folder: Path, *, is_adapter: bool) -> None:
    """Raises UserError where a folder holds no weights, or not all of an adapter."""
    if not folder.is_dir():
        raise UserError(
            f"{folder}: is not a folder on this machine. If only the servers can read the "
            "folder, pass the servers' path as `folder_there`, and as `folder` pass a local "
            "folder with the same files"
        )
    if not any(folder.glob("*.safetensors")):
        raise UserError(f"{folder}: has no *.safetensors file. Save the weights as safetensors")
    has_config = (folder / "adapter_config.json").is_file()
    if is_adapter and not has_config:
        raise UserError(f"{folder}: has no adapter_config.json. Save the adapter as PEFT does")
    if not is_adapter and has_config:
        raise UserError(
            f"{folder}: is an adapter (adapter_config.json). Pass the adapter's name: --adapter "
            "NAME of the "
            'command, adapter="NAME" in Python'
        )
