"""Texts as words, and the n-grams of tasks by which a training text is compared with them. Pure.

An n-gram is n words in a row, without case, punctuation or layout, as in T. Brown et al., "Language
Models are Few-Shot Learners", arXiv:2005.14165, appendix C, which takes n = 13.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from operator import itemgetter

_WORD = re.compile(r"\w+")
# The shortest text that is compared whole, in words: a shorter one is found anywhere.
LEAST_WORDS = 8


def words_of(text: str) -> list[str]:
    """The words of a text: letters and digits, in Unicode's form NFKC, without case."""
    return _WORD.findall(unicodedata.normalize("NFKC", text).casefold())


@dataclass(frozen=True, slots=True)
class TaskText:
    """One text of a task: its prompt, or a text that its verifier reads.

    Attributes:
        task: the task's place in its file, from 0.
        name: `prompt`, or the key of the row.
        grams: the hashes of its n-grams.
    """

    task: int
    name: str
    grams: frozenset[int]


@dataclass(slots=True)
class GramIndex:
    """The n-grams of all texts of all tasks.

    If many tasks share an n-gram, such as an instruction at the beginning of all prompts, a match
    says nothing about a single task. The words of such n-grams are removed, and each stretch
    between them is compared as a text of its own.

    Attributes:
        size: the words of an n-gram. A shorter stretch is compared whole, down to LEAST_WORDS.
        parts: the texts that can be compared, once `build` was called.
        shared: how many n-grams are shared by many tasks.
    """

    size: int
    parts: list[TaskText] = field(default_factory=list)
    shared: int = 0
    _texts: list[tuple[int, str, list[str]]] = field(default_factory=list)
    _parts_of: dict[int, list[int]] = field(default_factory=dict)
    # By the number of words of an n-gram, its first two: what a window must begin with.
    _begins: dict[int, set[tuple[str, str]]] = field(default_factory=dict)

    def add(self, task: int, name: str, text: str) -> None:
        """Add a text of a task."""
        words = words_of(text)
        if len(words) >= LEAST_WORDS:
            self._texts.append((task, name, words))

    def build(self, most: int) -> None:
        """Index the texts that were added, without the n-grams that more than `most` tasks have."""
        shared = self._shared(most)
        self.shared = len(shared)
        for task, name, words in self._texts:
            grams = {gram for part in self._stretches(words, shared) for gram in self._grams(part)}
            for gram in grams:
                self._parts_of.setdefault(gram, []).append(len(self.parts))
            if grams:
                self.parts.append(TaskText(task, name, frozenset(grams)))
        self._texts.clear()

    def matches(self, words: Sequence[str]) -> Iterator[tuple[int, int]]:
        """The n-grams that a training text shares with parts: the part's place, and the n-gram."""
        for size, begins in self._begins.items():
            for at in range(len(words) - size + 1):
                if (words[at], words[at + 1]) in begins:
                    gram = _hash(words[at : at + size])
                    for place in self._parts_of.get(gram, ()):
                        yield place, gram

    def _shared(self, most: int) -> set[int]:
        tasks_of: dict[int, set[int]] = {}
        for task, _, words in self._texts:
            for at in range(len(words) - self.size + 1):
                tasks = tasks_of.setdefault(_hash(words[at : at + self.size]), set())
                if len(tasks) <= most:
                    tasks.add(task)
        return {gram for gram, tasks in tasks_of.items() if len(tasks) > most}

    def _stretches(self, words: list[str], shared: set[int]) -> Iterator[list[str]]:
        """The words outside shared n-grams, cut where these were."""
        kept = [True] * len(words)
        for at in range(len(words) - self.size + 1):
            if _hash(words[at : at + self.size]) in shared:
                kept[at : at + self.size] = [False] * self.size
        for keep, found in groupby(zip(words, kept, strict=True), key=itemgetter(1)):
            if keep:
                yield [word for word, _ in found]

    def _grams(self, words: list[str]) -> Iterator[int]:
        size = min(self.size, len(words))
        if size < LEAST_WORDS:
            return
        begins = self._begins.setdefault(size, set())
        for at in range(len(words) - size + 1):
            begins.add((words[at], words[at + 1]))
            yield _hash(words[at : at + size])


def _hash(words: Sequence[str]) -> int:
    """64 bits of an n-gram, the same throughout a process."""
    return hash(" ".join(words))
