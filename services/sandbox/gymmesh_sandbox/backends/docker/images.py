"""The images of a daemon: existing, fetched, built and saved ones."""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from aiodocker.exceptions import DockerError

from gymmesh.errors.v1 import errors_pb2
from gymmesh.sandbox.v1 import sandbox_pb2
from gymmesh_runtime.errors import MeshError
from gymmesh_sandbox.backends.docker.config import DockerOptions
from gymmesh_sandbox.backends.docker.engine import DockerEngine, one_line, unreachable
from gymmesh_sandbox.errors import option_unsupported

#: Labels of what this backend makes.
INSTANCE: Final = "gymmesh.instance"
SANDBOX: Final = "gymmesh.sandbox"
_SNAPSHOT: Final = "gymmesh.snapshot"
# Names with a dot in front of the first slash are taken as they are by Docker and Podman.
_SNAPSHOTS: Final = "gymmesh.local/snapshot"
_BUILDS: Final = "gymmesh.local/build"
_GZIP: Final = b"\x1f\x8b"
_IN_USE: Final = 409


@dataclass(frozen=True, slots=True)
class FoundImage:
    """An image that the daemon has.

    Attributes:
        reference: the daemon's name for the image.
        name: the request's name for the image.
        digest: the digest of its manifest, or without one, of its configuration.
        digests: all its digests.
        user, workdir: the values that the image sets; the user may be empty.
    """

    reference: str
    name: str
    digest: str
    digests: frozenset[str]
    user: str
    workdir: str


class DockerImages:
    """The images of one daemon, and the snapshots of one instance."""

    def __init__(self, engine: DockerEngine, options: DockerOptions) -> None:
        self._engine = engine
        self._options = options
        self._snapshots: dict[str, str] = {}
        self._dropped: set[str] = set()  # references that sandboxes may still use
        self._building: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    async def all(self) -> list[sandbox_pb2.Image]:
        """The daemon's images by name, including snapshots."""
        found = []
        snapshots = {reference: name for name, reference in self._snapshots.items()}
        for one in await self._engine.docker.images.list():
            for tag in one.get("RepoTags") or ():
                if tag in snapshots:
                    name, snapshot = snapshots[tag], True
                elif tag.startswith((f"{_SNAPSHOTS}:", f"{_BUILDS}:", "<none>")):
                    continue
                else:
                    name, snapshot = tag, False
                digest, _ = _digests(one)
                found.append(sandbox_pb2.Image(name=name, digest=digest, snapshot=snapshot))
        return sorted(found, key=lambda one: one.name)

    async def find(self, root: str | sandbox_pb2.ImageBuild, digest: str) -> FoundImage:
        """The image, fetched or built if it is missing.

        Raises SANDBOX_IMAGE_NOT_FOUND; SANDBOX_IMAGE_FAILED for a failed build and for a wrong
        digest.
        """
        if isinstance(root, str):
            name, reference = root, self._snapshots.get(root, root)
            if root not in self._snapshots:
                await self._fetch(root)
        else:
            name = reference = await self._build(root)
        found = await self._inspect(reference, name)
        if found is None:
            raise _not_found(
                name,
                "the daemon does not have the image, and the option 'pull' is 'never'. Pull the "
                "image, or set 'pull' to 'missing'",
            )
        if digest and digest not in found.digests:
            raise _failed(name, f"the image's digest is {found.digest}, not {digest}")
        return found

    async def keep(self, container: Any, instance_id: str, name: str, user: str) -> FoundImage:
        """Creates an image from a container. Raises SANDBOX_IMAGE_FAILED."""
        tag = hashlib.sha256(f"{instance_id}\0{name}".encode()).hexdigest()[:32]
        # The user of the image stays, labels say whose it is and that no sandbox runs from it.
        changes = "\n".join(
            (
                f"LABEL {_SNAPSHOT}={tag}",
                f"LABEL {INSTANCE}={json.dumps(instance_id)}",
                f"LABEL {SANDBOX}=",
                *([f"USER {user}"] if user else ()),
            )
        )
        reference = self._snapshots[name] = f"{_SNAPSHOTS}:{tag}"
        try:
            # Podman asks for a body, though it may be empty.
            await container.commit(repository=_SNAPSHOTS, tag=tag, changes=changes, config={})
            found = await self._inspect(reference, name)
            if found is None:
                raise _failed(name, "the daemon no longer has the image")
        except BaseException:
            del self._snapshots[name]
            raise
        return found

    async def drop(self, name: str) -> None:
        """Removes a snapshot when no sandbox uses it any more; does nothing if there is none."""
        reference = self._snapshots.pop(name, None)
        if reference is not None:
            self._dropped.add(reference)
            await self.drop_unused()

    async def drop_unused(self) -> None:
        """Removes the dropped snapshots that no sandbox uses any more."""
        for reference in tuple(self._dropped):
            if await self._remove(reference):
                self._dropped.discard(reference)

    async def drop_leftovers(self, instance_id: str) -> int:
        """Removes the snapshots of the instance that earlier processes created."""
        ended = 0
        for one in await self._engine.docker.images.list(
            filters={"label": [f"{INSTANCE}={instance_id}"]}
        ):
            for tag in one.get("RepoTags") or ():
                if tag.startswith(f"{_SNAPSHOTS}:") and tag not in self._snapshots.values():
                    ended += await self._remove(tag)
        return ended

    async def drop_all(self) -> None:
        """Removes all snapshots of this process."""
        for name in tuple(self._snapshots):
            await self.drop(name)
        await self.drop_unused()

    async def _remove(self, reference: str) -> bool:
        """Removes an image; False: it is in use. A forced removal would make Podman remove its
        containers, too.
        """
        try:
            await self._engine.docker.images.delete(reference)
        except DockerError as error:
            if error.status == _IN_USE:
                return False
            if error.status != 404:
                raise
        return True

    async def _inspect(self, reference: str, name: str) -> FoundImage | None:
        try:
            found = await self._engine.docker.images.inspect(reference)
        except DockerError as error:
            if error.status == 404:
                return None
            raise
        digest, digests = _digests(found)
        config: Mapping[str, Any] = found.get("Config") or {}
        return FoundImage(
            reference,
            name,
            digest,
            digests,
            str(config.get("User") or ""),
            str(config.get("WorkingDir") or "/"),
        )

    async def _fetch(self, name: str) -> None:
        if self._options.pull == "never":
            return
        if self._options.pull == "missing" and await self._inspect(name, name) is not None:
            return
        try:
            await self._engine.docker.images.pull(name)
        except DockerError as error:
            if unreachable(error):
                raise
            raise _not_found(name, f"it cannot be fetched: {one_line(error.message)}") from None

    async def _build(self, build: sandbox_pb2.ImageBuild) -> str:
        if not self._options.builds:
            raise option_unsupported("build", "docker")
        text = json.dumps([build.dockerfile, sorted(build.args.items()), build.target])
        content = hashlib.sha256(text.encode() + b"\0" + build.context)
        reference = f"{_BUILDS}:{content.hexdigest()[:32]}"
        async with self._building[reference]:
            if await self._inspect(reference, reference) is None:
                await self._run_build(build, reference)
        return reference

    async def _run_build(self, build: sandbox_pb2.ImageBuild, reference: str) -> None:
        context = build.context
        if context.startswith(_GZIP):
            try:
                context = await asyncio.to_thread(gzip.decompress, context)
            except (OSError, EOFError):
                raise _failed(reference, "the build context is a damaged archive") from None
        parameters = {
            "t": reference,
            "rm": "1",
            "forcerm": "1",
            "dockerfile": build.dockerfile or "Dockerfile",
            "buildargs": json.dumps(dict(build.args)),
            **({"target": build.target} if build.target else {}),
            **({"networkmode": self._options.build_network} if self._options.build_network else {}),
        }
        said: list[str] = []
        try:
            async with self._engine.request("POST", "build", parameters, data=context) as response:
                async for line in response.content:
                    if problem := _problem(line):
                        said.append(problem)
        except DockerError as error:
            if unreachable(error):
                raise
            said.append(error.message)
        if said or await self._inspect(reference, reference) is None:
            words = one_line(said[-1] if said else "the daemon built no image")
            raise _failed(reference, f"its build failed: {words}")


def _problem(line: bytes) -> str:
    """The error in a line of a build's output; empty: none."""
    try:
        said = json.loads(line)
    except ValueError:
        return ""
    if not isinstance(said, dict):
        return ""
    return str(said.get("error") or (said.get("errorDetail") or {}).get("message") or "")


def _digests(image: Mapping[str, Any]) -> tuple[str, frozenset[str]]:
    listed: Sequence[str] = image.get("RepoDigests") or ()
    of_manifests = [one.partition("@")[2] for one in listed if "@" in one]
    own = str(image.get("Id") or "")
    if own and not own.startswith("sha256:"):
        own = f"sha256:{own}"
    digests = frozenset(one for one in (*of_manifests, own) if one.startswith("sha256:"))
    return next((one for one in of_manifests if one in digests), own), digests


def _not_found(name: str, why: str) -> MeshError:
    return MeshError(
        errors_pb2.ERROR_REASON_SANDBOX_IMAGE_NOT_FOUND,
        f"There is no image '{name}': {why}.",
        metadata={"image": name},
    )


def _failed(name: str, cause: str) -> MeshError:
    return MeshError(
        errors_pb2.ERROR_REASON_SANDBOX_IMAGE_FAILED,
        f"The image '{name}' cannot be used: {cause}.",
        metadata={"image": name, "cause": cause},
    )
