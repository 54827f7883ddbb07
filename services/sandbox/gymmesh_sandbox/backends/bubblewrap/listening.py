"""A Unix socket at a path of a sandbox, on which this process listens."""

from __future__ import annotations

import contextlib
import os
import socket
from typing import Final

from gymmesh_sandbox.backends.bubblewrap.tree import Owner, SandboxTree, path_invalid

_BACKLOG: Final = 64
_NAME_BYTES: Final = 64
_ROOT: Final = Owner(0, 0)


def listen_in(tree: SandboxTree, path: bytes) -> socket.socket:
    """A Unix socket that listens at a path of a sandbox, for all its users.

    An existing socket, as in a fork, is replaced. Raises SANDBOX_PATH_INVALID.
    """
    folder, _, name = path.rpartition(b"/")
    if not 0 < len(name) <= _NAME_BYTES or name in (b".", b".."):
        raise path_invalid(path, f"a socket's name must have 1 to {_NAME_BYTES} bytes")
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with tree.folder(folder or b"/", _ROOT) as parent:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(name, dir_fd=parent)
            listening.bind(b"/proc/self/fd/%d/%b" % (parent, name))
            os.chmod(name, 0o666, dir_fd=parent)
        listening.listen(_BACKLOG)
    except OSError as error:
        listening.close()
        raise tree.failed(error, path) from None
    return listening
