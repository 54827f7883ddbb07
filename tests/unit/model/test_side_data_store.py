"""The folder of side data: by digest, whole or not at all, bounded, read in pieces."""

from __future__ import annotations

import asyncio
import hashlib
import os
import stat
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from gymmesh.errors.v1 import errors_pb2
from gymmesh_model.config import SideDataConfig
from gymmesh_model.side_data import PIECE_BYTES, SideDataStore
from gymmesh_model.tokens import SideRows
from gymmesh_runtime.config import ConfigError
from gymmesh_runtime.errors import MeshError

ROW = 4096


async def opened(folder: Path, **bounds: Any) -> SideDataStore:
    store = SideDataStore("policy", SideDataConfig(path=str(folder), **bounds))
    await store.open()
    return store


def made(number: int, rows: int = 2) -> SideRows:
    data = number.to_bytes(4, "little") * (rows * ROW // 4)
    return SideRows("routed_experts", "uint8", (ROW,), 7, data)


def files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


async def read(store: SideDataStore, digest: bytes, offset: int = 0) -> bytes:
    return b"".join([piece async for piece, _ in store.read(digest, offset)])


async def test_rows_are_in_a_file_named_by_their_digest(tmp_path: Path) -> None:
    store = await opened(tmp_path / "new" / "folder")
    side = await store.put(made(5))
    digest = hashlib.sha256(bytes(made(5).data)).hexdigest()
    assert side.digest.hex() == digest
    assert (side.name, side.dtype, list(side.shape)) == ("routed_experts", "uint8", [ROW])
    assert (side.first_token, side.tokens, side.data) == (7, 2, b"")
    path = Path(urlsplit(side.location).path)
    assert path == tmp_path / "new" / "folder" / digest[:2] / digest
    assert path.read_bytes() == made(5).data
    assert stat.S_IMODE(path.stat().st_mode) == 0o644  # a trainer may be another user
    assert await store.put(made(5)) == side
    assert files(tmp_path) == [path]
    await store.close()


async def test_few_numbers_are_in_the_message_itself(tmp_path: Path) -> None:
    store = await opened(tmp_path)
    side = await store.put(made(5, rows=1))
    assert (side.data, side.location) == (made(5, rows=1).data, "")
    assert side.digest == hashlib.sha256(side.data).digest()
    assert files(tmp_path) == []
    await store.close()


async def test_it_is_read_in_pieces_from_any_byte(tmp_path: Path) -> None:
    store = await opened(tmp_path)
    rows = made(9, rows=600)  # more than two pieces
    side = await store.put(rows)
    pieces = [piece async for piece, _ in store.read(side.digest, 0)]
    assert b"".join(pieces) == rows.data
    assert [len(piece) for piece in pieces[:-1]] == [PIECE_BYTES] * 2
    sizes = {size async for _, size in store.read(side.digest, PIECE_BYTES)}
    assert sizes == {600 * ROW}
    assert await read(store, side.digest, 600 * ROW - 3) == bytes(rows.data)[-3:]
    assert await read(store, side.digest, 600 * ROW) == b""
    await store.close()


async def test_what_cannot_be_read_is_a_typed_error(tmp_path: Path) -> None:
    store = await opened(tmp_path)
    side = await store.put(made(1))
    for digest, offset, reason in (
        (bytes(32), 0, errors_pb2.ERROR_REASON_SIDE_DATA_NOT_FOUND),
        (b"short", 0, errors_pb2.ERROR_REASON_FIELD_INVALID),
        (side.digest, 2 * ROW + 1, errors_pb2.ERROR_REASON_FIELD_INVALID),
    ):
        with pytest.raises(MeshError) as caught:
            await read(store, digest, offset)
        assert caught.value.reason == reason
    await store.close()


async def test_a_folder_that_cannot_be_written_to_fails_the_call_and_leaves_no_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await opened(tmp_path)

    def full(source: str, target: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(MeshError) as caught:
        await store.put(made(1))
    assert caught.value.reason == errors_pb2.ERROR_REASON_SIDE_DATA_NOT_STORED
    assert caught.value.metadata["cause"] == "No space left on device"
    assert files(tmp_path) == []
    await store.close()


async def test_a_path_that_is_no_folder_is_refused_when_it_opens(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=r"side_data\.path"):
        await opened(tmp_path / "file")


async def test_the_oldest_go_beyond_the_bound(tmp_path: Path) -> None:
    store = await opened(tmp_path, max_bytes=10 * 2 * ROW)
    sides = []
    for number in range(14):
        sides.append(await store.put(made(number)))
        path = Path(urlsplit(sides[-1].location).path)
        os.utime(path, (1000 + number, 1000 + number))
    await store.put(made(14))
    left = [side for side in sides if Path(urlsplit(side.location).path).exists()]
    assert left == sides[-len(left) :]  # the youngest
    assert 8 <= len(left) <= 10
    with pytest.raises(MeshError, match="max_bytes"):
        await read(store, sides[0].digest)
    await store.close()


async def test_files_past_their_age_go_when_it_opens(tmp_path: Path) -> None:
    store = await opened(tmp_path)
    old, young = await store.put(made(1)), await store.put(made(2))
    await store.close()
    os.utime(Path(urlsplit(old.location).path), (1000, 1000))
    again = await opened(tmp_path, max_age_s=3600)
    assert await read(again, young.digest) == made(2).data
    with pytest.raises(MeshError):
        await read(again, old.digest)
    await again.close()


async def test_one_that_is_read_while_it_is_deleted_is_read_to_its_end(tmp_path: Path) -> None:
    store = await opened(tmp_path)
    rows = made(3, rows=600)
    side = await store.put(rows)
    pieces = store.read(side.digest, 0)
    first, _ = await anext(pieces)
    Path(urlsplit(side.location).path).unlink()
    rest = b"".join([piece async for piece, _ in pieces])
    assert first + rest == rows.data
    await store.close()


async def test_several_processes_share_a_folder(tmp_path: Path) -> None:
    stores = [await opened(tmp_path) for _ in range(2)]
    both = [stores[number % 2].put(made(number // 2, rows=300)) for number in range(8)]
    sides = await asyncio.gather(*both)
    assert len(files(tmp_path)) == 4
    for number, side in enumerate(sides):
        assert await read(stores[1 - number % 2], side.digest) == made(number // 2, rows=300).data
    for store in stores:
        await store.close()
