"""What a random program and its model write."""

from __future__ import annotations

import json
from collections.abc import Sequence
from random import Random

from gymmesh.responses.v1 import responses_pb2 as pb
from tests.capture_law.compare import flat
from tests.capture_law.spelling import INVALID
from tests.capture_law.truth import Segment
from tests.unit.gateway_tree.wire import call, message, reasoning

#: A long answer that models give more than once.
COMMON_ANSWER = "I look at the files of the repository first."


class Words:
    """Texts, most of them told apart by their numbers."""

    def __init__(self, rng: Random) -> None:
        self._rng = rng
        self._texts = 0

    def unique(self) -> str:
        """A text that stands nowhere else."""
        self._texts += 1
        return f"Something of its own and of nobody else, number {self._texts}."

    def user(self, text: str = "") -> pb.Item:
        """A user's message with this text, or with one of its own."""
        text = text or self.unique()
        if self._rng.random() < 0.3:
            return message("user", text[:5], text[5:])
        return message("user", text)

    def answer(self) -> list[pb.Item]:
        """What the model writes."""
        rng, items = self._rng, []
        if rng.random() < 0.4:
            items.append(reasoning(self.unique()))
        calls = rng.choice([0, 1, 1, 1, 2, 3])
        # Some backends count the calls of each answer anew.
        ids = rng.choice(["call", f"call_{self._texts}"])
        if not calls or rng.random() < 0.5:
            text = rng.choice(
                [self.unique(), self.unique(), "ok", "ok ", "Done.", "", COMMON_ANSWER]
            )
            items.append(message("assistant", text))
        for place in range(calls):
            arguments = rng.choice(
                [
                    json.dumps({"cmd": self.unique(), "n": 1.0, "a": [1, None]}).encode(),
                    b'{"cmd": "ls"}',
                    b"{}",
                    INVALID,
                ]
            )
            items.append(call(rng.choice(["shell", "edit"]), arguments, f"{ids}_{place}"))
        if rng.random() < 0.1:
            items.append(message("assistant", self.unique()))
        return items


def input_of(*wire: pb.Item, true: Sequence[pb.Item] | None = None) -> Segment:
    """Items that the program sends; `true`: as recorded, where their ids differ."""
    recorded = tuple(wire if true is None else true)
    return Segment(("in", str(flat(wire))), tuple(wire), recorded)


def written_by_program(text: str) -> Segment:
    """An answer that no model wrote."""
    items = (message("assistant", text),)
    return Segment(("foreign", text), items, items, is_foreign=True)


def text_of(items: Sequence[pb.Item]) -> str:
    """The texts of the messages, joined."""
    return "".join(item.message.text for item in items if item.HasField("message"))
