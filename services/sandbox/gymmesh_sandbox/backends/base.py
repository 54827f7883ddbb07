"""The interface between the sandbox service and its backends.

The service handles leases, places, timeouts, repeated requests and output limits. A backend starts
sandboxes, runs processes in them and transfers files. Every method raises MeshError with a reason
of the contract (SANDBOX_*), and leaves nothing behind if it fails or is cancelled.
"""

from __future__ import annotations

import enum
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from gymmesh.sandbox.v1 import files_pb2, process_pb2, sandbox_pb2
from gymmesh_sandbox.errors import option_unsupported

#: Returned by `RunningSandbox.wait_lost` for a sandbox that exceeded its memory limit.
OUT_OF_MEMORY: Final = "out of memory"
#: The most files, folders and links of an archive.
MOST_ENTRIES: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class SandboxSpec:
    """A requested sandbox, with all defaults filled in.

    sandbox_id: unique among all instances. A backend labels its objects with this id and with
    `instance_id`, so that the restarted instance finds leftovers.
    root: the name of an image or snapshot, or an image to build.
    image_digest: the digest that the image must have; empty: any.
    network: the kind is always set.
    env: variables in addition to the image's.
    user, workdir: empty: the image's.
    relay: for a network of the kind `relay`: returns the target of a new connection, HOST:PORT.
    Raises MeshError while no instance of the service is known. None: the network has another kind.
    """

    sandbox_id: str
    instance_id: str
    root: str | sandbox_pb2.ImageBuild
    resources: sandbox_pb2.Resources
    network: sandbox_pb2.Network
    image_digest: str = ""
    env: Mapping[str, str] = field(default_factory=dict)
    user: str = ""
    workdir: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    relay: Callable[[], str] | None = None


class Stream(enum.Enum):
    """The stream that a process wrote to."""

    STDOUT = "stdout"
    STDERR = "stderr"


@dataclass(frozen=True, slots=True)
class ProcessEnded:
    """How a process ended: with an exit code, or by a signal.

    out_of_memory: the kernel killed the process at the sandbox's memory limit.
    machine_out_of_memory: the kernel killed the process for lack of memory, but not at that limit.
    """

    exit_code: int | None = None
    signal: int = 0
    out_of_memory: bool = False
    machine_out_of_memory: bool = False


class RunningProcess(ABC):
    """A process that was started in a sandbox, and its descendants."""

    @abstractmethod
    def output(self) -> AsyncIterator[tuple[Stream, bytes]]:
        """The process's output, in pieces of at most 1 MiB; iterated once, by one reader.

        Ends when both streams have ended, or within a second after the process itself has ended: a
        descendant that still runs does not keep the output open. A slow reader blocks the process.
        """

    @abstractmethod
    async def write(self, data: bytes) -> None:
        """Writes to the process's standard input. Data that the process no longer reads is
        dropped.
        """

    @abstractmethod
    async def close_stdin(self) -> None:
        """Closes the process's standard input; may be called twice."""

    @abstractmethod
    async def signal(self, number: int, *, descendants: bool) -> None:
        """Sends a signal; does nothing if the process has ended.

        SIGKILL with `descendants` always ends all of them.
        """

    @abstractmethod
    async def wait(self) -> ProcessEnded:
        """Waits for the end of the process. Raises SANDBOX_LOST if the sandbox ended first."""

    def threads(self) -> Sequence[process_pb2.ThreadUsage]:
        """The threads of the process and of its descendants; called in a separate thread."""
        return ()


class RunningSandbox(ABC):
    """A running sandbox.

    The file methods act with the permissions of `user`, a name or number in the sandbox, never
    empty. If the backend's capabilities have no `users`, `user` is always the sandbox's own user.
    The methods raise SANDBOX_FILE_DENIED if this user lacks the permission. `root` has all
    permissions.

    Attributes:
        image, image_digest: the source of the sandbox's file system; the digest may be empty.
        user, workdir: the defaults of the sandbox's processes.
    """

    image: str
    image_digest: str
    user: str
    workdir: str

    @abstractmethod
    async def start(self, process: process_pb2.ProcessSpec) -> RunningProcess:
        """Starts a process. The service enforces timeouts and output limits.

        If a program does not exist, the process ends with exit code 127. If a program cannot be
        run, or its folder does not exist, the process ends with 126. In both cases it writes a line
        to standard error.
        """

    @abstractmethod
    async def wait_lost(self) -> str:
        """Waits until the sandbox ends without `end`; returns the cause in a few words, for
        SANDBOX_LOST.

        The cause OUT_OF_MEMORY becomes SANDBOX_OUT_OF_MEMORY.
        """

    @abstractmethod
    async def resolve(self, path: bytes, user: str) -> bytes:
        """The absolute path in the sandbox, with all links resolved.

        Parts of the path that do not exist stay as they are.
        """

    @abstractmethod
    def read_file(
        self, path: bytes, offset: int, max_bytes: int, user: str
    ) -> AsyncIterator[bytes]:
        """The content of a plain file in pieces of at most 1 MiB; `max_bytes` 0: all."""

    @abstractmethod
    async def file_info(self, path: bytes, user: str) -> files_pb2.FileInfo:
        """The type and attributes of the path; a link at its end is not followed."""

    @abstractmethod
    async def write_file(self, file: files_pb2.FileContent, user: str) -> None:
        """Writes a file or a part of it, see FileContent. New files and folders belong to the
        user.
        """

    @abstractmethod
    async def place_file(self, file: files_pb2.FileContent) -> None:
        """Writes a file at any path before any process starts. The file belongs to the sandbox's
        user.
        """

    @abstractmethod
    def list_files(
        self, path: bytes, user: str, *, recursive: bool
    ) -> AsyncIterator[files_pb2.FileInfo]:
        """The entries of a folder, or the file itself, sorted by the bytes of the path."""

    @abstractmethod
    def read_archive(
        self,
        path: bytes,
        format: files_pb2.ArchiveFormat.ValueType,
        user: str,
        max_bytes: int,
    ) -> AsyncIterator[bytes]:
        """A folder or file as an archive, in pieces of at most 1 MiB.

        Args:
            max_bytes: the maximum bytes of all files. More bytes, or more than `MOST_ENTRIES` files
                and folders, raise FIELD_INVALID before the first piece.
        """

    @abstractmethod
    async def write_archive(
        self,
        path: bytes,
        archive: str,
        format: files_pb2.ArchiveFormat.ValueType,
        user: str,
        max_bytes: int,
    ) -> None:
        """Unpacks an archive in a folder.

        Args:
            path: the folder; created if missing.
            archive: the path of the archive on the service's machine.
            format: the archive's compression.
            max_bytes: the maximum bytes of the unpacked files; more raise FIELD_INVALID.
        """

    @abstractmethod
    async def call_port(
        self, request: sandbox_pb2.CallPortRequest, max_bytes: int
    ) -> sandbox_pb2.CallPortResponse:
        """Calls an HTTP server in the sandbox; `max_bytes`: the maximum bytes of the response's
        body.
        """

    @abstractmethod
    async def snapshot(self, name: str) -> sandbox_pb2.Image:
        """Saves the file system under a name."""

    @abstractmethod
    async def end(self) -> None:
        """Ends the sandbox, and returns when everything is removed. May be called twice."""


class SandboxBackend(ABC):
    """One way to run sandboxes. Opened once, called concurrently, closed once.

    The service finds the class by its name: an entry point of the group `gymmesh.sandboxes`.

    Args:
        options: `options` of the configuration. An invalid option raises ValueError with one
            sentence, `KEY: problem`.

    Attributes:
        name: reported as `GetServiceResponse.backend`.
        version: the version of the software behind the backend, set by `open`; empty: unknown.
        default_image: the image for requests without one; empty: requests must name one.
        capabilities: what the backend's sandboxes can do; set by `open`.
        start_cost_bytes: the approximate memory of an idle sandbox.
    """

    name: str
    version: str = ""
    default_image: str = ""
    capabilities: sandbox_pb2.Capabilities = sandbox_pb2.Capabilities()
    start_cost_bytes: int = 1 << 20

    @abstractmethod
    def __init__(self, options: Mapping[str, Any]) -> None: ...

    @abstractmethod
    async def open(self) -> None:
        """Prepares the backend. Raises ConfigError with one sentence that says what to do."""

    @abstractmethod
    async def end_leftovers(self, instance_id: str) -> int:
        """Removes sandboxes and snapshots that this instance left before a restart; returns
        their number.
        """

    @abstractmethod
    async def images(self) -> Sequence[sandbox_pb2.Image]:
        """The images that need no fetch or build, including snapshots."""

    @abstractmethod
    async def create(self, spec: SandboxSpec) -> RunningSandbox:
        """Starts a sandbox. The service limits the start time, and cancels the call when it
        expires.
        """

    async def delete_snapshot(self, name: str) -> None:
        """Removes a snapshot if it exists. For backends with snapshots."""
        raise option_unsupported("DeleteSnapshot", self.name)

    @abstractmethod
    async def close(self) -> None:
        """Ends everything in bounded time. May be called twice, or before `open`."""
