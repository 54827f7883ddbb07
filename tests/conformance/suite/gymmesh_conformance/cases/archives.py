"""Archives as data, and bytes that are the same each time. Pure.

A member is `{name: a, content: x}`, `{name: a, folder: true}`, `{name: a, link: TARGET}`,
`{name: a, hard_link: TARGET}`, `{name: a, device: true}` or `{name: a, fifo: true}`, with a
`mode` where it matters. Content and names are text with a byte for each character up to \\xff;
`bytes: N` makes content of N bytes, `zeros: N` of N zeros.
"""

from __future__ import annotations

import gzip as gzip_
import io
import random
import tarfile
from collections.abc import Iterable, Mapping
from typing import Any, Final

_KINDS: Final = {
    "folder": tarfile.DIRTYPE,
    "link": tarfile.SYMTYPE,
    "hard_link": tarfile.LNKTYPE,
    "device": tarfile.CHRTYPE,
    "fifo": tarfile.FIFOTYPE,
}


def some_bytes(count: int) -> bytes:
    """So many bytes, the same ones each time, no short pattern in them."""
    return random.Random(count).randbytes(count)


def flipped(data: bytes, bit: int) -> bytes:
    """The same bytes with one bit changed, counted from the first and around at the end."""
    at = bit * 13 % (8 * len(data))
    changed = bytearray(data)
    changed[at // 8] ^= 1 << at % 8
    return bytes(changed)


def pack(members: Iterable[Mapping[str, Any]], *, gzip: bool) -> bytes:
    """Packs members as an archive of tar, in their order."""
    packed = io.BytesIO()
    with tarfile.open(
        fileobj=packed, mode="w", format=tarfile.PAX_FORMAT, errors="surrogateescape"
    ) as archive:
        for member in members:
            info, content = _member(member)
            archive.addfile(info, io.BytesIO(content))
    return gzip_.compress(packed.getvalue(), mtime=0) if gzip else packed.getvalue()


def _member(member: Mapping[str, Any]) -> tuple[tarfile.TarInfo, bytes]:
    info = tarfile.TarInfo(_name(member["name"]))
    kind = next((one for one in _KINDS if one in member), None)
    info.mode = member.get("mode", 0o755 if kind == "folder" else 0o644)
    if kind is not None:
        info.type = _KINDS[kind]
        if kind in ("link", "hard_link"):
            info.linkname = _name(member[kind])
        info.devmajor, info.devminor = (1, 3) if kind == "device" else (0, 0)
        return info, b""
    if "zeros" in member:
        content = bytes(int(member["zeros"]))
    else:
        content = some_bytes(member["bytes"]) if "bytes" in member else _bytes(member["content"])
    info.size = len(content)
    return info, content


def unpack(data: bytes) -> list[dict[str, Any]]:
    """The members of an archive, as `pack` takes them; sorted by name. Raises ValueError."""
    try:
        with tarfile.open(
            fileobj=io.BytesIO(data), mode="r:*", errors="surrogateescape"
        ) as archive:
            found = [_shown(archive, info) for info in archive.getmembers()]
    except (tarfile.TarError, OSError, EOFError) as exc:
        raise ValueError(f"not an archive: {exc}") from None
    return sorted((one for one in found if one["name"] != "."), key=lambda one: str(one["name"]))


def _shown(archive: tarfile.TarFile, info: tarfile.TarInfo) -> dict[str, Any]:
    name = info.name.encode("utf-8", "surrogateescape").decode("latin-1")
    shown: dict[str, Any] = {
        "name": name.removeprefix("./").rstrip("/") or ".",
        "mode": info.mode & 0o7777,
    }
    kind = next((one for one, type_ in _KINDS.items() if type_ == info.type), None)
    if kind in ("link", "hard_link"):
        shown[kind] = info.linkname.encode("utf-8", "surrogateescape").decode("latin-1")
    elif kind is not None:
        shown[kind] = True
    else:
        file = archive.extractfile(info)
        shown["content"] = file.read().decode("latin-1") if file is not None else ""
    return shown


def _bytes(text: Any) -> bytes:
    return str(text).encode("latin-1")


def _name(text: Any) -> str:
    return _bytes(text).decode("utf-8", "surrogateescape")
