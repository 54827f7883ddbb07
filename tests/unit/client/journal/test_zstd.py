"""Frames that expand to far more than they are."""

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest
import zstandard

from gymmesh_client.output_files import OutputFiles
from gymmesh_client.row_files.row_files import RowReader
from gymmesh_client.row_files.zstd import MOST_IN_FRAME, FrameInParts, Zstd, load_zstandard


def bomb(expanded: int, declared: int | None = None) -> bytes:
    """A frame that expands to zeros, of which `declared` bytes are said in its head."""
    block = (128 << 10) << 3 | 0b010  # 128 KiB of one byte
    blocks, rest = divmod(expanded, 128 << 10)
    assert not rest
    middle = block.to_bytes(3, "little") + b"\0"
    head = b"\x28\xb5\x2f\xfd"
    head += b"\x00\x58" if declared is None else b"\xc0\x58" + declared.to_bytes(8, "little")
    return head + middle * (blocks - 1) + (block | 1).to_bytes(3, "little") + b"\0"


def test_the_bomb_is_a_frame_that_zstd_reads() -> None:
    assert zstandard.ZstdDecompressor().decompressobj().decompress(bomb(1 << 20)) == bytes(1 << 20)


@pytest.mark.parametrize("declared", [None, 9, 1 << 32, (1 << 64) - 3])
@pytest.mark.parametrize("most", [1 << 16, 1 << 20, 1 << 26])
def test_a_frame_is_expanded_to_its_limit_and_no_further(declared: int | None, most: int) -> None:
    with pytest.raises(ValueError, match="compressed frame"):
        Zstd().decompress(bomb(1 << 30, declared), most)


@pytest.mark.parametrize("step", [1, 7, 1000, 1 << 20])
def test_a_frame_in_parts_is_the_frame(step: int) -> None:
    content = os.urandom(3000) + bytes(300_000) + b"end"
    frame = Zstd().compress(content)
    data, rest = frame + b"next", b""
    parts = FrameInParts(load_zstandard())
    for at in range(0, len(data), step):
        rest += parts.feed(data[at : at + step])
    assert (parts.whole, parts.content(), parts.size, rest) == (True, content, len(frame), b"next")


def test_a_frame_that_is_just_as_large_as_may_be_is_read() -> None:
    frame = Zstd().compress(bytes(1 << 20))
    assert Zstd().decompress(frame, 1 << 20) == bytes(1 << 20)
    with pytest.raises(ValueError, match="exceeds 0 MiB"):
        Zstd().decompress(frame, (1 << 20) - 1)


@pytest.mark.parametrize("cut", [0, 3, 10])
def test_a_frame_that_is_cut_short_is_damaged(cut: int) -> None:
    with pytest.raises(ValueError, match="truncated"):
        Zstd().decompress(Zstd().compress(b"x" * 100)[:cut])


READS = {
    "view": """
from gymmesh_client.row_files.file_rows import placed_rows
path = Path(sys.argv[1], "out.jsonl.zst")
with path.open("rb") as file:
    list(placed_rows(path, file.fileno(), 0, path.stat().st_size, compressed=True))
""",
    "view, one row": """
from gymmesh_client.log_records import Place
from gymmesh_client.row_files.file_rows import RowPlace, read_line
path = Path(sys.argv[1], "out.jsonl.zst")
place = Place(0, 0, 0, 0, 10, path.stat().st_size, 0)
read_line(RowPlace(path, 0, place, False, "ro"))
""",
    "journal": """
from gymmesh_client.output_files import OutputFiles
from gymmesh_client.log_records import COMPLETED, ROWS, CurrentOutcome, Place, RunOpened
from gymmesh_client.log.frames import HEADER, encode_frame
from gymmesh_client.log_records import encode
from gymmesh_client.index import open_run
files = OutputFiles(Path(sys.argv[1], "out.jsonl.zst"))
place = Place(ROWS, 0, 0, 0, 10, files.rows.stat().st_size, 0)
payload = encode(RunOpened({"run_id": "r", "zstd": True}))
payload += encode(CurrentOutcome(bytes(16), 1, COMPLETED, 0, place))
files.journal.write_bytes(HEADER + encode_frame(0, 0, payload))
list(open_run(files.rows).rows())
""",
    "journal, one row": """
from gymmesh_client.output_files import OutputFiles
from gymmesh_client.log_records import ROWS, Place
from gymmesh_client.row_files.row_files import RowReader
files = OutputFiles(Path(sys.argv[1], "out.jsonl.zst"))
RowReader(files, {}).read(Place(ROWS, 0, 0, 0, 10, files.rows.stat().st_size, 0))
""",
    "compaction": """
from gymmesh_client.output.compaction import _without
from gymmesh_client.log_records import ROWS, Place
path = Path(sys.argv[1], "out.jsonl.zst")
row = Place(ROWS, 0, 0, 0, 10, path.stat().st_size, 0)
_without(path.read_bytes(), [row], path, lambda _: True)
""",
    "trace": """
from gymmesh_client.traces.reader import open_trace
with open_trace(Path(sys.argv[1], "bomb.jsonl")) as trace:
    trace.events("ro-1")
""",
}


@pytest.mark.parametrize("reader", READS)
def test_a_reader_stays_small_whatever_a_frame_expands_to(tmp_path: Path, reader: str) -> None:
    frame = bomb(20 << 30, 1000 if reader == "trace" else None)
    assert len(frame) < 700_000
    (tmp_path / "out.jsonl.zst").write_bytes(frame)
    from gymmesh_client.rollout_ids import rollout_key
    from gymmesh_client.traces.blocks import Piece, encode_block

    block = encode_block([Piece(rollout_key("ro-1"), 1, 0, 10)], frame)
    OutputFiles(tmp_path / "bomb.jsonl").trace.write_bytes(block)
    code = f"import sys\nfrom pathlib import Path\n{READS[reader]}"
    memory = 3 * MOST_IN_FRAME

    ended = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)],
        capture_output=True,
        text=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (memory, memory)),
    )
    assert ended.returncode
    assert any(one in ended.stderr for one in ("UserError", "DamagedRow")), ended.stderr
    assert "MemoryError" not in ended.stderr


def test_rows_of_one_commit_are_in_frames_that_a_reader_can_expand(tmp_path: Path) -> None:
    from gymmesh_client.disk import Disk
    from gymmesh_client.log.state import RunState
    from gymmesh_client.log_records import ROWS
    from gymmesh_client.row_files.row_files import RowFiles

    files = OutputFiles(tmp_path / "out.jsonl.zst")
    lines = [b"%d" % number * (5 << 20) + b"\n" for number in range(8)] + [b"x" * (40 << 20)]
    writing = RowFiles(files, Disk(), RunState())
    places = writing.append(ROWS, lines)
    writing.close()
    assert len({place.offset for place in places}) == 4
    reader = RowReader(files, {})
    assert [reader.read(place) for place in places] == lines
    reader.close()
