"""What sandboxes start from: the root of the image `host`, folders, and what layers have in common.

The image `host` has this machine's /usr, read-only, and a small root of its own around it.
"""

from __future__ import annotations

import contextlib
import os
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
        name: as requests have it.
        digest: `sha256:` and hexadecimal digits; empty: not known.
        layers: folders, the topmost first, none of which ever changes.
        binds: folders and files of this machine that are shown in it, read-only.
        env, user, workdir: of its processes.
        snapshot: it was made of a sandbox.
    """

    name: str
    digest: str
    layers: tuple[Path, ...]
    binds: tuple[Path, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    user: str = ""
    workdir: str = "/"
    snapshot: bool = False


def make_host_root(folder: Path, owner: int, binds: tuple[Path, ...]) -> RootImage:
    """The image `host`, with its root in a folder that is made anew.

    `owner`: this machine's id of the sandboxes' root. Raises OSError.
    """
    shutil.rmtree(folder, ignore_errors=True)
    for name in _HOST_FOLDERS:
        (folder / name).mkdir(parents=True, exist_ok=True)
    work = folder / "work"
    work.mkdir()
    for name in _LINKED:
        of_host = Path("/", name)
        if of_host.is_symlink():
            (folder / name).symlink_to(os.readlink(of_host))
        elif of_host.is_dir():
            (folder / name).mkdir()
            binds = (*binds, of_host)
    for name, content in _HOST_ETC.items():
        (folder / "etc" / name).write_text(content)
    for name in _COPIED_ETC:
        _copy(Path("/etc", name), folder / "etc" / name)
    for bind in binds:
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
    return RootImage(
        name="host",
        digest="",
        layers=(folder,),
        binds=(Path("/usr"), *binds),
        env={"PATH": DEFAULT_PATH, "LANG": "C.UTF-8"},
        user=_HOST_USER,
        workdir="/work",
    )


def give_all(folder: Path, uid: int, gid: int) -> None:
    """Gives all files in a folder to a user, where this process is root."""
    if os.geteuid() != 0:
        return
    os.chown(folder, uid, gid)
    for at, folders, files in os.walk(folder):
        for name in (*folders, *files):
            os.chown(os.path.join(at, name), uid, gid, follow_symlinks=False)


def remove_tree(folder: Path) -> None:
    """Removes a folder with everything in it, whatever its permissions. Raises OSError."""
    for _ in range(3):
        try:
            shutil.rmtree(folder)
            return
        except FileNotFoundError:
            return
        except OSError:
            # The owner may not look into folders of mode 0, of which overlayfs makes some.
            for at, folders, _ in os.walk(folder, topdown=True):
                for name in folders:
                    path = os.path.join(at, name)
                    if not stat.S_ISLNK(os.lstat(path).st_mode):
                        with contextlib.suppress(OSError):
                            os.chmod(path, 0o700)
    shutil.rmtree(folder)


def _own(path: Path, uid: int) -> None:
    if os.geteuid() == 0:
        os.chown(path, uid, uid)


def _copy(source: Path, target: Path) -> None:
    """Copies what all may read; links stay links."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(OSError):
        if source.is_dir() and not source.is_symlink():
            shutil.copytree(source, target, symlinks=True, dirs_exist_ok=True)
        elif source.is_symlink() or source.is_file():
            shutil.copy2(source, target, follow_symlinks=False)
