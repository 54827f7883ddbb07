"""What the bubblewrap backend is configured with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import platformdirs

HOST_IMAGE = "host"
_CACHE = Path(platformdirs.user_cache_dir("gymmesh"))


@dataclass(frozen=True, slots=True)
class BubblewrapSettings:
    """The settings, with their defaults.

    Attributes:
        folder: where root file systems, snapshots and what sandboxes write are kept; a file
            system that overlayfs can write to, so none that is itself an overlay.
        images: by name, what sandboxes can start from beside `host`: the path of a folder, of an
            archive that `docker save` or `podman save` writes, or of an OCI layout or its archive.
        default_image: the image of a request that names none.
        binds: folders of this machine that every sandbox sees, read-only, at the same path.
        yields: sandboxes get half of the usual share of a processor where the machine is busy.
        bwrap: the program; empty: the one in PATH.
    """

    folder: Path = field(
        default_factory=lambda: Path(platformdirs.user_cache_dir("gymmesh"), "sandboxes")
    )
    images: Mapping[str, Path] = field(default_factory=dict)
    default_image: str = HOST_IMAGE
    binds: tuple[Path, ...] = ()
    yields: bool = True
    bwrap: str = ""
