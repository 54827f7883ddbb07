"""The control groups of sandboxes of bubblewrap, as tests look for what is left."""

from __future__ import annotations

import os
from pathlib import Path

from gymmesh_sandbox_local import Groups


def groups_in(store: Path) -> list[Path]:
    """Those of services that keep their files in a folder, or in one below it."""
    prefixes = tuple(Groups(str(boxes))._prefix for boxes in store.glob("**/boxes"))
    # Groups of others come and go meanwhile, which `glob` does not bear.
    return sorted(
        Path(at, name)
        for at, folders, _ in os.walk("/sys/fs/cgroup")
        for name in folders
        if prefixes and name.startswith(prefixes)
    )
