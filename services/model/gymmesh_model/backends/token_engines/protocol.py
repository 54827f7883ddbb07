"""What a server of token ids is sent, and what comes back, as an engine sees it. Pure.

The ids of an answer are those that the server sampled, never ids of its text: an answer without
them is refused.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from gymmesh_model.backends.generation import Generation, SamplingParams
from gymmesh_model.backends.scores import TokenScores
from gymmesh_model.backends.token_engines.answers import UNKNOWN, Json, LogprobsOf
from gymmesh_model.tokens import SideRows


class TokenProtocol(ABC):
    """One server's requests and answers.

    Attributes:
        path: where it samples, see `PoolEndpoint.at`.
        abort_path: where a request is aborted by its id; empty: closing its connection does it.
        reports_last_version: whether an answer may only say which weights were there at its end.
    """

    path: ClassVar[str]
    abort_path: ClassVar[str] = ""
    reports_last_version: ClassVar[bool] = False

    @property
    def side_data(self) -> Sequence[str]:
        """The names of side data that the server's answers can have."""
        return ()

    @abstractmethod
    def request(
        self,
        prompt: Sequence[int],
        params: SamplingParams,
        request_id: str,
        *,
        logprobs: bool,
        adapter: str = "",
        experts_from: int | None = None,
    ) -> Json:
        """The body that asks for an answer to a prompt.

        logprobs: whether they are wanted. adapter: the name of the adapter that answers; empty: the
        model itself. experts_from: the first token whose routed experts are wanted; None: none are.
        """

    @abstractmethod
    def finish_reason(self, answer: Mapping[str, Any]) -> object:
        """Why the answer ended, in the server's words. Raises AnswerInvalid."""

    @abstractmethod
    def generation(
        self, answer: Mapping[str, Any], prompt: Sequence[int], params: SamplingParams
    ) -> Generation:
        """What the server sampled, an aborted answer's beginning too. Raises AnswerInvalid for what
        is not exact, and MeshError for an answer that the server says is a failure.
        """

    @abstractmethod
    def score_request(
        self, prompt: Sequence[int], after: Sequence[int], request_id: str, *, adapter: str = ""
    ) -> Json:
        """The body that asks for the log probabilities of ids after a prompt."""

    @abstractmethod
    def scores(
        self, answer: Mapping[str, Any], prompt: Sequence[int], after: Sequence[int]
    ) -> TokenScores:
        """The scores in the answer to `score_request`. Raises AnswerInvalid."""

    @abstractmethod
    def routed_experts(
        self, answer: Mapping[str, Any], prompt: int, sampled: int, first: int
    ) -> SideRows:
        """The routed experts in an answer. Raises AnswerInvalid, also where there are none.

        prompt, sampled: how many tokens. first: as the request's `experts_from`.
        """

    def probe(self) -> Json | None:
        """The body of one cheap request whose answer shows which distribution the server's log
        probabilities are of; None where that needs none.
        """
        return None

    def probed(self, answer: Mapping[str, Any]) -> LogprobsOf:
        """What the answer to `probe` shows. Raises AnswerInvalid."""
        return UNKNOWN
