"""Reads the numbers that a reference to side data stands for, and compares their digest."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path
from urllib.parse import unquote, urlsplit

from gymmesh.model.v1 import tokens_pb2
from gymmesh_client.problems import UserError
from gymmesh_responses import side_data_bytes, side_data_place


class SideDataUnreadable(UserError):
    """The numbers of side data are missing, or differ from their digest."""


def read_side_data(side: tokens_pb2.SideData, folders: Iterable[Path] = ()) -> bytes:
    """The numbers, row after row. Blocks: it reads a file.

    folders: folders of side data to look in, after the place that the reference names: copies of
        the model service's folder, or mounts of it. Raises SideDataUnreadable.
    """
    if side.data:
        return _checked(side, side.data, "the message")
    problem: SideDataUnreadable | None = None
    for path in _places(side, folders):
        try:
            return _checked(side, path.read_bytes(), str(path))
        except FileNotFoundError:
            continue
        except OSError as error:
            problem = SideDataUnreadable(f"{path}: {error.strerror or error}")
        except SideDataUnreadable as error:
            problem = error  # another copy may be good
    raise problem or SideDataUnreadable(
        f"side data '{side.name}' with the digest {side.digest.hex()} is neither at "
        f"{side.location} nor in the given folders. The model service deletes the oldest files "
        "when the files together exceed side_data.max_bytes, or when a file is older than "
        "side_data.max_age_s. If the file is on another machine, fetch it first"
    )


def side_data_path(side: tokens_pb2.SideData, folders: Iterable[Path] = ()) -> Path | None:
    """The file that has the numbers, as far as can be seen from here without reading it; None:
    there is none of the right size.
    """
    size = _size(side)
    return next(
        (path for path in _places(side, folders) if path.is_file() and path.stat().st_size == size),
        None,
    )


def _places(side: tokens_pb2.SideData, folders: Iterable[Path]) -> list[Path]:
    """Where the numbers may be, the reference's own place first."""
    place = side_data_place(side.digest)
    found = [folder / place for folder in folders]
    url = urlsplit(side.location)
    # Only a name that the digest decides is opened, whatever a row says.
    if url.scheme == "file" and not url.netloc and unquote(url.path).endswith(f"/{place}"):
        found.insert(0, Path(unquote(url.path)))
    return found


def _size(side: tokens_pb2.SideData) -> int:
    try:
        return side_data_bytes(side)
    except ValueError as error:
        raise SideDataUnreadable(f"side data '{side.name}': {error}") from None


def _checked(side: tokens_pb2.SideData, data: bytes, where: str) -> bytes:
    if len(data) != _size(side) or hashlib.sha256(data).digest() != side.digest:
        raise SideDataUnreadable(
            f"side data '{side.name}' in {where} differs from the digest "
            f"{side.digest.hex()}: the file is damaged. Delete the file and fetch the data "
            "again, or skip the sample"
        )
    return data
