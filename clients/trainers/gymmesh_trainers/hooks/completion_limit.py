"""Ends a rollout where the trainer's longest completion ends."""

from __future__ import annotations

from gymmesh.errors.v1 import errors_pb2 as errors
from gymmesh_runtime.errors import MeshError


class CompletionLimit:
    """The most tokens behind the first prompt of a path: the model's and the environment's.

    One for each rollout. A call that continues a path has what is left of it; a call that begins
    anew (another actor, a rewritten history) begins another path.

    Args:
        most: tokens.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._paths: list[list[int]] = []  # the first prompts

    def room(self, prompt: list[int]) -> int:
        """How many tokens a call with this prompt may sample, at least 1.

        Raises MeshError MODEL_CONTEXT_EXCEEDED where there is no room left: the rollout is then
        complete, cut by a limit of the policy's, and is judged.
        """
        first = next((one for one in self._paths if prompt[: len(one)] == one), None)
        if first is None:
            first = prompt
            self._paths.append(prompt)
        room = self._most - (len(prompt) - len(first))
        if room < 1:
            raise MeshError(
                errors.ERROR_REASON_MODEL_CONTEXT_EXCEEDED,
                f"the completion has {len(prompt) - len(first)} tokens, but the trainer accepts "
                f"at most {self._most}. Raise the trainer's limit of completion tokens",
            )
        return room
