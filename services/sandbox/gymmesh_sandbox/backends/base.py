"""What the sandbox service asks of a backend.

The service keeps leases, places, times, repeats and limits of output; a backend starts sandboxes,
runs processes in them and moves files. Every method raises MeshError with a reason of the contract
(SANDBOX_*), and leaves nothing behind when it fails or is cancelled.
"""

from __future__ import annotations

import enum
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from gymmesh.sandbox.v1 import files_pb2, process_pb2, sandbox_pb2
from gymmesh_sandbox.errors import option_unsupported

#: What `RunningSandbox.wait_lost` returns for a sandbox that was ended at its limit of memory.
OUT_OF_MEMORY: Final = "out of memory"
#: The most files, folders and links of an archive.
MOST_ENTRIES: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class SandboxSpec:
    """A sandbox that is asked for, with all defaults filled in.

    sandbox_id: unique among all instances; a backend marks what it makes with it and with
        `instance_id`, so that a later life of the instance finds what was left.
    root: the image's or snapshot's name, or what is to be built.
    image_digest: what the image's digest must be; empty: any.
    network: the kind is set.
    env: variables beside the image's own.
    user, workdir: empty: the image's.
    relay: for a network of the kind `relay`: where each new connection is to go, HOST:PORT. Raises
        MeshError while no instance of the service is known. None: the network is another.
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
    """Which of its streams a process wrote to."""

    STDOUT = "stdout"
    STDERR = "stderr"


@dataclass(frozen=True, slots=True)
class ProcessEnded:
    """How a process ended: by itself with an exit code, or by a signal.

    out_of_memory: the kernel killed it at the sandbox's limit of memory. machine_out_of_memory: the
    kernel killed it for want of memory, and not at that limit.
    """

    exit_code: int | None = None
    signal: int = 0
    out_of_memory: bool = False
    machine_out_of_memory: bool = False


class RunningProcess(ABC):
    """A process that was started in a sandbox, and its descendants."""

    @abstractmethod
    def output(self) -> AsyncIterator[tuple[Stream, bytes]]:
        """What it writes, in pieces of at most 1 MiB; iterated once, by one reader.

        Ends when both streams have ended, or within a second of the end of the process itself:
        a descendant that outlives it does not keep it open. A reader that is slow makes the
        process wait.
        """

    @abstractmethod
    async def write(self, data: bytes) -> None:
        """Writes to its standard input; what it no longer reads is dropped."""

    @abstractmethod
    async def close_stdin(self) -> None:
        """Closes its standard input; harmless when called twice."""

    @abstractmethod
    async def signal(self, number: int, *, descendants: bool) -> None:
        """Sends a signal; nothing happens when the process has ended.

        With SIGKILL and `descendants` none of them is left, whatever they do.
        """

    @abstractmethod
    async def wait(self) -> ProcessEnded:
        """How it ended, once it has. Raises SANDBOX_LOST where the sandbox took it along."""

    def threads(self) -> Sequence[process_pb2.ThreadUsage]:
        """Its threads and those of its descendants; called in a thread of its own."""
        return ()


class RunningSandbox(ABC):
    """A sandbox that runs.

    The methods for files act with the rights of `user`: a name or a number of the sandbox's own,
    never empty; where the backend's capabilities have no `users`, the sandbox's own alone. Each
    raises SANDBOX_FILE_DENIED for what this user may not do. Who may do all is `root`.

    Attributes:
        image, image_digest: what its file system was made from; the digest may be empty.
        user, workdir: those in force.
    """

    image: str
    image_digest: str
    user: str
    workdir: str

    @abstractmethod
    async def start(self, process: process_pb2.ProcessSpec) -> RunningProcess:
        """Starts a process; timeouts and limits of output are the service's to keep.

        A program that is not there is a process that ends with 127, one that cannot be run, or
        whose folder is not there, with 126, and a line on its standard error.
        """

    @abstractmethod
    async def wait_lost(self) -> str:
        """Why the sandbox ended without `end`, once it has: a word or two for SANDBOX_LOST.

        OUT_OF_MEMORY makes it SANDBOX_OUT_OF_MEMORY.
        """

    @abstractmethod
    async def resolve(self, path: bytes, user: str) -> bytes:
        """The absolute path in the sandbox that this one leads to, all links followed.

        Parts that are not there stay as they are.
        """

    @abstractmethod
    def read_file(
        self, path: bytes, offset: int, max_bytes: int, user: str
    ) -> AsyncIterator[bytes]:
        """The content of a plain file in pieces of at most 1 MiB; `max_bytes` 0: all."""

    @abstractmethod
    async def file_info(self, path: bytes, user: str) -> files_pb2.FileInfo:
        """What is at the path; a link at its end is not followed."""

    @abstractmethod
    async def write_file(self, file: files_pb2.FileContent, user: str) -> None:
        """Writes a file, or a piece of one, as FileContent says; what is made is the user's."""

    @abstractmethod
    async def place_file(self, file: files_pb2.FileContent) -> None:
        """Writes a file before anything runs, with all rights; it is the sandbox's user's."""

    @abstractmethod
    def list_files(
        self, path: bytes, user: str, *, recursive: bool
    ) -> AsyncIterator[files_pb2.FileInfo]:
        """What is in a folder, or the file itself, by path as bytes."""

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
            max_bytes: the most in its files; more is FIELD_INVALID, before the first piece, and so
                are more than `MOST_ENTRIES` files and folders.
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
            path: the folder; made where it is missing.
            archive: the path of the archive on the service's own machine.
            format: how it is compressed.
            max_bytes: the most that it may unpack to; more is FIELD_INVALID.
        """

    @abstractmethod
    async def call_port(
        self, request: sandbox_pb2.CallPortRequest, max_bytes: int
    ) -> sandbox_pb2.CallPortResponse:
        """Calls an HTTP server in the sandbox; `max_bytes`: the most bytes of the body."""

    @abstractmethod
    async def snapshot(self, name: str) -> sandbox_pb2.Image:
        """Keeps the file system under a name."""

    @abstractmethod
    async def end(self) -> None:
        """Ends it; returns once nothing of it is left. Harmless when called twice."""


class SandboxBackend(ABC):
    """One way to run sandboxes. Opened once, called concurrently, closed once.

    Found by name: an entry point of the group `gymmesh.sandboxes` names the class.

    Args:
        options: what the configuration has under `options`. Raises ValueError with one sentence,
            `KEY: problem`, for what it does not accept.

    Attributes:
        name: as `GetServiceResponse.backend` has it.
        version: of what is behind it, known once opened; empty: not known.
        default_image: what a request without an image gets; empty: it has to name one.
        capabilities: what it can do, known once opened.
        start_cost_bytes: the memory that a sandbox takes while nothing runs in it, about.
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
        """Gets ready. Raises ConfigError with one sentence that says what to do."""

    @abstractmethod
    async def end_leftovers(self, instance_id: str) -> int:
        """Ends sandboxes and snapshots that an earlier life of this instance left; how many."""

    @abstractmethod
    async def images(self) -> Sequence[sandbox_pb2.Image]:
        """What sandboxes can start from without a fetch or a build, snapshots included."""

    @abstractmethod
    async def create(self, spec: SandboxSpec) -> RunningSandbox:
        """Starts a sandbox. The service keeps the time to start, and cancels when it is over."""

    async def delete_snapshot(self, name: str) -> None:
        """Removes a snapshot; harmless when it is not there. For backends that have snapshots."""
        raise option_unsupported("DeleteSnapshot", self.name)

    @abstractmethod
    async def close(self) -> None:
        """Ends everything. Bounded, and harmless when called twice or before `open`."""
