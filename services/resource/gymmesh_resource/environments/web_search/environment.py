"""Questions answered by searching and reading documents, and judged by answer and by sources."""

from __future__ import annotations

import asyncio
import logging
import math
import tempfile
from collections.abc import Callable
from contextlib import ExitStack, closing
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import msgspec

from gymmesh_resource import Environment, Rollout, Session, Task, TaskInvalid, ToolError, Verdict
from gymmesh_resource.environments.llm_judge.control import AnswerUnjudged
from gymmesh_resource.environments.llm_judge.judge import Equivalence, Judge, UnreadableReply
from gymmesh_resource.environments.llm_judge.rows import question
from gymmesh_resource.environments.nemo_rows import refuse_others
from gymmesh_resource.environments.web_search.corpus import Corpus, CorpusError, Hit, Page, TooSlow
from gymmesh_resource.environments.web_search.documents import read_documents
from gymmesh_resource.environments.web_search.hosted import HostedSearch, HostedSearchOptions
from gymmesh_resource.environments.web_search.index import build_index
from gymmesh_resource.environments.web_search.verdict import (
    AnswerMatch,
    extract_answer,
    found_documents,
    match_answer,
    recall,
)
from gymmesh_resource.errors import DefinitionError
from gymmesh_resource.expected import ANSWER, Expected, is_number
from gymmesh_resource.tools import tool
from gymmesh_resource.verdicts import Component

T = TypeVar("T")

_LOGGER = logging.getLogger("gymmesh.resource.web_search")
_EXAMPLES = Path(__file__).with_name("documents.jsonl")
_EVIDENCE = 1_000
_DOCUMENTS = 1_000
_Weight = Annotated[float, msgspec.Meta(ge=0, le=1)]


class WebSearchEnvironment(Environment[None]):
    """Questions over a collection of documents; tools: search, and fetch for reading a page.

    The reward is the weighted mean of the answer's agreement with `expected_answer` and of
    having found the `relevant_documents`.
    """

    version = "3"
    examples = "tasks.jsonl"
    models = ("judge",)

    def __init__(
        self,
        *,
        index: str | None = None,
        hosted: HostedSearchOptions | None = None,
        page_chars: Annotated[int, msgspec.Meta(ge=200, le=200_000)] = 8_000,
        search_timeout_s: Annotated[float, msgspec.Meta(gt=0, le=60)] = 5.0,
        answer_match: AnswerMatch = "normalized",
        judge: bool = False,
        answer_weight: _Weight = 1.0,
        retrieval_weight: _Weight = 0.0,
        retrieval_needs: Literal["seen", "fetched"] = "fetched",
        retrieval_counts: Literal["any", "share"] = "any",
    ) -> None:
        """Options.

        index: a file that `gym-cli env index` wrote; without it and without `hosted` there are
            a few example documents. hosted: a service that searches in place of the index; pages
            are fetched from the index only.
        page_chars: characters that one fetch shows. search_timeout_s: seconds for one search.
        answer_match: how answers are compared. judge: ask the model `judge` about an answer
            that does not agree. answer_weight, retrieval_weight: parts of the reward.
        retrieval_needs: what finding a relevant document is, to see it among the hits or to
            fetch it. retrieval_counts: whether one of them is enough.
        """
        if answer_weight + retrieval_weight <= 0:
            raise ValueError("set answer_weight or retrieval_weight to more than 0")
        self._index = index
        self._hosted = HostedSearch(hosted) if hosted else None
        self._page_chars = page_chars
        self._search_timeout_s = search_timeout_s
        self._match: AnswerMatch = answer_match
        self._judge = judge
        self._weights = {"answer": answer_weight, "retrieval": retrieval_weight}
        self._needs = retrieval_needs
        self._counts: Literal["any", "share"] = retrieval_counts
        self._corpus: Corpus | None = None
        self._opened = ExitStack()
        # Without a bound of its own: the environment's calls are bounded.
        self._places = asyncio.Semaphore(1_000)

    def called_models(self) -> tuple[str, ...]:
        """The judge, where one is asked."""
        return self.models if self._judge else ()

    def open(self) -> None:
        """Open the index, or make one of the example documents."""
        if self._index is None and self._hosted is not None:
            return
        path = Path(self._index) if self._index is not None else self._example_index()
        try:
            corpus = Corpus(path, timeout_s=self._search_timeout_s)
            self._corpus = self._opened.enter_context(closing(corpus))
        except CorpusError as error:
            raise DefinitionError(
                f"web_search: {error}. To build an index, run gym-cli env index DOCS --output FILE"
            ) from None

    async def close(self) -> None:
        """Close the index and the hosted search."""
        if self._hosted is not None:
            await self._hosted.close()
        self._corpus = None
        self._opened.close()

    def check_task(self, task: Task) -> None:
        """The row must have what the weighted parts of the reward are judged by."""
        refuse_others(task, ())
        accepted, relevant = _accepted(task), _relevant(task)
        if self._weights["answer"] and not accepted:
            raise TaskInvalid(
                "expected_answer", "is missing. The verifier compares answers with this key"
            )
        if self._weights["retrieval"] and not relevant:
            raise TaskInvalid(
                "relevant_documents",
                "is missing, but required because retrieval_weight is more than 0",
            )

    @tool
    async def search(
        self, query: str, limit: Annotated[int, msgspec.Meta(ge=1, le=20)] = 5
    ) -> dict[str, Any]:
        """Search the documents. Gives titles and passages, the best first.

        Args:
            query: words to look for; a phrase in double quotes is looked for as a whole
            limit: how many results to show, at most 20
        """
        hits = await self._search(query, limit)
        shown = [{key: part for key, part in asdict(hit).items() if part} for hit in hits]
        return {"results": shown}

    @tool
    async def fetch(
        self, url_or_id: str, offset: Annotated[int, msgspec.Meta(ge=0, le=1_000_000_000)] = 0
    ) -> dict[str, Any]:
        """Read a document.

        Args:
            url_or_id: the id or the address of a search result
            offset: the character to begin at; a result's next_offset continues it
        """
        found: Page | None = None
        if self._corpus is not None:
            look_up = partial(self._corpus.fetch, url_or_id, offset, self._page_chars)
            found = await _timed(look_up)
        if found is None:
            raise ToolError("There is no such document here. Use an id from a search result.")
        if offset and offset >= found.total:
            raise ToolError(f"The document ends at character {found.total}.")
        end = offset + len(found.text)
        shown = {"id": found.id, "url": found.url, "title": found.title, "text": found.text}
        return {
            **{key: value for key, value in shown.items() if value or key == "text"},
            "offset": offset,
            "next_offset": end if end < found.total else None,
            "total_characters": found.total,
        }

    def expected(self, task: Task) -> list[Expected]:
        """The row's answers, after the relevant documents were fetched where that is paid."""
        calls = [("fetch", {"url_or_id": one}) for one in _relevant(task)]
        calls = calls if self._weights["retrieval"] else []
        return [
            Expected(one, "number" if is_number(one) else "text", f"Answer: {ANSWER}", calls=calls)
            for one in _accepted(task)
        ]

    async def verify(self, session: Session[None], rollout: Rollout) -> Verdict:
        """Judge the answer, and what was found on the way."""
        task = rollout.task
        answer = extract_answer(rollout.answer)
        evidence: dict[str, Any] = {"extracted_answer": answer[:_EVIDENCE]}
        components: dict[str, Component] = {}
        total = math.fsum(self._weights.values())
        if self._weights["answer"]:
            value = await self._agreement(session, rollout, answer, evidence)
            components["answer"] = Component(value, self._weights["answer"] / total)
        seen, fetched = found_documents(rollout.tool_calls)
        relevant = _relevant(task)
        if relevant:
            evidence["relevant_seen"] = [one for one in relevant if one in seen | fetched]
            evidence["relevant_fetched"] = [one for one in relevant if one in fetched]
        if self._weights["retrieval"]:
            found = fetched if self._needs == "fetched" else seen | fetched
            value = recall(relevant, found, self._counts)
            components["retrieval"] = Component(value, self._weights["retrieval"] / total)
        return Verdict.weighted(components, evidence, _explained(answer, _accepted(task), evidence))

    async def _agreement(
        self, session: Session[None], rollout: Rollout, answer: str, evidence: dict[str, Any]
    ) -> float:
        accepted = _accepted(rollout.task)
        with rollout.stage("match"):
            value = match_answer(answer, accepted, self._match)
        if value == 1.0 or not self._judge or not answer:
            return value
        judge = Judge(partial(session.ask, "judge"), params={}, places=self._places)
        asked, expected = question(rollout.task), "\nor: ".join(accepted)
        with rollout.stage("judge"):
            try:
                decision = await Equivalence().ask(judge, asked, expected, answer)
            except AnswerUnjudged as error:
                evidence["failure_reason"] = str(error)
                return value
            except UnreadableReply as error:
                raise error.fault("web_search") from error
        evidence["judge_says_equivalent"] = decision.value
        return 1.0 if decision.value else value

    async def _search(self, query: str, limit: int) -> list[Hit]:
        if not query.strip():
            raise ToolError("The query is empty. Give the words to search for.")
        if self._hosted is not None:
            return await self._hosted.search(query, limit)
        if self._corpus is None:
            raise RuntimeError("the environment is not open")
        return await _timed(partial(self._corpus.search, query, limit))

    def _example_index(self) -> Path:
        _LOGGER.warning(
            "the environment web_search has no index, so it searches only a few example documents. "
            "To build an index, run gym-cli env index DOCS --output FILE"
        )
        folder = tempfile.TemporaryDirectory(prefix="gymmesh-web-search-")
        path = Path(self._opened.enter_context(folder)) / "examples.db"
        build_index(read_documents([_EXAMPLES], []), path)
        return path


def _explained(answer: str, accepted: list[str], evidence: dict[str, Any]) -> str:
    wanted = f"expected {accepted[0][:100]!r}, got {answer[:100]!r}" if accepted else ""
    found = evidence.get("relevant_fetched")
    sources = "" if found is None else f"{len(found)} relevant documents fetched"
    return "; ".join(filter(None, (wanted, sources)))


async def _timed(work: Callable[[], T]) -> T:
    try:
        # In a thread; SQLite itself ends what takes too long.
        return await asyncio.to_thread(work)
    except TooSlow:
        raise ToolError("The search took too long. Use fewer or rarer words.") from None


def _accepted(task: Task) -> list[str]:
    """The answers that count as right; none where the row has none."""
    value = task.payload.get("expected_answer")
    if value is None:
        return []
    values = value if isinstance(value, list) else [value]
    for one in values:
        if isinstance(one, bool) or not isinstance(one, str | int | float) or not str(one).strip():
            raise TaskInvalid(
                "expected_answer", "must be text, a number, or a list of texts and numbers"
            )
    if not values:
        raise TaskInvalid("expected_answer", "is an empty list")
    return [str(one) for one in values]


def _relevant(task: Task) -> list[str]:
    """Ids or addresses of the documents that hold the answer; none where the row has none."""
    value = task.payload.get("relevant_documents")
    if value is None:
        return []
    if not isinstance(value, list) or not all(isinstance(one, str) and one for one in value):
        raise TaskInvalid("relevant_documents", "must be a list of ids or addresses")
    if len(value) > _DOCUMENTS:
        raise TaskInvalid("relevant_documents", f"has more than {_DOCUMENTS} entries")
    return value
