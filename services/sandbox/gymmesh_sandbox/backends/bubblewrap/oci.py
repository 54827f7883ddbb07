"""Container images in files: archives of `docker save` and `podman save`, OCI layouts and archives.

Formats: the OCI image specification 1.1 (image-layout.md, manifest.md, config.md), and for
`docker save` the image specification of Docker, version 1.2. Nothing in an image is trusted:
every blob is checked against its digest.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import platform
import tarfile
import zlib
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, cast

import zstandard

_JSON_BYTES = 4 << 20
_NESTED = 4
_INDEXES = {
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
}
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
_GZIP, _ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
# What a frame may ask to be held in memory; tools that write images stay below.
_ZSTD_WINDOW_BYTES = 128 << 20
_DIGEST_CHARS = frozenset("0123456789abcdef")


class ImageError(ValueError):
    """A problem of an image; the text is part of a sentence."""


@dataclass(frozen=True, slots=True)
class ImageLayer:
    """A layer: the name of its blob, and the digest of its uncompressed content."""

    blob: str
    diff_id: str


@dataclass(frozen=True, slots=True)
class ImageManifest:
    """The parts of an image.

    digest: the digest of its manifest; without a manifest, of its configuration.
    layers: the lowest first.
    """

    digest: str
    layers: Sequence[ImageLayer]
    env: Mapping[str, str]
    user: str
    workdir: str


class ImageFiles:
    """The blobs of an image in an archive or a folder. A context manager."""

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            self._tar = None if path.is_dir() else tarfile.open(path)  # noqa: SIM115 - see below
        except (tarfile.TarError, EOFError, OSError) as error:
            raise ImageError(
                f"the image's file is not an archive ({str(error).splitlines()[0]})"
            ) from None

    def __enter__(self) -> ImageFiles:
        return self

    def __exit__(self, *_: object) -> None:
        if self._tar is not None:
            self._tar.close()

    def open(self, name: str) -> IO[bytes]:
        """A blob. Raises ImageError if there is none."""
        try:
            if self._tar is None:
                return (self._path / name).open("rb")
            member: tarfile.TarInfo | str = self._tar.getmember(name)
            file = self._tar.extractfile(member)
        except (KeyError, OSError, tarfile.TarError):
            file = None
        if file is None:
            raise ImageError(f"the image has no file {name}")
        return file

    def has(self, name: str) -> bool:
        """Whether this blob exists."""
        try:
            self.open(name).close()
        except ImageError:
            return False
        return True

    def json(self, name: str, digest: str = "") -> Any:
        """A small JSON blob; `digest`: the digest that it must have."""
        with self.open(name) as file:
            content = file.read(_JSON_BYTES + 1)
        if len(content) > _JSON_BYTES:
            raise ImageError(f"{name} is larger than {_JSON_BYTES} bytes")
        if digest and f"sha256:{hashlib.sha256(content).hexdigest()}" != digest:
            raise ImageError(f"the content of {name} does not match its digest")
        try:
            return json.loads(content)
        except ValueError:
            raise ImageError(f"{name} is not JSON") from None


def is_image(path: Path) -> bool:
    """Whether this is an image, and not the root folder of a file system."""
    return (
        not path.is_dir() or (path / "oci-layout").is_file() or (path / "manifest.json").is_file()
    )


def read_manifest(files: ImageFiles) -> ImageManifest:
    """The parts of the image. Raises ImageError."""
    try:
        if files.has("index.json"):
            return _of_layout(files)
        return _of_docker(files)
    except (KeyError, TypeError, IndexError, AttributeError) as error:
        raise ImageError(f"the image's description is not complete ({error!r})") from None


@contextmanager
def open_layer(files: ImageFiles, layer: ImageLayer) -> Generator[IO[bytes]]:
    """A layer's archive, uncompressed. Raises ImageError."""
    with files.open(layer.blob) as file:
        magic = file.read(4)
        file.seek(0)
        try:
            if magic == _ZSTD:
                expander = zstandard.ZstdDecompressor(max_window_size=_ZSTD_WINDOW_BYTES)
                with expander.stream_reader(file, read_across_frames=True) as plain:
                    yield cast(IO[bytes], plain)
            elif magic[:2] == _GZIP:
                with gzip.GzipFile(fileobj=file) as plain:
                    yield cast(IO[bytes], plain)
            else:
                yield file
        except (zlib.error, zstandard.ZstdError) as error:
            raise ImageError(f"a layer is broken ({error})") from None


def _of_layout(files: ImageFiles) -> ImageManifest:
    index = files.json("index.json")
    for _ in range(_NESTED):
        entry = _chosen(index["manifests"])
        document = files.json(_blob(entry["digest"]), entry["digest"])
        if document.get("mediaType", entry.get("mediaType")) not in _INDEXES:
            config_digest = document["config"]["digest"]
            config = files.json(_blob(config_digest), config_digest)
            blobs = [_blob(layer["digest"]) for layer in document["layers"]]
            return _manifest(entry["digest"], config, blobs)
        index = document
    raise ImageError("the indexes of the image are nested too deeply")


def _of_docker(files: ImageFiles) -> ImageManifest:
    if not files.has("manifest.json"):
        raise ImageError(
            "the path is neither an archive of an image nor a folder in the OCI layout"
        )
    (first, *_) = files.json("manifest.json")
    with files.open(first["Config"]) as file:
        digest = f"sha256:{hashlib.sha256(file.read(_JSON_BYTES)).hexdigest()}"
    return _manifest(digest, files.json(first["Config"]), first["Layers"])


def _chosen(entries: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """The image for this machine, from the images of an index."""
    if not entries:
        raise ImageError("the image's index is empty")
    wanted = ("linux", _ARCHITECTURES.get(platform.machine(), platform.machine()))
    for entry in entries:
        found = entry.get("platform") or {}
        if (found.get("os"), found.get("architecture")) == wanted:
            return entry
    if len(entries) > 1 and all(entry.get("platform") for entry in entries):
        raise ImageError(f"the archive has no image for {'/'.join(wanted)}")
    return entries[0]


def _manifest(digest: str, config: Any, blobs: Sequence[str]) -> ImageManifest:
    diff_ids = config["rootfs"]["diff_ids"]
    if len(diff_ids) != len(blobs):
        raise ImageError("the image's configuration and manifest have different numbers of layers")
    run = config.get("config") or {}
    pairs = (str(one).partition("=") for one in run.get("Env") or ())
    return ImageManifest(
        digest=digest,
        layers=[
            ImageLayer(str(blob), f"sha256:{_hexadecimal(one)}")
            for blob, one in zip(blobs, diff_ids, strict=True)
        ],
        env={name: value for name, _, value in pairs if name},
        user=str(run.get("User") or ""),
        workdir=str(run.get("WorkingDir") or "/"),
    )


def _blob(digest: str) -> str:
    return f"blobs/sha256/{_hexadecimal(digest)}"


def _hexadecimal(digest: str) -> str:
    """The digits of a digest, which become a file name."""
    kind, _, digits = str(digest).partition(":")
    if kind != "sha256" or len(digits) != 64 or not set(digits) <= _DIGEST_CHARS:
        raise ImageError(f"{digest!r} is not a SHA-256 digest")
    return digits


class HashedFile(io.RawIOBase):
    """Reads a file and hashes what is read."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._hash = hashlib.sha256()

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        content = self._file.read(size)
        self._hash.update(content)
        return content

    def digest(self) -> str:
        """The digest of the whole file."""
        while self.read(1 << 20):
            pass
        return f"sha256:{self._hash.hexdigest()}"
