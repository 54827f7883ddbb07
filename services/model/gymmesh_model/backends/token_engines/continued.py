"""An answer that a server of token ids samples in parts, as new weights interrupt it. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from gymmesh_model.backends.calls import WeightsInForce
from gymmesh_model.backends.generation import Generation, SamplingParams
from gymmesh_model.tokens import SideRows

_MOST_SEED = 2**63


class ContinuedAnswer:
    """The parts of one answer, each behind the tokens of those before it.

    A stop text that would span two parts ends neither: the server compares it with each alone.
    """

    def __init__(self, prompt: list[int], params: SamplingParams) -> None:
        self._prompt = prompt
        self._params = params
        self._parts: list[Generation] = []
        self._ids: list[int] = []
        self._spans: list[tuple[int, int, str]] = []
        self._rows: SideRows | None = None
        #: Whether there are tokens whose weights nobody knows.
        self.is_unknown = False

    @property
    def prompt(self) -> list[int]:
        """What the next part goes on from."""
        return [*self._prompt, *self._ids] if self._ids else self._prompt

    @property
    def params(self) -> SamplingParams:
        """How the next part is sampled. Its seed is another one: the same would draw the same."""
        done = len(self._ids)
        if not done:
            return self._params
        most, seed = self._params.max_tokens, self._params.seed
        return replace(
            self._params,
            max_tokens=None if most is None else most - done,
            seed=None if seed is None else (seed + done) % _MOST_SEED,
        )

    @property
    def is_whole(self) -> bool:
        """Whether no part is missing: the last one ended, or has used all tokens."""
        most = self._params.max_tokens
        return not self._parts[-1].aborted or (most is not None and len(self._ids) >= most)

    def rows_end(self, first: int | None) -> int | None:
        """The first token whose row of side data no part has. first: of the whole answer; None:
        none are wanted.
        """
        return first if first is None or self._rows is None else self._rows.end

    def add(self, part: Generation, seen: Sequence[WeightsInForce]) -> None:
        """A further part. seen: the weights that may have sampled it, the oldest first."""
        self._parts.append(part)
        for rows in part.side_data:
            self._rows = rows if self._rows is None else self._rows.followed_by(rows)
        start, size = len(self._ids), len(part.token_ids)
        self._ids.extend(part.token_ids)
        if not size:
            return
        if part.weights and not (seen and seen[0].adapter):
            for version, first, *adapter in part.weights:
                self._span(version, start + first, *adapter)
            return
        if not seen:
            self.is_unknown = True
        # Which token was the first of later weights is not known: none passes for fresher.
        for place, one in enumerate(seen):
            self._span(one.version, start + (size if place else 0), one.adapter)

    def generation(self) -> Generation:
        """The whole answer. Of several parts, `weights` say who sampled what, if that is known."""
        *earlier, last = self._parts
        if not earlier:
            return replace(last, aborted=False, finished=False) if last.aborted else last
        shown = [one.distribution for one in self._parts if one.token_ids]
        return replace(
            last,
            token_ids=self._ids,
            logprobs=[value for part in self._parts for value in part.logprobs],
            finished=False if last.aborted else last.finished,
            weights=() if self.is_unknown else tuple(self._spans),
            distribution=shown[0] if shown else last.distribution,
            side_data=() if self._rows is None else (self._rows,),
            aborted=False,
        )

    def _span(self, version: int, first: int, adapter: str = "") -> None:
        if self._spans:
            before, _, other = self._spans[-1]
            if (before, other) == (version, adapter):
                return
        self._spans.append((version, first, adapter))
