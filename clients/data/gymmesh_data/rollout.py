"""One stored rollout: its row's content, checked.

Rows are untrusted: they may be from a different program or machine. Keys that an export reads are
checked here or at their use, and errors name the row's place and the key.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from functools import cached_property
from typing import Any, Final

import msgspec
from msgspec import UNSET, Raw

from gymmesh_client import UserError
from gymmesh_client.rollout import work_elsewhere
from gymmesh_responses import dumps, dumps_sorted
from gymmesh_rows import (
    ASKED,
    ActorConversation,
    ModelCall,
    Row,
    RowError,
    TokenCapture,
    members_of,
    parsed,
    read_row,
)

Json = dict[str, Any]
_PARAMS: Final = "responses_create_params"
_INPUT: Final = f"{_PARAMS}.input"
# Why a rollout ended that a limit cut short.
CUT_SHORT: Final = frozenset(("MAX_STEPS", "MAX_OUTPUT_TOKENS", "CONTEXT_LENGTH", "ABORTED"))
_NO_REASON: Final = "UNSPECIFIED"


class WrongItem(Exception):
    """A problem of an item of a rollout; the reader of the rollout adds the item's place."""


class RequestBeside(msgspec.Struct, frozen=True):
    """The parts of a conversation's last request other than the items.

    Attributes:
        instructions: the request's system text outside the items; may be empty.
        tools: the request's tools, unchanged.
        params: the other parameters; those of the run replace those of a program's request.
    """

    instructions: str = ""
    tools: list[Json] = []
    params: Json = {}


class StoredRollout(msgspec.Struct, frozen=True, dict=True):
    """A stored rollout, or one actor's conversation in it.

    Attributes:
        where: the place of the row, for error messages: `rollouts.jsonl:3`.
        columns: the row.
        task_id: the task's id. If the row has none (NeMo Gym's rows), a digest of the parameters,
            so that repeats of a task still belong together.
        reward: the verdict's reward; None, and never 0, if there is none.
        calls: the model calls of the conversation; each continues the previous one.
        request: the request of the last call, without its items.
        spoken: the actor's conversation that this object represents; None: the root agent's.
        told: ids of calls whose tokens belong to a different conversation of the row.
        output_key: the row's key that has `output`, for error messages.
    """

    where: str
    columns: Row
    task_id: str
    reward: float | None
    calls: list[ModelCall]
    request: RequestBeside
    spoken: ActorConversation | None = None
    told: frozenset[str] = frozenset()
    output_key: str = "response.output"

    @property
    def instructions(self) -> str:
        """As its request has them."""
        return self.request.instructions

    @property
    def tools(self) -> list[Json]:
        """As its request has them."""
        return self.request.tools

    @cached_property
    def row(self) -> Json:
        """The row, as it is in its file."""
        row: Json = parsed(self.columns.line)
        return row

    @cached_property
    def first_items(self) -> list[Json]:
        """The Responses items that the conversation began with."""
        if self.spoken is not None:
            return self.columns.items(self.spoken.before)
        if self._begins_anew:
            return self.columns.items(self.columns.response.output[: self._said_before])
        return self.columns.items(self.columns.opening)

    @property
    def _begins_anew(self) -> bool:
        """Whether the rollout's own conversation holds nothing of what the rollout began with: a
        program's, which writes its prompt itself.
        """
        return self.spoken is None and bool(self.calls) and self.calls[0].detached

    @property
    def _said_before(self) -> int:
        """How many of the items that the calls hold are among `first_items`."""
        if self.spoken is not None:
            return self.spoken.said_before
        return self.calls[0].context_count if self._begins_anew else 0

    @cached_property
    def output(self) -> list[Json]:
        """The items after these."""
        return self.columns.items(self.unparsed_output)

    @cached_property
    def unparsed_output(self) -> list[Raw]:
        """`output` as JSON texts."""
        if self.spoken is None:
            return self.columns.response.output[self._said_before :]
        items = [item for call in self.calls for item in self.columns.part(call)]
        return items[self._said_before :]

    def answers(self) -> Iterator[tuple[int, int, ModelCall]]:
        """The beginning, the end and the call of each answer in `output`; empty answers are
        skipped.
        """
        place = -self._said_before
        for call in self.calls:
            if self.spoken is None:
                if call.first_item is UNSET:
                    continue
                place = call.first_item - self._said_before
            begins = place + call.context_count
            if call.answer_count:
                yield begins, begins + call.answer_count, call
            place += call.item_count

    @cached_property
    def agent_paths(self) -> list[list[ModelCall]]:
        """The calls of each of the root agent's conversations, in the order in which they ended;
        the last one has `calls`. Raises UserError where the calls do not form a tree.
        """
        try:
            return self.columns.agent_paths()
        except RowError as error:
            raise UserError(f"{self.where}: {error}") from None

    @cached_property
    def learned(self) -> bool:
        """Whether a trainer should learn from any call of the actor that this object represents."""
        actor = self.calls[-1].actor if self.calls else ""
        return any(call.trainable for call in self.columns.calls if call.actor == actor)

    def tokens_of(self, call: ModelCall) -> TokenCapture | None:
        """The tokens of a call of the one who speaks here; None for what is only read here."""
        if call.tokens is UNSET or call.call_id in self.told:
            return None
        if not (call.tokens.output_token_ids or call.tokens.prompt_token_ids):
            return None
        if self.spoken is None:
            own = call.trainable and not call.actor
        else:
            own = call.trainable or not self.learned
        return call.tokens if own else None

    @property
    def has_tokens(self) -> bool:
        """Whether token ids of the actor that this object represents are known."""
        return any(self.tokens_of(call) is not None for call in self.calls)

    @property
    def failed(self) -> bool:
        """Whether the rollout failed, so that there is nothing to learn from it."""
        return self.columns.failure is not UNSET or self.value("failure") is not None

    @property
    def rollout_id(self) -> str:
        """Empty where the row has none."""
        return self.columns.rollout_id

    @property
    def run_id(self) -> str:
        """Empty where the row has none."""
        return self.columns.run_id

    @property
    def environment(self) -> str:
        """Empty where the row has none."""
        return self.columns.environment

    @property
    def agent(self) -> str:
        """Empty where the row has none."""
        return self.columns.agent

    @property
    def model(self) -> str:
        """The model that answered last; empty where the row has none."""
        return self.columns.response.model

    @cached_property
    def work_elsewhere(self) -> str:
        """A note if a program's work may be in a conversation other than the main one; usually
        empty.
        """
        notes = self.columns.annotations
        asked = {one.model_call_id: bytes(one.value) for one in notes if one.key.endswith(ASKED)}
        return work_elsewhere(self.columns.calls, asked)

    @property
    def stop_reason(self) -> str:
        """Why the rollout ended; empty if the row does not have the stop reason."""
        reason = self.columns.stop_reason
        return "" if reason == _NO_REASON else reason

    @property
    def repeat_index(self) -> int:
        """The repeat's index, from 0; 0 if the row has none."""
        return self.columns.repeat_index

    def value(self, key: str) -> Any:
        """The value of a key of the row, unchanged; None if the row lacks the key."""
        found = self.columns.members.get(key)
        return None if found is None else parsed(found)

    @cached_property
    def metadata(self) -> Json:
        """The row's `metadata`; empty where it has none."""
        found = self.value("metadata")
        return found if isinstance(found, dict) else {}

    @cached_property
    def verification(self) -> Json:
        """The row's `verification`; empty where it has none."""
        found = self.value("verification")
        return found if isinstance(found, dict) else {}

    @cached_property
    def usage(self) -> Json:
        """The row's `response.usage`: the tokens of the main conversation; empty if the row has
        none.
        """
        found = members_of(bytes(self.columns.members["response"])).get("usage")
        usage = None if found is None else parsed(found)
        return usage if isinstance(usage, dict) else {}

    @cached_property
    def total_usage(self) -> Json:
        """The tokens of all model calls of the agent, in the form of `usage`: the main conversation
        and all other actors.
        """
        total = self.usage
        for actor in self.columns.actors:
            total = _with_counts(total, msgspec.to_builtins(actor.usage))
        return total


def _with_counts(usage: Json, more: Json) -> Json:
    """A usage with the counts of another one added; a value that is not a count stays as it is, and
    no key is made for a count of 0.
    """
    total = dict(usage)
    for key, value in more.items():
        if isinstance(value, dict):
            if details := _with_counts(object_of(usage, key), value):
                total[key] = details
        elif value and type(known := usage.get(key, 0)) is int:
            total[key] = known + value
    return total


def object_of(value: Json, key: str) -> Json:
    """A key that is an object; empty where it is anything else."""
    found = value.get(key)
    return found if isinstance(found, dict) else {}


def list_of(value: Json, key: str) -> list[Any]:
    """A key that is a list; empty where it is anything else."""
    found = value.get(key)
    return found if isinstance(found, list) else []


def objects_of(value: Json, key: str) -> list[Json]:
    """The objects in the list of a key; empty where it is anything else."""
    return [one for one in list_of(value, key) if isinstance(one, dict)]


def text_of(value: Json, key: str) -> str:
    """A key that is a text; empty where it is anything else."""
    found = value.get(key)
    return found if isinstance(found, str) else ""


def is_answer(item: Json) -> bool:
    """Whether an item is the model's."""
    kind = item.get("type")
    return kind in ("function_call", "reasoning") or item.get("role") == "assistant"


def stored_rollout(row: Any, where: str) -> StoredRollout:
    """Read a row of a rollout file, a JSON value; `where` is its place, for messages.

    Raises:
        UserError: the row is not a rollout's; the text names the place, the key and the fix.
    """
    return rollout_of_line(dumps(row), where)


def rollout_of_line(line: bytes, where: str) -> StoredRollout:
    """As `stored_rollout`, of a line of the file."""
    try:
        return _stored(read_row(line), where)
    except RowError as error:
        raise UserError(f"{where}: {error}") from None


def _stored(row: Row, where: str) -> StoredRollout:
    _check_objects(row.opening, "first_items" if row.first_items else _INPUT)
    _check_objects(row.response.output, "response.output")
    final = row.final_call
    named = {key: row.params.get(key) for key in ("input", "instructions", "tools")}
    return StoredRollout(
        where=where,
        columns=row,
        task_id=row.task_id or made_id(named),
        reward=row.reward,
        calls=[] if final is None else row.path(final),
        request=request_of(row, final),
    )


def request_of(row: Row, call: ModelCall | None) -> RequestBeside:
    """The parts of a call's request other than its conversation. None: those of the row's task.

    Raises:
        RowError: a value is invalid in the Responses API; the text names the key.
    """
    place, sent = _PARAMS, row.params
    if call is not None:
        sent = row.sent_params(call)
        if row.is_asked_by_program(call):
            place = f"annotations: gateway_request of call {call.call_id}"
    instructions, tools = sent.get("instructions"), sent.get("tools") or []
    if instructions is not None and not isinstance(instructions, str):
        raise RowError(f"{place}.instructions: must be a string or null")
    _check_tools(tools, f"{place}.tools")
    others = ("input", "instructions", "tools")
    params = {key: value for key, value in sent.items() if key not in others}
    return RequestBeside(instructions or "", tools, params)


def _check_objects(items: list[Raw], key: str) -> None:
    for place, item in enumerate(items):
        if not bytes(item).startswith(b"{"):
            raise RowError(f"{key}[{place}]: must be an object")


def _check_tools(tools: Any, key: str) -> None:
    if not isinstance(tools, list):
        raise RowError(f"{key}: must be a list of objects")
    for place, tool in enumerate(tools):
        if not isinstance(tool, dict):
            raise RowError(f"{key}[{place}]: must be an object")


def made_id(content: Json) -> str:
    """A task's id, derived from its content; repeats of a task have the same id."""
    return hashlib.sha256(dumps_sorted(content)).hexdigest()[:16]
