"""One stored rollout: what its row says, checked.

Rows are untrusted: they may come from another program or another machine. What an export reads of
a row is checked here or where it is used, and a mistake names the row's place and its key.
"""

from __future__ import annotations

import hashlib
from typing import Any, Final

import msgspec

from gymmesh_client import UserError
from gymmesh_responses import dumps, dumps_sorted
from gymmesh_rows import RowError, nemo_row, read_row

Json = dict[str, Any]
_PARAMS: Final = "responses_create_params"
_TOOLS: Final = f"{_PARAMS}.tools"
_INPUT: Final = f"{_PARAMS}.input"
# Why a rollout ended that a limit cut short.
CUT_SHORT: Final = frozenset(("MAX_STEPS", "MAX_OUTPUT_TOKENS", "CONTEXT_LENGTH", "ABORTED"))
# What a collector puts to the last item of a model call.
TOKEN_KEYS: Final = ("prompt_token_ids", "generation_token_ids", "generation_log_probs")
_ONLY_OBJECTS: Final = frozenset((dict,))


class WrongItem(Exception):
    """What is wrong with an item of a rollout; the reader puts the item's place before it."""


class StoredRollout(msgspec.Struct, frozen=True):
    """A rollout as a row has it.

    Attributes:
        where: the place of the row, for messages: `rollouts.jsonl:3`.
        task_id: the task's id; made of its parameters where the row has none (NeMo Gym's rows), so
            that repeats of a task still belong together.
        rollout_id: empty where the row has none.
        reward: the verdict's; None where there is none, which is not 0.
        first_items: the Responses items that the conversation began with.
        output: the items after these.
        instructions: the system text beside the items; empty where there is none.
        tools: the tools as the request had them.
        output_key: where in the row `output` is, for messages.
    """

    where: str
    row: Json
    task_id: str
    rollout_id: str
    reward: float | None
    first_items: list[Json]
    output: list[Json]
    instructions: str
    tools: list[Json]
    output_key: str = "response.output"
    source: Json | None = None

    @property
    def stored(self) -> Json:
        """The row as it stands in its file, where `row` is its form with whole token lists."""
        return self.row if self.source is None else self.source

    @property
    def failed(self) -> bool:
        """Whether the rollout failed, so that there is nothing to learn from it."""
        return self.row.get("failure") is not None

    def text(self, key: str) -> str:
        """A key of the row that is a text; empty where it is anything else."""
        return text_of(self.row, key)

    @property
    def repeat_index(self) -> int:
        """Which repeat of its task it is; 0 where the row does not say."""
        value = self.row.get("repeat_index")
        return value if type(value) is int else 0

    @property
    def metadata(self) -> Json:
        """The row's `metadata`; empty where it has none."""
        return object_of(self.row, "metadata")


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
    """Whether the model said an item."""
    kind = item.get("type")
    return kind in ("function_call", "reasoning") or item.get("role") == "assistant"


def stored_rollout(row: Any, where: str) -> StoredRollout:
    """Read a row of a rollout file, a JSON value; `where` is its place, for messages.

    Raises:
        UserError: it is no rollout's row; the text names the place, the key and the fix.
    """
    if not isinstance(row, dict):
        raise UserError(f"{where}: must be a JSON object, a row as gym-cli collect writes it")
    source = None
    if isinstance(row.get("calls"), list):
        source, row = row, whole_lists(dumps(row), where)
    params = _object(row, _PARAMS, where)
    response = _object(row, "response", where)
    if "first_items" in row:
        first_items = items_in(row["first_items"], where, "first_items")
    else:
        first_items = _input(params.get("input"), where)
    instructions = params.get("instructions")
    if instructions is not None and not isinstance(instructions, str):
        raise UserError(f"{where}: {_PARAMS}.instructions: must be a text or null")
    task_id = row.get("task_id")
    given = {key: params.get(key) for key in ("input", "instructions", "tools")}
    return StoredRollout(
        where=where,
        row=row,
        task_id=task_id if isinstance(task_id, str) and task_id else made_id(given),
        rollout_id=str(row.get("rollout_id") or ""),
        reward=_reward(row, where),
        first_items=first_items,
        output=items_in(response.get("output", []), where, "response.output"),
        instructions=instructions or "",
        tools=items_in(params.get("tools") or [], where, _TOOLS),
        source=source,
    )


def whole_lists(line: bytes, where: str) -> Json:
    """A row of this contract in the form with whole token lists. Raises UserError."""
    try:
        return nemo_row(read_row(line))
    except RowError as error:
        raise UserError(f"{where}: {error}") from None


def _object(row: Json, key: str, where: str) -> Json:
    value = row.get(key)
    if not isinstance(value, dict):
        said = "is missing" if key not in row else "must be an object"
        raise UserError(f"{where}: {key}: {said}; this is no row of a rollout")
    return value


def _input(value: Any, where: str) -> list[Json]:
    if isinstance(value, str):
        return [{"type": "message", "role": "user", "content": value}]
    return items_in([] if value is None else value, where, _INPUT)


def items_in(value: Any, where: str, key: str) -> list[Json]:
    """A list of items, checked. Raises UserError for anything else."""
    if not isinstance(value, list):
        raise UserError(f"{where}: {key}: must be a list of objects")
    if not _ONLY_OBJECTS.issuperset(map(type, value)):
        place = next(place for place, item in enumerate(value) if type(item) is not dict)
        raise UserError(f"{where}: {key}[{place}]: must be an object")
    return value


def _reward(row: Json, where: str) -> float | None:
    value = row.get("reward")
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise UserError(f"{where}: reward: must be a number or null")
    try:
        return float(value)
    except OverflowError:
        raise UserError(f"{where}: reward: is beyond the range of a number") from None


def made_id(content: Json) -> str:
    """A task's id, made of its content: the same for its repeats."""
    return hashlib.sha256(dumps_sorted(content)).hexdigest()[:16]
