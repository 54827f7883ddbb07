"""The users and groups of an image, by its own /etc/passwd and /etc/group (passwd(5), group(5))."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from gymmesh_runtime.errors import field_invalid

_MOST_LINES = 10_000


@dataclass(frozen=True, slots=True)
class ImageUser:
    """A user with the numbers that its processes get; the numbers are the sandbox's."""

    name: str
    uid: int
    gid: int
    gids: tuple[int, ...]
    home: str


def find_user(wanted: str, passwd: bytes, group: bytes) -> ImageUser:
    """The user with a name or number, optionally followed by `:` and a group.

    A number needs no line in passwd. Raises FIELD_INVALID.
    """
    name, _, wanted_group = wanted.partition(":")
    uid, gid, home = -1, 0, "/"
    for fields in _lines(passwd, 6):
        numbers = _number(fields[2]), _number(fields[3])
        if -1 not in numbers and (fields[0] == name or (name.isdecimal() and fields[2] == name)):
            name, (uid, gid), home = fields[0], numbers, fields[5] or "/"
            break
    if uid < 0:
        uid = _number(name)
        if uid < 0:
            raise field_invalid("user", f"{name!r} is not in the image's /etc/passwd")
    groups = list(_lines(group, 3))
    if wanted_group:
        by_name = [_number(fields[2]) for fields in groups if fields[0] == wanted_group]
        gid = by_name[0] if by_name else _number(wanted_group)
        if gid < 0:
            raise field_invalid("user", f"{wanted_group!r} is not in the image's /etc/group")
    gids = {gid}
    for fields in groups:
        number = _number(fields[2])
        if len(fields) > 3 and number >= 0 and name in fields[3].split(","):
            gids.add(number)
    return ImageUser(name, uid, gid, tuple(sorted(gids)), home)


def _lines(content: bytes, least: int) -> Iterator[list[str]]:
    for line in content.decode("utf-8", "replace").splitlines()[:_MOST_LINES]:
        fields = line.split(":")
        if len(fields) >= least:
            yield fields


def _number(text: str) -> int:
    """A user or group id; -1 if a sandbox cannot have it."""
    return int(text) if text.isascii() and text.isdecimal() and int(text[:10]) < 65_535 else -1
