"""Answers kept on disk, each in a file named by the key of its call.

A file is written under another name and renamed, so several processes can share a folder without a
lock, also on a network drive. A file consists of a magic line, the BLAKE2b-128 digest of the rest,
and the response as protobuf. A file that does not match its digest is removed and treated as
missing. A file's modification time is the time of its last use. If the folder exceeds its bound,
the files used longest ago are deleted. Each process checks the whole folder when it opens the
cache, and again whenever it has written a twentieth of the bound. So each process can exceed the
bound by that much.

No call fails because of the cache: if the disk fails, calls are made without the cache.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import logging
import os
import tempfile
import time
from pathlib import Path
from typing import Any, Final

from google.protobuf.message import DecodeError

from gymmesh.responses.v1 import responses_pb2
from gymmesh_model import metrics
from gymmesh_model.backends.base import BackendCall
from gymmesh_model.config import CacheConfig, ModelConfig
from gymmesh_model.errors import misconfigured
from gymmesh_model.routing import identity

# Goes up whenever a backend begins to send something else for the same parameters, or to read
# the same answer differently: what was kept before is not found any more.
DIALECT: Final = 1
_MAGIC: Final = b"gymmesh answer 1\n"
_DIGEST: Final = 16
_SUFFIX: Final = ".answer"
_FRESH: Final = ".fresh-"
# A file being written that is older was left behind by a process that died.
_STALE_S: Final = 3600.0
# So much of the bound is left after a cleaning.
_KEPT_PART: Final = 0.9
_log = logging.getLogger("gymmesh.model")


class AnswerKeys:
    """The keys of one model's calls.

    What decides is all that reaches the model: parameters, seed, backend, its options and
    endpoints, the model's name there, the version of the weights and the adapter. Whose call it is
    does not.
    """

    def __init__(self, config: ModelConfig, endpoint_model: str) -> None:
        self._sampled = config.cache is not None and config.cache.any_temperature
        self._fixed = {
            "dialect": DIALECT,
            "backend": config.backend,
            "endpoints": sorted(identity(base) for base in config.bases),
            "endpoint_model": endpoint_model,
            "options": config.options,
        }

    def key(self, call: BackendCall, weights_version: int | None, adapter: str = "") -> str | None:
        """64 hex digits; None for a call that must be made.

        That is one with tokens to capture, which are those of a call that was made, and one that
        is sampled, unless the configuration allows it.
        """
        if call.record is not None or call.prefix is not None:
            return None
        if not self._sampled and call.params.get("temperature") != 0:
            return None
        asked: dict[str, Any] = {
            **self._fixed,
            "params": {key: value for key, value in call.params.items() if value is not None},
            "seed": call.seed,
            "weights": weights_version,
            **({"adapter": adapter} if adapter else {}),
        }
        # Sorted and in ASCII, so that the same document is the same bytes, lone surrogates too.
        text = json.dumps(asked, sort_keys=True, separators=(",", ":"), default=str)
        return hashlib.blake2b(text.encode(), digest_size=32).hexdigest()


class AnswerCache:
    """The cache of the model `name`."""

    def __init__(self, name: str, config: CacheConfig) -> None:
        self._name = name
        self._folder = Path(config.path).expanduser()
        self._max_bytes = config.max_bytes
        self._written = 0
        self._cleaning = False
        self._warned = False
        self._counts = {
            outcome: metrics.MODEL_CACHE_LOOKUPS.labels(name, outcome)
            for outcome in ("hit", "miss", "damaged", "failed")
        }

    async def open(self) -> None:
        """Makes the folder and removes the oldest answers beyond the bound.

        Raises ConfigError when it cannot be used.
        """
        try:
            await asyncio.to_thread(self._prepare)
        except OSError as error:
            raise misconfigured(
                self._name,
                f"cache.path '{self._folder}' cannot be used ({error.strerror or error}); set "
                "cache.path to a folder that this process can write to",
            ) from None

    async def get(self, key: str) -> responses_pb2.Response | None:
        outcome, answer = await asyncio.to_thread(self._read, self._path(key))
        self._counts[outcome].inc()
        return answer

    async def put(self, key: str, answer: responses_pb2.Response) -> None:
        """Keeps an answer if it is whole; others are passed over."""
        if answer.status != "completed":
            return
        body = answer.SerializeToString()
        if len(body) > self._max_bytes * _KEPT_PART:
            return
        # The first to see that the folder may be full cleans it, in its own time.
        self._written += len(body)
        cleans = self._written > self._max_bytes / 20 and not self._cleaning
        if cleans:
            self._cleaning, self._written = True, 0
        try:
            await asyncio.to_thread(self._write, self._path(key), body, cleans)
        finally:
            if cleans:
                self._cleaning = False

    def _path(self, key: str) -> Path:
        return self._folder / key[:2] / f"{key}{_SUFFIX}"

    def _prepare(self) -> None:
        self._folder.mkdir(0o700, parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=self._folder, prefix=_FRESH):
            self._clean()

    def _read(self, path: Path) -> tuple[str, responses_pb2.Response | None]:
        try:
            raw = path.read_bytes()
        except FileNotFoundError:
            return "miss", None
        except OSError as error:
            self._warn("read", error)
            return "failed", None
        answer = _unpacked(raw)
        if answer is None:
            _remove(path)
            return "damaged", None
        # A folder that is read-only keeps its order.
        with contextlib.suppress(OSError):
            os.utime(path)
        return "hit", answer

    def _write(self, path: Path, body: bytes, cleans: bool) -> None:
        try:
            path.parent.mkdir(0o700, exist_ok=True)
            with tempfile.NamedTemporaryFile(dir=path.parent, prefix=_FRESH, delete=False) as fresh:
                try:
                    fresh.write(_packed(body))
                    fresh.flush()
                    os.replace(fresh.name, path)
                except BaseException:
                    _remove(Path(fresh.name))
                    raise
            if cleans:
                self._clean()
        except OSError as error:
            self._warn("write", error)

    def _clean(self) -> None:
        """Removes the files not asked for longest, down to nine tenths of the bound."""
        found, total = [], 0
        old = time.time() - _STALE_S
        for entry in self._entries():
            with contextlib.suppress(OSError):
                status = entry.stat()
                if entry.name.startswith(_FRESH):
                    if status.st_mtime < old:
                        _remove(Path(entry.path))
                elif entry.name.endswith(_SUFFIX):
                    found.append((status.st_mtime_ns, status.st_size, entry.path))
                    total += status.st_size
        if total <= self._max_bytes:
            return
        for _, size, path in sorted(found):
            if total <= self._max_bytes * _KEPT_PART:
                return
            _remove(Path(path))
            total -= size

    def _entries(self) -> list[os.DirEntry[str]]:
        entries: list[os.DirEntry[str]] = []
        with os.scandir(self._folder) as folders:
            for folder in folders:
                if folder.is_dir(follow_symlinks=False) and len(folder.name) == 2:
                    with contextlib.suppress(OSError), os.scandir(folder.path) as files:
                        entries += files
        return entries

    def _warn(self, doing: str, error: OSError) -> None:
        if not self._warned:
            self._warned = True
            _log.warning(
                "model %s: cannot %s the response cache (%s); calls continue without the cache",
                self._name,
                doing,
                error.strerror or type(error).__name__,
            )


def _packed(body: bytes) -> bytes:
    return _MAGIC + hashlib.blake2b(body, digest_size=_DIGEST).digest() + body


def _unpacked(raw: bytes) -> responses_pb2.Response | None:
    """The response in a file's bytes; None when they are damaged."""
    body = raw[len(_MAGIC) + _DIGEST :]
    if raw != _packed(body):
        return None
    try:
        return responses_pb2.Response.FromString(body)
    except DecodeError:
        return None


def _remove(path: Path) -> None:
    with contextlib.suppress(OSError):
        path.unlink()
