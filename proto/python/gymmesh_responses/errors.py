"""The codec's only error. It names the place in the document."""

from __future__ import annotations

import json


class CodecError(ValueError):
    """A document or message that cannot be converted; the text is one sentence.

    Attributes:
        problem: what is wrong, without the place.
        path: keys (`str`) and indices (`int`) from the document's root to the place.
    """

    def __init__(self, problem: str, path: tuple[str | int, ...] = ()) -> None:
        self.problem = problem
        self.path = path
        super().__init__(f"{_spell(path)}: {problem}" if path else problem)

    def within(self, step: str | int) -> CodecError:
        """The same error, seen from one container further out."""
        return CodecError(self.problem, (step, *self.path))


def _spell(path: tuple[str | int, ...]) -> str:
    spelled = ""
    for step in path:
        if isinstance(step, int):
            spelled += f"[{step}]"
        elif step.isidentifier():
            spelled += f".{step}" if spelled else step
        else:
            spelled += f"[{json.dumps(step)}]"
    return spelled
