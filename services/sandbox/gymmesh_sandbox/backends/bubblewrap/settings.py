"""The options of the backend `bubblewrap`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import platformdirs

HOST_IMAGE = "host"
_CACHE = platformdirs.user_cache_dir("gymmesh")


class BubblewrapSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The options of the backend `bubblewrap`.

    Attributes:
        folder: the folder for root file systems, snapshots and files that sandboxes write. It must
            be on a file system that overlayfs can write to, so not on an overlay.
        images: the images besides `host`, by name: the path of a folder, of an archive that `docker
            save` or `podman save` writes, of an OCI layout, or of an archive of an OCI layout.
        default_image: the image for requests that name none.
        binds: folders of this machine that the image `host` has, read-only, at the same path.
        yields: whether sandboxes get half the usual CPU share on a busy machine.
    """

    folder: str = f"{_CACHE}/sandboxes"
    images: dict[str, str] = {}
    default_image: str = HOST_IMAGE
    binds: list[str] = []
    yields: bool = True

    def __post_init__(self) -> None:
        paths = {"folder": self.folder}
        paths |= {f"images.{name}": path for name, path in self.images.items()}
        paths |= {f"binds[{number}]": path for number, path in enumerate(self.binds)}
        for key, path in paths.items():
            if not Path(path).is_absolute():
                raise ValueError(f"{key}: {path!r} is not an absolute path")
        if HOST_IMAGE in self.images:
            raise ValueError(f"images.{HOST_IMAGE}: the name is reserved for the built-in image")
        if self.default_image and self.default_image not in (HOST_IMAGE, *self.images):
            raise ValueError(
                f"default_image: {self.default_image!r} is not a name in the option 'images'"
            )


def read_settings(options: Mapping[str, Any]) -> BubblewrapSettings:
    """The settings of a configuration. Raises ValueError, `KEY: problem`."""
    try:
        return msgspec.convert(dict(options), BubblewrapSettings)
    except msgspec.ValidationError as error:
        if isinstance(error.__cause__, ValueError):
            raise ValueError(str(error.__cause__)) from None
        problem, _, place = str(error).partition(" - at `$")
        if unknown := re.search(r"unknown field `(.*)`", problem):
            raise ValueError(
                f"{unknown[1]}: this key is not an option of the backend bubblewrap"
            ) from None
        raise ValueError(f"{place.strip('.`')}: {problem}") from None
