"""The images, each prepared once: `folder/images/OWNER/` has their parts.

A layer of a container image is named by its digest, and is shared by all images and services.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import stat
import subprocess
import threading
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from pathlib import Path

from gymmesh_sandbox.backends.bubblewrap.errors import image_failed, image_not_found
from gymmesh_sandbox.backends.bubblewrap.layers import unpack_layer
from gymmesh_sandbox.backends.bubblewrap.oci import (
    ImageError,
    ImageFiles,
    ImageLayer,
    is_image,
    open_layer,
    read_manifest,
)
from gymmesh_sandbox.backends.bubblewrap.roots import (
    DEFAULT_PATH,
    RootImage,
    host_image,
    host_mark,
    make_host_root,
    remove_tree,
)
from gymmesh_sandbox.backends.bubblewrap.settings import HOST_IMAGE
from gymmesh_sandbox.backends.bubblewrap.tree import IdMap


class Images:
    """The images. The methods block.

    Args:
        folder: where they are stored.
        paths: the paths of the configured images, by name.
        ids: the sandboxes' user ids on this machine.
        binds: folders and files of this machine that the image `host` has.
    """

    def __init__(
        self, folder: Path, paths: Mapping[str, str], ids: IdMap, binds: tuple[Path, ...]
    ) -> None:
        self._folder = folder / str(ids.first)
        self._paths = paths
        self._ids = ids
        self._binds = binds
        self._lock = threading.Lock()
        self._ready: dict[str, RootImage] = {}

    def digests(self) -> Mapping[str, str]:
        """The names of the configured images, each with its digest if it is known."""
        return {
            name: self._ready[name].digest if name in self._ready else "" for name in self._paths
        }

    def get(self, name: str) -> RootImage:
        """An image. Raises SANDBOX_IMAGE_NOT_FOUND and SANDBOX_IMAGE_FAILED."""
        path = Path(self._paths[name]) if name in self._paths else None
        if name != HOST_IMAGE and (path is None or not path.exists()):
            raise image_not_found(name)
        with self._lock:
            if name not in self._ready:
                try:
                    self._ready[name] = self._host() if path is None else self._made_of(name, path)
                except (ImageError, OSError) as error:
                    raise image_failed(name, str(error)) from error
            return self._ready[name]

    def _host(self) -> RootImage:
        def make(folder: Path) -> None:
            make_host_root(folder, self._ids.first, self._binds)

        layer = self._made(f"host-{host_mark(self._binds)}", make)
        return host_image(layer, self._binds)

    def _made_of(self, name: str, path: Path) -> RootImage:
        return self._unpacked(name, path) if is_image(path) else self._copied(name, path)

    def _unpacked(self, name: str, path: Path) -> RootImage:
        with ImageFiles(path) as files:
            manifest = read_manifest(files)
            layers = [self._layer(files, layer) for layer in manifest.layers]
        if not layers:
            raise ImageError("it has no layers")
        return RootImage(
            name=name,
            digest=manifest.digest,
            layers=tuple(reversed(layers)),
            env={"PATH": DEFAULT_PATH, **manifest.env},
            user=manifest.user,
            workdir=manifest.workdir,
        )

    def _layer(self, files: ImageFiles, layer: ImageLayer) -> Path:
        def make(folder: Path) -> None:
            with open_layer(files, layer) as archive:
                unpack_layer(archive, layer.diff_id, folder, self._ids)

        return self._made(layer.diff_id.partition(":")[2], make)

    def _copied(self, name: str, path: Path) -> RootImage:
        """A folder as an image. If sandboxes have other user ids than this machine, the folder
        is copied.
        """
        layer = path
        if self._ids.count > 1:
            status = path.stat()
            mark = f"{path} {status.st_ino} {status.st_mtime_ns}"
            key = f"folder-{hashlib.sha256(mark.encode()).hexdigest()[:32]}"

            def make(folder: Path) -> None:
                command = ["cp", "-a", "--reflink=auto", "-T", str(path), str(folder)]
                copied = subprocess.run(command, capture_output=True, check=False)
                if copied.returncode:
                    raise ImageError(copied.stderr.decode("utf-8", "replace").strip()[:500])
                _shift_owners(folder, self._ids)

            layer = self._made(key, make)
        return RootImage(name=name, digest="", layers=(layer,), env={"PATH": DEFAULT_PATH})

    def _made(self, name: str, make: Callable[[Path], None]) -> Path:
        """Creates something once, by one process at a time. An incomplete result is never
        visible.
        """
        place = self._folder / name
        if place.is_dir():
            return place
        with self._alone():
            for left in self._folder.glob(".new-*"):
                remove_tree(left)  # by a process that was killed
            if not place.is_dir():
                new = self._folder / f".new-{name}"
                try:
                    make(new)
                    os.rename(new, place)
                except BaseException:
                    remove_tree(new)
                    raise
        return place

    @contextmanager
    def _alone(self) -> Generator[None]:
        self._folder.mkdir(parents=True, exist_ok=True)
        lock = os.open(self._folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
        finally:
            os.close(lock)


def _shift_owners(folder: Path, ids: IdMap) -> None:
    """Gives the files to the sandboxes' users with the same numbers."""
    paths = [os.fspath(folder)]
    for at, folders, files in os.walk(folder):
        paths += [os.path.join(at, name) for name in (*folders, *files)]
    for path in paths:
        status = os.lstat(path)
        uid, gid = (one if one < ids.count else 0 for one in (status.st_uid, status.st_gid))
        os.chown(path, ids.outside(uid), ids.outside(gid), follow_symlinks=False)
        if not stat.S_ISLNK(status.st_mode):
            os.chmod(path, stat.S_IMODE(status.st_mode))  # chown takes some bits away
