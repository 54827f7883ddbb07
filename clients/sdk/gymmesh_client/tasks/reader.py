"""Task files: JSON lines, one task each, read one at a time.

A row has NeMo Gym's format: `responses_create_params` and any other keys, which are the task's
payload for the verifier. `prompt`, a text or a list of messages, may replace
`responses_create_params`. gymmesh reads five optional keys, which are not part of the payload:
`task_id`, `environment`, `agent`, `seed` and `tags`. A `task_id` that is a whole number becomes an
id as text, and also stays in the payload. An `environment` or `agent` that is an object or a list
names nothing here and belongs to the verifier's payload.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, Final

from gymmesh.rollout.v1 import rollout_pb2
from gymmesh_client.problems import TaskProblem, unreadable
from gymmesh_client.tasks.checks import (
    NAMING_KEYS,
    check_input,
    check_names,
    check_params,
    check_row,
    named,
)
from gymmesh_client.tasks.images import image_mistakes, with_image_files
from gymmesh_client.tasks.other_formats import refuse_other_formats
from gymmesh_responses import (
    CodecError,
    JsonValue,
    dumps,
    dumps_sorted,
    loads_line,
    params_from_json,
)

OWN_KEYS: Final = ("task_id", "environment", "agent", "seed", "tags")
PARAMS_KEY: Final = "responses_create_params"
PROMPT_KEY: Final = "prompt"
MAX_ROW_BYTES: Final = 64 * 1024 * 1024
"""A longer line would not fit a message of the mesh."""
# NeMo Gym's key for the agent server of a row, and the name that our exports give to any agent.
_AGENT_REF: Final = "agent_ref"
_ANY_AGENT: Final = "gymmesh_agent"
# What distinguishes identical rows that name no id.
_COPY: Final = re.compile(r"t-[0-9a-f]{32}-\d+")


@dataclass(frozen=True, slots=True)
class TaskRow:
    """A task, its line (from 1), whether its id depends on earlier rows, where in the file its row
    begins, and the agent in the row's `agent_ref` if a different agent runs the task.
    """

    line: int
    task: rollout_pb2.Task
    renamed: bool = False
    offset: int = 0
    other_agent: str = ""


@dataclass(frozen=True, slots=True)
class TaskDefaults:
    """The environment and agent for rows that name none; empty: each row must name one."""

    environment: str = ""
    agent: str = ""


@dataclass(slots=True)
class TaskReader:
    """Reads task files.

    Attributes:
        defaults: the environment and agent of rows that name none.
        environments: the names of existing environments; None: not known, so names are not checked.
        agents: the names of existing agents; None: not known, so names are not checked.
        number_repeated_ids: append `-2`, `-3` … to a repeated id instead of reporting a mistake.
        refuse_other_agents: report a row whose `agent_ref` names a different agent than runs it.
    """

    defaults: TaskDefaults = field(default_factory=TaskDefaults)
    environments: Collection[str] | None = None
    agents: Collection[str] | None = None
    number_repeated_ids: bool = False
    refuse_other_agents: bool = False

    def read(self, path: Path) -> Iterator[TaskRow | TaskProblem]:
        """Yield each row's task, or each of its problems.

        Keeps one row in memory, and 16 bytes for each earlier row (the digest of its id), so memory
        does not grow with the size of rows. Blank lines are skipped.

        Raises:
            UserError: the file cannot be read.
        """
        seen: dict[bytes, int] = {}
        copies: dict[bytes, int] = {}
        try:
            with path.open("rb") as file:
                refuse_other_formats(file, path)
                folder = path.parent
                for line, offset, raw in _lines(file):
                    yield from self._row(line, raw, seen, copies, offset, folder)
        except OSError as error:
            raise unreadable(path, error) from None

    def row(self, line: int, raw: bytes, folder: Path | None = None) -> TaskRow | TaskProblem:
        """One row, or the first of its problems; it is not compared with other rows.

        folder: the folder of the row's file, for images that the row names by a path; None: paths
            stay.
        """
        return next(self._row(line, raw, {}, {}, 0, folder))

    def _row(
        self,
        line: int,
        raw: bytes,
        seen: dict[bytes, int],
        copies: dict[bytes, int],
        offset: int,
        folder: Path | None,
    ) -> Iterator[TaskRow | TaskProblem]:
        try:
            row = _parse(raw)
            problems = [TaskProblem(line, key, text) for key, text in self._problems(row, folder)]
            if problems:
                yield from problems
                return
            task = self._task(row, copies, folder)
        except CodecError as error:
            yield TaskProblem(line, "", f"{error}; each line must be one JSON object")
            return
        name = task.task_id
        first = seen.setdefault(_digest(name.encode()), line)
        if first != line and not self.number_repeated_ids:
            sentence = (
                f"line {first} already has the id {name!r}. Ids must be unique. To number repeated "
                "ids, add --number-repeated-ids"
            )
            yield TaskProblem(line, "task_id", sentence)
            return
        other_agent = _other_agent(row, task.agent)
        if other_agent and self.refuse_other_agents:
            sentence = (
                f"names agent {other_agent!r}, but agent {task.agent!r} would run the row; set the "
                'row\'s key "agent"'
            )
            yield TaskProblem(line, f"{_AGENT_REF}.name", sentence)
            return
        renamed = bool(_COPY.fullmatch(name))
        if first != line:
            task.task_id, renamed = _numbered(name, line, seen, copies), True
        yield TaskRow(line, task, renamed, offset, other_agent)

    def _problems(self, row: JsonValue, folder: Path | None) -> Iterator[tuple[str, str]]:
        found = list(check_row(row))
        yield from found
        if any(key in ("", PARAMS_KEY) for key, _ in found):
            return
        if PARAMS_KEY in row:
            yield from check_params(row[PARAMS_KEY])
        else:
            for key, problem in check_input(_params(row)):
                yield key.replace(f"{PARAMS_KEY}.input", PROMPT_KEY, 1), problem
        if folder is not None:
            place = f"{PARAMS_KEY}.input" if PARAMS_KEY in row else PROMPT_KEY
            yield from image_mistakes(_params(row).get("input"), place, folder)
        for key, default, known in (
            ("environment", self.defaults.environment, self.environments),
            ("agent", self.defaults.agent, self.agents),
        ):
            if not any(bad == key for bad, _ in found):
                yield from check_names(key, named(row, key), default, known)

    def _task(
        self, row: dict[str, JsonValue], copies: dict[bytes, int], folder: Path | None
    ) -> rollout_pb2.Task:
        conversation = PARAMS_KEY if PARAMS_KEY in row else PROMPT_KEY
        payload = {
            key: value
            for key, value in row.items()
            if key != conversation and (key not in OWN_KEYS or _is_verifiers(key, value))
        }
        given = row.get("task_id")
        task = rollout_pb2.Task(
            task_id=_content_id(row, copies) if given is None else str(given),
            environment=named(row, "environment") or self.defaults.environment,
            agent=named(row, "agent") or self.defaults.agent,
            params=params_from_json(_params(row, folder)),
            payload_json=dumps(payload),
            tags=row.get("tags") or {},
        )
        if row.get("seed") is not None:
            task.seed = row["seed"]
        return task


def _params(row: dict[str, JsonValue], folder: Path | None = None) -> dict[str, JsonValue]:
    """The Responses parameters of a row that was checked, with the images in this folder."""
    params: dict[str, JsonValue] = (
        row[PARAMS_KEY] if PARAMS_KEY in row else {"input": row[PROMPT_KEY]}
    )
    if folder is None or type(params.get("input")) is not list:
        return params
    return {**params, "input": with_image_files(params["input"], folder)}


def _other_agent(row: dict[str, JsonValue], agent: str) -> str:
    """The agent that `agent_ref` names, where it is not the one that runs the row and the row does
    not choose that one itself.
    """
    ref = row.get(_AGENT_REF)
    name = ref.get("name") if isinstance(ref, dict) else None
    if not isinstance(name, str) or name in ("", agent, _ANY_AGENT) or named(row, "agent"):
        return ""
    return name


def _lines(file: BinaryIO) -> Iterator[tuple[int, int, bytes]]:
    """The lines that are not blank: number (from 1), place in the file, and bytes."""
    number = offset = 0
    while raw := file.readline(MAX_ROW_BYTES + 1):
        begin, number = offset, number + 1
        offset += len(raw)
        if number == 1:
            raw = raw.removeprefix(b"\xef\xbb\xbf")
        while len(raw) > MAX_ROW_BYTES and not raw.endswith(b"\n"):
            rest = file.readline(MAX_ROW_BYTES)
            offset += len(rest)
            if not rest or rest.endswith(b"\n"):
                break
        if raw.strip():
            yield number, begin, raw


def _parse(raw: bytes) -> JsonValue:
    if len(raw) > MAX_ROW_BYTES:
        raise CodecError(f"longer than {MAX_ROW_BYTES // 2**20} MiB")
    return loads_line(raw)


def _is_verifiers(key: str, value: JsonValue) -> bool:
    """Whether one of our own keys has a value that the verifier is to see as it is."""
    if key == "task_id":
        return type(value) is int
    return key in NAMING_KEYS and type(value) in (dict, list)


def _numbered(name: str, line: int, seen: dict[bytes, int], copies: dict[bytes, int]) -> str:
    """The next id for a row whose own was there before; no row before it has it."""
    digest = _digest(b"\0" + name.encode())  # apart from the digests of rows
    copy = copies.get(digest, 1)
    while True:
        copy += 1
        numbered = f"{name}-{copy}"
        if seen.setdefault(_digest(numbered.encode()), line) == line:
            copies[digest] = copy
            return numbered


def _digest(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=16).digest()


def _content_id(row: dict[str, JsonValue], copies: dict[bytes, int]) -> str:
    """An id made of the row's content; a suffix distinguishes identical rows."""
    digest = _digest(dumps_sorted(row))
    copy = copies.get(digest, 0)
    copies[digest] = copy + 1
    name = f"t-{digest.hex()}"
    return f"{name}-{copy + 1}" if copy else name
