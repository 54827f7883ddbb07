"""Compares a task file with training files."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from gymmesh.rollout.v1.rollout_pb2 import Task
from gymmesh_client import TaskProblem, TaskReader, UserError
from gymmesh_client.problems import unreadable
from gymmesh_client.tasks import TaskDefaults
from gymmesh_data.contamination.findings import CanaryFound, Matches, TaskFound
from gymmesh_data.contamination.ngrams import GramIndex, words_of
from gymmesh_data.imports import RowRefused, files_of, rows_of
from gymmesh_responses import loads, text_of

_ANY: Final = TaskDefaults("any", "any")
# Roles whose texts are the same in many tasks.
_INSTRUCTIONS: Final = ("system", "developer")
# A UUID near the word, as BIG-bench's "canary GUID …".
_CANARY: Final = re.compile(
    r"canary\W+(?:GUID\W+|string\W+)?([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})", re.IGNORECASE
)
_TEXT_FILES: Final = (".txt", ".md", ".text")
# A longer line of plain text is compared in parts, so that memory stays bounded.
_LINE_CHARACTERS: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class ContaminationOptions:
    """How tasks are compared.

    Attributes:
        words: the number of words of an n-gram, at least LEAST_WORDS.
        share: the least share of a text's n-grams that makes its task contaminated, above 0.
        shared_by: an n-gram that more tasks have is ignored.
        canaries: texts to look for, in addition to the canaries of the task file.
    """

    words: int = 13
    share: float = 0.5
    shared_by: int = 5
    canaries: tuple[str, ...] = ()


@dataclass(slots=True)
class Contamination:
    """The result of `find_contamination`.

    Attributes:
        tasks: the number of tasks in the file.
        found: the tasks whose texts are in the training files.
        canaries: the canaries found in the training files; looked_for: how many were searched.
        texts: how many training texts were compared.
        shared: n-grams that were ignored because many tasks have them.
        not_compared: tasks without a text to compare.
        refused: training rows that are not JSON, with the reason.
        unread: by ending, how many files of training folders were not read.
    """

    tasks: int = 0
    found: list[TaskFound] = field(default_factory=list)
    canaries: list[CanaryFound] = field(default_factory=list)
    looked_for: int = 0
    texts: int = 0
    shared: int = 0
    not_compared: int = 0
    refused: list[str] = field(default_factory=list)
    unread: dict[str, int] = field(default_factory=dict)


def find_contamination(
    tasks: Path, training: Sequence[Path], options: ContaminationOptions | None = None
) -> Contamination:
    """Find the tasks of a file whose texts are in training files.

    Reads the training files once. Memory grows with the task file.

    Raises:
        UserError: a file cannot be read, a row of the task file is wrong, or it has no task.
        ConfigError: pyarrow is missing for a Parquet file.
    """
    options = options or ContaminationOptions()
    ids, index, canaries = _indexed(tasks, options)
    made = Contamination(len(ids), looked_for=len(canaries), shared=index.shared)
    made.not_compared = len(ids) - len({part.task for part in index.parts})
    matches, missing = Matches(index), dict.fromkeys(canaries)
    for file in _training_files(training, made.unread):
        for where, text in _texts_of(file, made.refused):
            made.texts += 1
            matches.add(words_of(text), where)
            for canary in [one for one in missing if one in text]:
                del missing[canary]
                made.canaries.append(CanaryFound(canary, where))
    made.found = matches.found(ids, options.share)
    return made


def _training_files(training: Sequence[Path], unread: dict[str, int]) -> list[Path]:
    """The training files; counts the other files of their folders in `unread`."""
    files: list[Path] = []
    for path in training:
        read = files_of(path, also=_TEXT_FILES)
        files += read
        if path.is_dir():
            others = {one for one in path.rglob("*") if one.is_file()}.difference(read)
            endings = Counter(one.suffix or "no ending" for one in others)
            for ending, count in sorted(endings.items()):
                unread[ending] = unread.get(ending, 0) + count
    return files


def _indexed(
    tasks: Path, options: ContaminationOptions
) -> tuple[list[str], GramIndex, dict[str, None]]:
    """The ids of the tasks, their n-grams, and the canaries to look for."""
    ids: list[str] = []
    index, canaries = GramIndex(options.words), dict.fromkeys(options.canaries)
    for entry in TaskReader(_ANY).read(tasks):
        if isinstance(entry, TaskProblem):
            raise UserError(entry.at(tasks))
        for name, text in _parts(entry.task):
            canaries |= dict.fromkeys(_CANARY.findall(text))
            if name == "canary":
                canaries[text] = None
            else:
                index.add(len(ids), name, text)
        ids.append(entry.task.task_id)
    if not ids:
        raise UserError(f"{tasks}: no tasks found")
    index.build(options.shared_by)
    return ids, index, canaries


def _parts(task: Task) -> Iterator[tuple[str, str]]:
    """The texts of a task that say which task it is."""
    prompt = [
        text_of(item)
        for item in task.params.input
        if item.WhichOneof("kind") == "message" and item.message.role not in _INSTRUCTIONS
    ]
    yield "prompt", "\n".join([task.params.input_text, *prompt])
    if task.payload_json:
        payload = loads(task.payload_json)
        assert isinstance(payload, dict)
        for key, value in payload.items():
            for text in _strings(value):
                yield key, text


def _texts_of(file: Path, refused: list[str]) -> Iterator[tuple[str, str]]:
    """The texts of a training file with their places; rows that are not JSON go to `refused`."""
    if file.suffix in _TEXT_FILES:
        yield from _plain(file)
        return
    for where, row in rows_of(file):
        if isinstance(row, RowRefused):
            refused.append(f"{where}: {row}")
            continue
        for text in _strings(row):
            yield where, text


def _plain(file: Path) -> Iterator[tuple[str, str]]:
    """Paragraphs of a plain text: lines up to an empty one."""
    try:
        with file.open(encoding="utf-8", errors="replace") as lines:
            begun, paragraph, size = 1, list[str](), 0
            for number, line in enumerate(lines, 1):
                if line.isspace() or size > _LINE_CHARACTERS:
                    if paragraph:
                        yield f"{file}:{begun}", "".join(paragraph)
                    paragraph, size = [], 0
                if not paragraph:
                    begun = number
                if not line.isspace():
                    paragraph.append(line)
                    size += len(line)
            if paragraph:
                yield f"{file}:{begun}", "".join(paragraph)
    except OSError as error:
        raise unreadable(file, error) from None


def _strings(value: Any) -> Iterator[str]:
    """All texts in a JSON value, at any depth."""
    stack = [value]
    while stack:
        one = stack.pop()
        if isinstance(one, str):
            yield one
        elif isinstance(one, dict):
            stack.extend(reversed(one.values()))
        elif isinstance(one, list):
            stack.extend(reversed(one))
