"""What is done with the sandboxes of a world, and what its users saw of it."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any, Final

from gymmesh.errors.v1 import errors_pb2
from gymmesh.resource.v1 import resource_pb2
from gymmesh.rollout.v1 import rollout_pb2
from gymmesh.sandbox.v1 import sandbox_pb2
from gymmesh_resource import SandboxHandle
from gymmesh_runtime.errors import MeshError
from tests.chaos.sandboxes.plan import SandboxLife, SandboxWorld
from tests.chaos.sandboxes.using import LEAVE, LIFE, spec_of, word_line
from tests.chaos.sandboxes.world import SandboxesUp

_CALL_S: Final = 60.0
#: More than all calls of a life may take together, on a busy machine.
_LIFE_S: Final = 400.0
_LOOK_S: Final = 0.5
_PAUSE_S: Final = 0.5
_Reason = errors_pb2.ErrorReason
#: With these something failed that nobody foresaw.
_UNFORESEEN: Final = frozenset(
    (
        _Reason.ERROR_REASON_UNSPECIFIED,
        _Reason.ERROR_REASON_INTERNAL_FAULT,
        _Reason.ERROR_REASON_ENVIRONMENT_FAULT,
        _Reason.ERROR_REASON_CONTRACT_VIOLATED,
        _Reason.ERROR_REASON_SESSION_STATE,
        _Reason.ERROR_REASON_REQUEST_ID_REUSED,
        # The image is good: what is killed while a sandbox starts is lost.
        _Reason.ERROR_REASON_SANDBOX_IMAGE_FAILED,
    )
)


class Lives:
    """Carries lives out.

    Attributes:
        failures: reasons of calls that failed, and how often.
        leases: all that were given out, with the ids of their sandboxes.
        violations: what was wrong.
        begun: how many lives.
        seen: the ids of all sandboxes that an owner got, or the service listed.
    """

    def __init__(self, up: SandboxesUp, world: SandboxWorld) -> None:
        self.failures: Counter[str] = Counter()
        self.leases: list[tuple[str, bytes]] = []
        self.violations: list[str] = []
        self.begun = 0
        self.seen: set[str] = set()
        #: Set once there is a sandbox.
        self.first = asyncio.Event()
        self._up = up
        self._world = world
        self._failed: set[int] = set()
        self._at_a_time: dict[str, int] = {}
        self._ids = itertools.count()

    async def run(self, lives: Iterator[SandboxLife]) -> None:
        """Carries them out, some at a time, until the world has had its sandboxes."""

        async def worker() -> None:
            while len(self.seen) < self._world.sandboxes:
                life = next(lives)
                await self.one(life)
                if life.number in self._failed:
                    await asyncio.sleep(_PAUSE_S)  # what it needs may be down

        await asyncio.gather(*(worker() for _ in range(self._world.at_a_time)))

    async def one(self, life: SandboxLife) -> None:
        """Carries one out, whatever is killed meanwhile."""
        self._at_a_time[str(life.number)] = life.sandboxes
        self.begun += 1
        try:
            async with asyncio.timeout(_LIFE_S):
                await (_Session(self, life) if life.owner else _Held(self, life)).live()
        except MeshError as error:
            self.failed(life, error)
        except TimeoutError:
            self.violations.append(
                f"life {life.number}: not finished after {_LIFE_S:.0f} s, so a call exceeded its "
                "timeout"
            )
        except Exception as error:
            self.violations.append(f"life {life.number}: {error!r}")

    @property
    def whole(self) -> int:
        """How many lives did all that they were to do, or do it yet."""
        return self.begun - len(self._failed)

    async def orphan(self, life: SandboxLife) -> None:
        """Makes a sandbox in which programs run, and leaves it. Raises MeshError."""
        self._at_a_time[str(life.number)] = life.sandboxes
        using = _Session(self, life) if life.owner else _Held(self, life)
        await using.begin()
        await using.leave()

    async def watch(self) -> None:
        """Looks at the list of sandboxes again and again, until cancelled."""
        while True:
            with suppress(MeshError):  # the service may be down
                self.look(await self.listed())
            await asyncio.sleep(_LOOK_S)

    async def listed(self) -> Sequence[sandbox_pb2.SandboxInfo]:
        """The sandboxes that there are. Raises MeshError."""
        found: list[sandbox_pb2.SandboxInfo] = []
        request = sandbox_pb2.ListSandboxesRequest()
        while True:
            page = await self._up.sandboxes.ListSandboxes(request, timeout=_CALL_S)
            found += page.sandboxes
            request.page_token = page.next_page_token
            if not request.page_token:
                return found

    def look(self, found: Sequence[sandbox_pb2.SandboxInfo]) -> None:
        """No life has more sandboxes than it asked for."""
        self.seen |= {one.sandbox.sandbox_id for one in found}
        for number, count in Counter(one.labels[LIFE] for one in found).items():
            if count > (most := self._at_a_time.get(number, 0)):
                self.violations.append(f"life {number} has {count} sandboxes, but requested {most}")

    async def leases_that_live(self) -> list[str]:
        """The sandboxes whose leases still do something. Raises MeshError."""
        return [
            sandbox_id for sandbox_id, lease in self.leases if await self._lives(sandbox_id, lease)
        ]

    def failed(self, life: SandboxLife, error: MeshError) -> None:
        """A call failed, as calls may while things are killed; what nobody foresaw may not."""
        self._failed.add(life.number)
        self.failures[error.reason_name] += 1
        if error.reason in _UNFORESEEN:
            self.violations.append(f"life {life.number}: {error.reason_name}: {error.message}")

    def note(self, sandbox_id: str, lease: bytes) -> None:
        """A lease was given out."""
        self.first.set()
        self.seen.add(sandbox_id)
        self.leases.append((sandbox_id, lease))

    def new_id(self) -> str:
        """A request id."""
        return f"chaos-{self._world.seed}-{next(self._ids)}"

    async def _lives(self, sandbox_id: str, lease: bytes) -> bool:
        request = sandbox_pb2.AttachSandboxRequest(sandbox_id=sandbox_id, lease=lease)
        try:
            await self._up.sandboxes.AttachSandbox(request, timeout=_CALL_S)
        except MeshError as error:
            if error.reason == _Reason.ERROR_REASON_SANDBOX_NOT_FOUND:
                return False
            raise
        return True


class _Using:
    """One life, by one kind of owner."""

    def __init__(self, lives: Lives, life: SandboxLife) -> None:
        self.lives = lives
        self.life = life
        self.up, self.world = lives._up, lives._world
        self.asked: list[str] = []
        self.written: set[str] = set()

    async def begin(self) -> None:
        """Makes the sandbox, and leaves programs running in it."""
        raise NotImplementedError

    async def write(self, word: str) -> str:
        """Appends a word by a program; what that says."""
        raise NotImplementedError

    async def read(self) -> str:
        """All words."""
        raise NotImplementedError

    async def fork(self) -> None:
        """Makes the copies."""

    async def end(self) -> None:
        """Ends the sandbox."""
        raise NotImplementedError

    async def leave(self) -> None:
        """Leaves it to its TTL."""

    async def live(self) -> None:
        """Does all that is to be done."""
        await self.begin()
        try:
            for number in range(self.life.words):
                await asyncio.sleep(self.life.pause_s)
                await self._write(f"w{self.life.number}-{number}")
            self._check(await self.read())
            if self.life.forks:
                await self.fork()
                self._check(await self.read())
        finally:
            await (self.leave() if self.life.abandoned else self.end())

    async def _write(self, word: str) -> None:
        self.asked.append(word)
        try:
            said = await self.write(word)
        except MeshError as error:
            self.lives.failed(self.life, error)  # it may have been written, or not
            return
        if said == f"{word}\n":
            self.written.add(word)
        else:
            self.lives.violations.append(
                f"life {self.life.number}: the answer to {word!r} is {said!r}"
            )

    def _check(self, text: str) -> None:
        """Each word that was acknowledged is there, once, and nothing that nobody asked for."""
        found = Counter(text.split())
        twice = [word for word, count in found.items() if count > 1]
        lost = [word for word in self.written if word not in found]
        foreign = [word for word in found if word not in self.asked]
        for what, words in (
            ("words written twice", twice),
            ("words acknowledged and lost", lost),
            ("words that were never sent", foreign),
        ):
            if words:
                self.lives.violations.append(f"life {self.life.number}: {what}: {words}")


class _Session(_Using):
    """By a session of an environment."""

    async def begin(self) -> None:
        self.peer = self.up.owner(self.life.owner)
        task = rollout_pb2.Task(
            task_id=str(self.life.number),
            payload_json=json.dumps({"life": str(self.life.number)}).encode(),
        )
        request = resource_pb2.CreateSessionRequest(task=task, request_id=self.lives.new_id())
        self.session = (await self.peer.CreateSession(request, timeout=_CALL_S)).session_id
        sandbox_id, lease = (await self._call("begin")).split()
        self.lives.note(sandbox_id, bytes.fromhex(lease))

    async def write(self, word: str) -> str:
        return await self._call("write", word=word)

    async def read(self) -> str:
        return await self._call("read")

    async def end(self) -> None:
        request = resource_pb2.CloseSessionRequest(session_id=self.session)
        try:
            await self.peer.CloseSession(request, timeout=_CALL_S)
        except MeshError as error:
            self.lives.failed(self.life, error)

    async def _call(self, name: str, **arguments: Any) -> str:
        request = resource_pb2.CallToolRequest(
            session_id=self.session,
            name=name,
            arguments=json.dumps(arguments).encode(),
            call_id="c",
            request_id=self.lives.new_id(),
        )
        answer = await self.peer.CallTool(request, timeout=_CALL_S)
        if answer.outcome != rollout_pb2.TOOL_OUTCOME_OK:
            raise RuntimeError(f"the answer to {name} is {answer}")
        return str(answer.text.decode())


class _Held(_Using):
    """By a client of the service, over a wire that is cut."""

    async def begin(self) -> None:
        spec = spec_of(self.up.mark, self.world.ttl_s, str(self.life.number))
        self.handle = await self.up.client.create(spec)
        await self._note(self.handle)
        await self.handle.start("sleep 3600")
        await self.handle.exec(LEAVE)

    async def write(self, word: str) -> str:
        result = await self.handle.exec(word_line(word))
        return result.text if result.ok else result.error_text

    async def read(self) -> str:
        return await self.handle.files.read_text("words")

    async def fork(self) -> None:
        forks = await self.handle.fork(self.life.forks)
        try:
            for number, fork in enumerate(forks):
                await self._note(fork)
                self._check(await fork.files.read_text("words"))
                await fork.exec(word_line(f"f{number}"))
        finally:
            # What was written in one is in no other: the check of the words that follows sees it.
            await asyncio.gather(*(fork.end() for fork in forks))

    async def end(self) -> None:
        await self.handle.end()

    async def leave(self) -> None:
        await self.handle.leave()

    async def _note(self, handle: SandboxHandle) -> None:
        grant = await handle.grant("chaos")
        self.lives.note(grant.sandbox.sandbox_id, grant.lease)
        self.lives.note(grant.sandbox.sandbox_id, await handle.renewed_lease())
