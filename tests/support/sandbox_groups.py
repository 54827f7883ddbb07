"""The control groups of sandboxes of bubblewrap, as tests look for what is left."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from gymmesh_sandbox_local import Groups


def groups_in(store: Path) -> list[Path]:
    """Those of services that keep their files in a folder, or in one below it."""
    # Folders and groups of others come and go meanwhile, which `glob` does not bear.
    prefixes = tuple(Groups(boxes)._prefix for boxes in _boxes_below(store))
    return sorted(
        Path(at, name)
        for at, folders, _ in os.walk("/sys/fs/cgroup")
        for name in folders
        if prefixes and name.startswith(prefixes)
    )


def _boxes_below(store: Path) -> Iterator[str]:
    for at, folders, _ in os.walk(store):
        if "boxes" in folders:
            yield os.path.join(at, "boxes")
            folders.remove("boxes")  # what sandboxes wrote
