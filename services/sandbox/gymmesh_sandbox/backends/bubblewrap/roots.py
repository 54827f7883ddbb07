"""The file systems that sandboxes start with: the root of the image `host`, folders, and functions
that layers share.

The image `host` has this machine's /usr, read-only, and a small root of its own around it.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import os
import secrets
import shutil
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_HOST_USER = "1000"
_HOST_FOLDERS = (
    "dev",
    "etc",
    "home/sandbox",
    "proc",
    "root",
    "run",
    "sys",
    "tmp",
    "usr",
    "var/tmp",
)
_HOST_ETC = {
    "passwd": (
        "root:x:0:0:root:/root:/bin/sh\n"
        "sandbox:x:1000:1000:sandbox:/home/sandbox:/bin/sh\n"
        "nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n"
    ),
    "group": "root:x:0:\nsandbox:x:1000:\nnogroup:x:65534:\n",
    "hosts": "127.0.0.1 localhost sandbox\n::1 localhost\n",
    "hostname": "sandbox\n",
    "nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\n",
}
# Of this machine's /etc, what its /usr needs.
_COPIED_ETC = (
    "alternatives",
    "ld.so.cache",
    "localtime",
    "ssl/openssl.cnf",
    "ssl/certs",
    "mime.types",
)
_LINKED = ("bin", "lib", "lib32", "lib64", "libx32", "sbin")


@dataclass(frozen=True, slots=True)
class RootImage:
    """What the file systems of sandboxes are made from.

    Attributes:
        name: the name in requests.
        digest: `sha256:` and hexadecimal digits; empty: unknown.
        layers: folders that never change, the topmost first.
        binds: folders and files of this machine that are visible in it, read-only.
        env, user, workdir: the defaults of its processes.
        snapshot: whether it was made from a sandbox.
    """

    name: str
    digest: str
    layers: tuple[Path, ...]
    binds: tuple[Path, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    user: str = ""
    workdir: str = "/"
    snapshot: bool = False


def host_mark(binds: tuple[Path, ...]) -> str:
    """Identifies a root of the image `host`: different if its sources have changed."""
    found = hashlib.sha256()
    for name in (*_COPIED_ETC, *_LINKED):
        path = Path("/etc", name) if name in _COPIED_ETC else Path("/", name)
        found.update(f"{path} {_changed(path)}\n".encode())
    for bind in binds:
        found.update(f"{bind} {bind.is_dir()}\n".encode())
    found.update(repr((_HOST_FOLDERS, _HOST_ETC, _HOST_USER)).encode())
    return found.hexdigest()[:32]


def _changed(path: Path) -> int:
    """When a file, or a file in a folder, was added or changed."""
    try:
        latest = path.lstat().st_mtime_ns
        if path.is_dir() and not path.is_symlink():
            latest = max(latest, *(one.lstat().st_mtime_ns for one in path.iterdir()), 0)
        return latest
    except OSError:
        return 0


def make_host_root(folder: Path, owner: int, binds: tuple[Path, ...]) -> None:
    """Creates the root of the image `host` in a folder.

    `owner`: this machine's id of the sandboxes' root. Raises OSError.
    """
    for name in _HOST_FOLDERS:
        (folder / name).mkdir(parents=True, exist_ok=True)
    work = folder / "work"
    work.mkdir()
    for name in _LINKED:
        of_host = Path("/", name)
        if of_host.is_symlink():
            (folder / name).symlink_to(os.readlink(of_host))
    for name, content in _HOST_ETC.items():
        (folder / "etc" / name).write_text(content)
    for name in _COPIED_ETC:
        _copy(Path("/etc", name), folder / "etc" / name)
    for bind in _host_binds(binds):
        target = folder / bind.relative_to("/")
        if bind.is_dir():
            target.mkdir(parents=True, exist_ok=True)
        else:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.touch()
    give_all(folder, owner, owner)
    user = owner + int(_HOST_USER)
    for name in ("home/sandbox", "work"):
        _own(folder / name, user)
    for name in ("tmp", "var/tmp"):
        (folder / name).chmod(0o1777)


def host_image(layer: Path, binds: tuple[Path, ...]) -> RootImage:
    """The image `host`, with the root that `make_host_root` created."""
    return RootImage(
        name="host",
        digest="",
        layers=(layer,),
        binds=(Path("/usr"), *_host_binds(binds)),
        env={"PATH": DEFAULT_PATH, "LANG": "C.UTF-8"},
        user=_HOST_USER,
        workdir="/work",
    )


def _host_binds(binds: tuple[Path, ...]) -> tuple[Path, ...]:
    """What is visible of this machine besides /usr: the configured folders, and /bin and the
    like if they are separate folders.
    """
    folders = (Path("/", name) for name in _LINKED)
    return (*binds, *(one for one in folders if one.is_dir() and not one.is_symlink()))


def give_all(folder: Path, uid: int, gid: int) -> None:
    """Gives all files in a folder to a user, if this process is root."""
    if os.geteuid() != 0:
        return
    os.chown(folder, uid, gid)
    for at, folders, files in os.walk(folder):
        for name in (*folders, *files):
            os.chown(os.path.join(at, name), uid, gid, follow_symlinks=False)


def remove_tree(folder: Path) -> None:
    """Removes a folder with everything in it, whatever its permissions and its depth are: a
    program may nest folders until no path can name the last one. Raises OSError.
    """
    for again in (True, True, False):
        try:
            _remove_flat(folder)
            return
        except OSError:  # what is in it may change while its last processes die
            if not folder.exists():
                return
            if not again:
                raise


def _remove_flat(folder: Path) -> None:
    """Empties one folder after another. Deeper content is first moved to the top."""
    with contextlib.suppress(OSError):
        os.chmod(folder, 0o700)
    top = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        # No name of a program's own is like these.
        prefix, numbers = f".removed-{secrets.token_hex(8)}-", itertools.count()
        waiting = [""]
        while waiting:
            name = waiting.pop()
            for found in _empty(top, name):
                moved = f"{prefix}{next(numbers)}"
                os.rename(found, moved, src_dir_fd=top, dst_dir_fd=top)
                waiting.append(moved)
            if name:
                os.rmdir(name, dir_fd=top)
    finally:
        os.close(top)
    os.rmdir(folder)


def _empty(top: int, name: str) -> list[str]:
    """Removes the files of a folder; returns the paths of its folders, relative to `top`."""
    # The owner may not look into folders of mode 0, of which overlayfs makes some.
    if name:
        with contextlib.suppress(OSError):
            os.chmod(name, 0o700, dir_fd=top)
    here = os.open(name or ".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=top)
    try:
        folders = []
        for entry in os.listdir(here):
            if stat.S_ISDIR(os.lstat(entry, dir_fd=here).st_mode):
                with contextlib.suppress(OSError):
                    os.chmod(entry, 0o700, dir_fd=here)  # a folder that is moved is written to
                folders.append(os.path.join(name, entry))
            else:
                os.unlink(entry, dir_fd=here)
        return folders
    finally:
        os.close(here)


def _own(path: Path, uid: int) -> None:
    if os.geteuid() == 0:
        os.chown(path, uid, uid)


def _copy(source: Path, target: Path) -> None:
    """Copies everything that all users may read; links stay links."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(OSError):
        if source.is_dir() and not source.is_symlink():
            shutil.copytree(source, target, symlinks=True, dirs_exist_ok=True)
        elif source.is_symlink() or source.is_file():
            shutil.copy2(source, target, follow_symlinks=False)
