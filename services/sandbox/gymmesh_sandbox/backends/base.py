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

    sandbox_id: unique among all instances. A backend labels its objects with it and with
        `instance_id`, so that the restarted instance finds leftovers.
    root: the name of an image or snapshot, or an image to build.
    image_digest: the required digest of the image; empty: any.
    network: the kind is always set.
    env: variables in addition to the image's.
    user, workdir: empty: the image's.
    relay: for a network of the kind `relay`: returns the target of a new connection, HOST:PORT.
        Raises MeshError while no instance of the service is known. None: the network has another
        kind.
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

    out_of_memory: the kernel killed it at the sandbox's memory limit. machine_out_of_memory: the
    kernel killed it for lack of memory, but not at that limit.
    """

    exit_code: int | None = None
    signal: int = 0
    out_of_memory: bool = False
    machine_out_of_memory: bool = False


class RunningProcess(ABC):
    """A process that was started in a sandbox, and its descendants."""

    @abstractmethod
    def output(self) -> AsyncIterator[tuple[Stream, bytes]]:
        """Its output, in pieces of at most 1 MiB; iterated once, by one reader.

        Ends when both streams have ended, or within a second of the end of the process itself: a
        descendant that is still running does not keep it open. A slow reader blocks the process.
        """

    @abstractmethod
    async def write(self, data: bytes) -> None:
        """Writes to its standard input; data that it no longer reads is dropped."""

    @abstractmethod
    async def close_stdin(self) -> None:
        """Closes its standard input; may be called twice."""

    @abstractmethod
    async def signal(self, number: int, *, descendants: bool) -> None:
        """Sends a signal; does nothing if the process has ended.

        SIGKILL with `descendants` always ends all of them.
        """

    @abstractmethod
    async def wait(self) -> ProcessEnded:
        """Waits for its end. Raises SANDBOX_LOST if the sandbox ended first."""

    def threads(self) -> Sequence[process_pb2.ThreadUsage]:
        """Its threads and those of its descendants; called in a separate thread."""
        return ()


class RunningSandbox(ABC):
    """A running sandbox.

    The file methods act with the permissions of `user`: a name or number in the sandbox, never
    empty. If the backend's capabilities have no `users`, it is always the sandbox's user. They
    raise SANDBOX_FILE_DENIED if this user lacks the permission. `root` has all permissions.

    Attributes:
        image, image_digest: the source of its file system; the digest may be empty.
        user, workdir: the defaults of its processes.
    """

    image: str
    image_digest: str
    user: str
    workdir: str

    @abstractmethod
    async def start(self, process: process_pb2.ProcessSpec) -> RunningProcess:
        """Starts a process. The service enforces timeouts and output limits.

        A program that does not exist is a process that ends with exit code 127. A program that
        cannot be run, or whose folder does not exist, ends with 126. Both write a line to standard
        error.
        """

    @abstractmethod
    async def wait_lost(self) -> str:
        """Waits until the sandbox ends without `end`; the cause in a few words, for SANDBOX_LOST.

        OUT_OF_MEMORY becomes SANDBOX_OUT_OF_MEMORY.
        """

    @abstractmethod
    async def resolve(self, path: bytes, user: str) -> bytes:
        """The absolute path in the sandbox, with all links resolved.

        Parts that do not exist stay as they are.
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
        """Writes a file or a part of it, see FileContent; the user owns what it creates."""

    @abstractmethod
    async def place_file(self, file: files_pb2.FileContent) -> None:
        """Writes a file before any process starts, anywhere; the sandbox's user owns it."""

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
            max_bytes: the most bytes of all files. More bytes, or more than `MOST_ENTRIES` files
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
            format: its compression.
            max_bytes: the most bytes that it may unpack to; more raises FIELD_INVALID.
        """

    @abstractmethod
    async def call_port(
        self, request: sandbox_pb2.CallPortRequest, max_bytes: int
    ) -> sandbox_pb2.CallPortResponse:
        """Calls an HTTP server in the sandbox; `max_bytes`: the most bytes of the body."""

    @abstractmethod
    async def snapshot(self, name: str) -> sandbox_pb2.Image:
        """Saves the file system under a name."""

    @abstractmethod
    async def end(self) -> None:
        """Ends it and returns when everything is removed. May be called twice."""


class SandboxBackend(ABC):
    """One way to run sandboxes. Opened once, called concurrently, closed once.

    Found by name: an entry point of the group `gymmesh.sandboxes` names the class.

    Args:
        options: `options` of the configuration. Raises ValueError with one sentence,
            `KEY: problem`, for an invalid one.

    Attributes:
        name: reported as `GetServiceResponse.backend`.
        version: of the software behind it, set by `open`; empty: not known.
        default_image: used for requests without an image; empty: requests must name one.
        capabilities: what it can do; set by `open`.
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
        """Removes sandboxes and snapshots left by this instance before a restart; their number."""

    @abstractmethod
    async def images(self) -> Sequence[sandbox_pb2.Image]:
        """The images that need no fetch or build, snapshots included."""

    @abstractmethod
    async def create(self, spec: SandboxSpec) -> RunningSandbox:
        """Starts a sandbox. The service limits the time to start, and cancels the call then."""

    async def delete_snapshot(self, name: str) -> None:
        """Removes a snapshot if it exists. For backends with snapshots."""
        raise option_unsupported("DeleteSnapshot", self.name)

    @abstractmethod
    async def close(self) -> None:
        """Ends everything. Bounded; may be called twice, or before `open`."""
