"""The tasks and canaries that were found in training files. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field

from gymmesh_data.contamination.ngrams import GramIndex


@dataclass(frozen=True, slots=True)
class TaskFound:
    """A task with a part whose n-grams are in the training files.

    Attributes:
        task_id: the task's id.
        part: `prompt`, or the key of the row whose text was found.
        share: the share of the part's n-grams that were found, from 0 to 1.
        where: the first place with a match, as file:line.
    """

    task_id: str
    part: str
    share: float
    where: str


@dataclass(frozen=True, slots=True)
class CanaryFound:
    """A canary that is in a training file, and its first place there."""

    canary: str
    where: str


@dataclass(slots=True)
class Matches:
    """The n-grams found so far for each part of a task, and the first place of each part."""

    index: GramIndex
    grams: dict[int, set[int]] = field(default_factory=dict)
    places: dict[int, str] = field(default_factory=dict)

    def add(self, words: list[str], where: str) -> None:
        """Compare a training text from the place `where`."""
        for part, gram in self.index.matches(words):
            self.grams.setdefault(part, set()).add(gram)
            self.places.setdefault(part, where)

    def found(self, ids: list[str], least: float) -> list[TaskFound]:
        """The tasks with a part whose share is at least `share`, in the order of the file. Each
        task is reported with its part of the highest share.
        """
        best: dict[int, TaskFound] = {}
        for place, grams in self.grams.items():
            part = self.index.parts[place]
            share = len(grams) / len(part.grams)
            known = best.get(part.task)
            if share >= least and (known is None or share > known.share):
                best[part.task] = TaskFound(ids[part.task], part.name, share, self.places[place])
        return [best[task] for task in sorted(best)]
