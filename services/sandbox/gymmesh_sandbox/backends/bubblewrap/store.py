"""The folder of images, snapshots, and the files that sandboxes write.

    images/                   see `images`
    instances/HASH/lock       held while a service has this instance's id
    instances/HASH/boxes/N/   the files that a sandbox writes
    instances/HASH/layers/N/  the files that a sandbox had written at a snapshot

HASH is derived from the instance's id. If no process holds an instance's lock, its process was
killed. The next start of any service removes its folder's content.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import itertools
import os
import threading
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from gymmesh.sandbox.v1 import sandbox_pb2
from gymmesh_runtime.config import ConfigError
from gymmesh_sandbox.backends.bubblewrap.errors import image_not_found
from gymmesh_sandbox.backends.bubblewrap.images import Images
from gymmesh_sandbox.backends.bubblewrap.roots import RootImage, remove_tree
from gymmesh_sandbox.backends.bubblewrap.settings import HOST_IMAGE, BubblewrapSettings
from gymmesh_sandbox.backends.bubblewrap.tree import IdMap
from gymmesh_sandbox_local import Groups


class ImageStore:
    """The folder of images, snapshots and written files. The methods block.

    `ids`: the sandboxes' user ids on this machine.
    """

    def __init__(self, settings: BubblewrapSettings, ids: IdMap) -> None:
        self._folder = Path(settings.folder)
        binds = tuple(map(Path, settings.binds))
        self._images = Images(self._folder / "images", settings.images, ids, binds)
        self._lock = threading.Lock()
        self._locks: dict[Path, int] = {}  # descriptors, by the folder of the instance
        self._snapshots: dict[str, RootImage] = {}
        self._left: Counter[Path] = Counter()  # what earlier lives left, by folder
        self._numbers = itertools.count(1)
        #: How many snapshots and sandboxes use each layer; one that nobody uses is removed.
        self._users: Counter[Path] = Counter()

    # ---- instances

    def sweep(self) -> None:
        """Removes what killed services left, including their processes."""
        for folder in (self._folder / "instances").glob("*/"):
            with self._lock, contextlib.suppress(OSError):
                if folder not in self._locks and self._take(folder):
                    self._left[folder] = _remove_instance(folder)
                    os.close(self._locks.pop(folder))

    def take_instance(self, instance_id: str) -> int:
        """Takes an instance's folder; returns how many sandboxes an earlier process had left there.

        Raises ConfigError if another process has the folder.
        """
        folder = self.instance_folder(instance_id)
        with self._lock:
            left = self._left.pop(folder, 0)
            if folder in self._locks:
                return left
            if not self._take(folder):
                raise ConfigError(
                    f"Another sandbox service with the instance id '{instance_id}' uses the folder "
                    f"{folder}. Give each service a different folder or instance id."
                )
            return left + _remove_boxes(folder)

    def remove_instance(self, instance_id: str) -> None:
        """Removes everything that is stored for an instance."""
        with self._lock:
            self._remove_taken(self.instance_folder(instance_id))

    def instance_folder(self, instance_id: str) -> Path:
        """The folder for an instance's data."""
        name = hashlib.sha256(instance_id.encode()).hexdigest()[:16]
        return self._folder / "instances" / name

    def close(self) -> None:
        """Removes what is stored for this process's instances."""
        with self._lock:
            for folder in list(self._locks):
                with contextlib.suppress(OSError):
                    self._remove_taken(folder)
            self._snapshots.clear()
            self._users.clear()

    def _remove_taken(self, folder: Path) -> None:
        lock = self._locks.pop(folder, None)
        if lock is not None:
            try:
                _remove_instance(folder)
            finally:
                os.close(lock)

    def _take(self, folder: Path) -> bool:
        """Takes the lock of an instance's folder, which is created; False if another process has
        it.
        """
        while True:
            (folder / "boxes").mkdir(parents=True, exist_ok=True)
            try:
                lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            except FileNotFoundError:
                continue  # a sweep removed it
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if os.path.samestat(os.fstat(lock), os.stat(folder / "lock")):
                    self._locks[folder] = lock
                    return True
            except BlockingIOError:
                os.close(lock)
                return False
            except FileNotFoundError:
                pass  # a sweep removed it before the lock was taken
            os.close(lock)

    # ---- images

    def image(self, instance_id: str, name: str) -> RootImage:
        """An image or a snapshot. Raises SANDBOX_IMAGE_NOT_FOUND or SANDBOX_IMAGE_FAILED.

        Its layers are in use until `release`.
        """
        self.take_instance(instance_id)
        with self._lock:
            known = name in self._snapshots
        configured = None if known else self._images.get(name)
        with self._lock:
            if configured is not None:
                image = configured
            elif name in self._snapshots:
                image = self._snapshots[name]
            else:
                raise image_not_found(name)
            self._users.update(image.layers)
            return image

    def images(self) -> Sequence[sandbox_pb2.Image]:
        """The images that need no fetch."""
        found = [sandbox_pb2.Image(name=HOST_IMAGE)]
        for name, digest in self._images.digests().items():
            found.append(sandbox_pb2.Image(name=name, digest=digest))
        with self._lock:
            found += [sandbox_pb2.Image(name=name, snapshot=True) for name in self._snapshots]
        return found

    def new_layer(self, instance_id: str) -> Path:
        """The folder for the layer of a snapshot; in use until `release`."""
        layers = self.instance_folder(instance_id) / "layers"
        layers.mkdir(exist_ok=True)
        layer = layers / str(next(self._numbers))
        with self._lock:
            self._users[layer] += 1
        return layer

    def add_snapshot(self, name: str, image: RootImage, layers: Sequence[Path]) -> None:
        """Stores a snapshot: an image with other layers, which it uses from now on."""
        with self._lock:
            self._users.update(layers)
            self._snapshots[name] = replace(
                image, name=name, digest="", layers=tuple(layers), snapshot=True
            )

    def delete_snapshot(self, name: str) -> None:
        """Removes a snapshot. The parts that sandboxes use remain as long as these sandboxes."""
        with self._lock:
            snapshot = self._snapshots.pop(name, None)
        if snapshot is not None:
            self.release(snapshot.layers)

    def use(self, layers: Sequence[Path]) -> None:
        """The layers have one more user."""
        with self._lock:
            self._users.update(layers)

    def release(self, layers: Sequence[Path]) -> None:
        """The layers have one user less."""
        with self._lock:
            self._users.subtract(layers)
            unused = [layer for layer in layers if self._users[layer] <= 0]
            for layer in unused:
                del self._users[layer]
        for layer in unused:
            if layer.parent.name == "layers":  # an image's own layers stay
                remove_tree(layer)


def _remove_boxes(folder: Path) -> int:
    """Removes the sandboxes of an instance that no process runs; returns their number."""
    boxes = folder / "boxes"
    groups = Groups(str(boxes)).remove_all()
    left = list(boxes.glob("*"))
    for box in left:
        remove_tree(box)
    return max(groups, len(left))


def _remove_instance(folder: Path) -> int:
    """Removes everything of an instance, the lock last; returns how many sandboxes there were."""
    count = _remove_boxes(folder)
    for name in ("boxes", "layers"):
        remove_tree(folder / name)
    remove_tree(folder)
    return count
