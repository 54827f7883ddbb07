"""The folder where images, snapshots and what sandboxes write are kept.

    instances/HASH/lock      held while a service has this instance's id
    instances/HASH/host/     the root of the image `host`
    instances/HASH/boxes/N/  what a sandbox writes

HASH is made of the instance's id, so that a later life of the instance finds what was left.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import threading
from collections.abc import Sequence
from pathlib import Path

from gymmesh.sandbox.v1 import sandbox_pb2
from gymmesh_runtime.config import ConfigError
from gymmesh_sandbox.backends.bubblewrap.errors import image_failed, image_not_found
from gymmesh_sandbox.backends.bubblewrap.roots import RootImage, make_host_root, remove_tree
from gymmesh_sandbox.backends.bubblewrap.settings import HOST_IMAGE, BubblewrapSettings
from gymmesh_sandbox.local import Groups


class Store:
    """See above. Its methods block.

    `owner`: this machine's id of the sandboxes' root.
    """

    def __init__(self, settings: BubblewrapSettings, owner: int) -> None:
        self._settings = settings
        self._owner = owner
        self._lock = threading.Lock()
        self._instances: dict[str, int] = {}  # descriptors of the locks, by id
        self._hosts: dict[str, RootImage] = {}

    def take_instance(self, instance_id: str) -> int:
        """Takes the instance's folder, and removes what sandboxes have left there; how many.

        Raises ConfigError where another process has it.
        """
        with self._lock:
            folder = self._instance(instance_id)
            boxes = folder / "boxes"
            groups = Groups(str(boxes)).remove_all()
            left = list(boxes.glob("*"))
            for box in left:
                remove_tree(box)
            return max(groups, len(left))

    def remove_instance(self, instance_id: str) -> None:
        """Removes all that is kept of an instance."""
        with self._lock:
            folder = self._folder(instance_id)
            if instance_id in self._instances:
                os.close(self._instances.pop(instance_id))
            self._hosts.pop(instance_id, None)
            remove_tree(folder)

    def image(self, instance_id: str, name: str) -> RootImage:
        """An image by name. Raises SANDBOX_IMAGE_NOT_FOUND or SANDBOX_IMAGE_FAILED."""
        with self._lock:
            folder = self._instance(instance_id)
            if name == HOST_IMAGE:
                return self._host(instance_id, folder)
        raise image_not_found(name)

    def images(self) -> Sequence[sandbox_pb2.Image]:
        """What there is without a fetch."""
        return [sandbox_pb2.Image(name=HOST_IMAGE)]

    def box_folder(self, instance_id: str, number: int) -> Path:
        """Where a sandbox writes."""
        return self._folder(instance_id) / "boxes" / str(number)

    def close(self) -> None:
        """Lets go of the instances."""
        with self._lock:
            while self._instances:
                os.close(self._instances.popitem()[1])
            self._hosts.clear()

    def _host(self, instance_id: str, folder: Path) -> RootImage:
        if instance_id not in self._hosts:
            try:
                image = make_host_root(folder / "host", self._owner, self._settings.binds)
            except OSError as error:
                raise image_failed(HOST_IMAGE, str(error)) from error
            self._hosts[instance_id] = image
        return self._hosts[instance_id]

    def _instance(self, instance_id: str) -> Path:
        """The folder of an instance, which is this process's from now on."""
        folder = self._folder(instance_id)
        if instance_id in self._instances:
            return folder
        (folder / "boxes").mkdir(parents=True, exist_ok=True)
        lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(lock)
            raise ConfigError(
                f"Another sandbox service with the instance id '{instance_id}' uses {folder}: "
                "give each a folder or an id of its own."
            ) from None
        self._instances[instance_id] = lock
        return folder

    def _folder(self, instance_id: str) -> Path:
        name = hashlib.sha256(instance_id.encode()).hexdigest()[:16]
        return self._settings.folder / "instances" / name
