"""The formats that can be imported, and how a row of each is read. Pure.

| name         | a row is                                                                        |
|--------------|---------------------------------------------------------------------------------|
| hf           | of a data set: columns by name, the rest along                                    |
| messages     | `messages`, or `prompt` and `completion`, as trainers have them                   |
| openai-evals | `item` and perhaps `sample`; an output item; or `input` and `ideal`               |
| verifiers    | a line of its `results.jsonl`                                                     |
| inspect      | a sample of a log                                                                 |
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from gymmesh_data.imports.answers import final_answer
from gymmesh_data.imports.choices import ChoiceRow, choice_row
from gymmesh_data.imports.imported import Imported, number_of, reward_of
from gymmesh_data.imports.inspect_log import of_sample
from gymmesh_data.imports.items import RowRefused, first_answer, items_of, tools_of
from gymmesh_data.rollout import Json, list_of, object_of, objects_of, text_of

_INPUTS: Final = (
    *("messages", "prompt", "input", "question", "problem", "query", "instruction"),
    *("question_stem", "ctx", "sentence"),
)
_ANSWERS: Final = (
    *("expected_answer", "answer", "ground_truth", "solution", "target", "correct_answer"),
    *("ideal", "label"),
)
# What the metadata of our own `messages` say of a rollout, and what is read of others'.
_TOLD: Final = (
    *("task_id", "rollout_id", "repeat_index", "environment", "stop_reason", "steps_taken"),
    *("tools_used", "tool_outcomes", "verified", "weights_versions", "tags"),
)
_FINISH: Final = {"length": "MAX_OUTPUT_TOKENS", "content_filter": "CONTENT_FILTER"}


@dataclass(frozen=True, slots=True)
class Columns:
    """Maps columns to the keys of a task.

    Attributes:
        names: column by key. `input` is the prompt, a text or messages; `system` a text before the
            prompt; `tools` the tools; any other key is a key of the task. A dot selects a key of an
            object.
        only: whether to omit columns without a key.
        score: which score is the reward, for formats that have several; empty: the only one, or the
            one named `reward`.
    """

    names: Mapping[str, str] = field(default_factory=dict)
    only: bool = False
    score: str = ""


ImportRow: TypeAlias = Callable[[Json, Columns], Imported]


def of_data_set(row: Json, columns: Columns) -> Imported:
    """A row of a data set: a task. Raises RowRefused.

    A multiple choice question becomes a task of the environment mcqa, unless `--column` names its
    parts. From a worked solution, the final answer is used; the solution stays under its own name.
    """
    if not {"input", "expected_answer", "options"} & columns.names.keys():
        choice = choice_row(row)
        if choice is not None:
            return _of_choice(row, choice, columns)
    names = dict(columns.names)
    _guess(names, "input", _INPUTS, row)
    if "expected_answer" not in row:
        _guess(names, "expected_answer", _ANSWERS, row, needed=False)
    used = {column.split(".", 1)[0] for column in names.values()}
    payload = {} if columns.only else {key: row[key] for key in row if key not in used}
    for key, column in names.items():
        if key not in ("input", "system", "tools"):
            payload[key] = _column(row, column)
    truth = row.get("reward_model")
    if isinstance(truth, dict) and "expected_answer" not in payload:
        payload["expected_answer"] = truth.get("ground_truth")
    if "expected_answer" in payload:
        whole, column = payload["expected_answer"], names.get("expected_answer", "")
        payload["expected_answer"] = final_answer(whole)
        if payload["expected_answer"] != whole and column != "expected_answer" and column in row:
            payload.setdefault(column, whole)
    prompt = _column(row, names["input"])
    if prompt is None or (isinstance(prompt, str) and not prompt.strip()):
        raise RowRefused(f"{names['input']}: the prompt is {'null' if prompt is None else 'empty'}")
    items = items_of(prompt, names["input"])
    if "system" in names:
        text = _column(row, names["system"])
        if not isinstance(text, str):
            raise RowRefused(f"{names['system']}: must be a string")
        items.insert(0, {"type": "message", "role": "system", "content": text})
    tools = tools_of(_column(row, names["tools"]), names["tools"]) if "tools" in names else []
    imported = _parted(items)
    imported.tools, imported.payload = tools, payload
    imported.task_id = _id_of(payload)
    return imported


def _of_choice(row: Json, choice: ChoiceRow, columns: Columns) -> Imported:
    named = {key: _column(row, column) for key, column in columns.names.items() if key != "system"}
    rest = {} if columns.only else {key: row[key] for key in row if key not in choice.used}
    imported = Imported(items_of(choice.prompt, "prompt"))
    if "system" in columns.names:
        system = _column(row, columns.names["system"])
        imported.prompt.insert(0, {"type": "message", "role": "system", "content": str(system)})
    imported.payload = rest | named
    imported.payload |= {"options": choice.options, "expected_answer": choice.expected}
    imported.task_id = _id_of(imported.payload)
    return imported


def of_messages(row: Json, columns: Columns) -> Imported:
    """Messages of a conversation, or a prompt with an optional completion. Raises RowRefused."""
    known = {"messages", "tools", "reward", "metadata", "samples", "task_id"}
    told = object_of(row, "metadata")
    # An export's own, which say what this rollout's actors did; else a column of that name.
    known |= {"actors"} if _are_actors(row.get("actors")) else set()
    answer = next((key for key in ("completion", "response") if row.get(key) is not None), "")
    if isinstance(row.get("messages"), list):
        items = items_of(row["messages"], "messages")
        given = row.get("prompt")
        prompt = items_of(given, "prompt") if isinstance(given, list) else None
        follows = prompt is not None and items[: len(prompt)] == prompt
        cut = len(prompt) if prompt is not None and follows else first_answer(items)
        imported = Imported(items[:cut], items[cut:])
        known |= {"prompt"} if follows else set()
    elif "prompt" in row:
        known.add("prompt")
        items = items_of(row["prompt"], "prompt")
        imported = Imported(items) if answer else _parted(items)
    else:
        raise RowRefused(
            "has neither the key 'messages' nor the key 'prompt'. For other columns use --format hf"
        )
    if answer and not imported.output:
        known.add(answer)
        imported.output = _answers(row[answer], answer)
    imported.tools = tools_of(row.get("tools"), "tools")
    imported.reward = reward_of(row)
    imported.payload = {key: value for key, value in row.items() if key not in known}
    left = {key: told[key] for key in told if key not in _TOLD} if told else row.get("metadata")
    if left:
        imported.payload["metadata"] = left
    for key in ("environment", "tags"):
        if told.get(key) and key not in imported.payload:
            imported.payload[key] = told[key]
    imported.task_id = _id_of(row) or _id_of(told)
    if isinstance(told.get("repeat_index"), int):
        imported.repeat = told["repeat_index"]
    if isinstance(told.get("stop_reason"), str):
        imported.stop_reason = told["stop_reason"]
    return imported


def _are_actors(value: Any) -> bool:
    return (
        isinstance(value, list)
        and bool(value)
        and all(isinstance(one, dict) and {"name", "conversations"} <= one.keys() for one in value)
    )


def of_openai_eval(row: Json, columns: Columns) -> Imported:
    """A row of OpenAI's evals. Raises RowRefused."""
    item = row.get("item", row.get("datasource_item"))
    if not isinstance(item, dict):
        item = {key: value for key, value in row.items() if key not in ("sample", "results")}
    imported = of_data_set(item, columns)
    sample = row.get("sample")
    if not isinstance(sample, dict):
        return imported
    if isinstance(sample.get("input"), list):
        imported.prompt = items_of(sample["input"], "sample.input")
    said: Any = sample.get("output")
    if list_of(sample, "choices"):
        said = [choice.get("message") for choice in objects_of(sample, "choices")]
    elif not isinstance(said, list) and isinstance(sample.get("output_text"), str):
        said = [{"role": "assistant", "content": sample["output_text"]}]
    if isinstance(said, list):
        imported.output = items_of(said, "sample.output")
    imported.model = text_of(sample, "model")
    imported.stop_reason = _FINISH.get(str(sample.get("finish_reason")), "")
    scores = {
        str(one.get("name")): number_of(one.get("score", one.get("passed")))
        for one in objects_of(row, "results")
    }
    _put_reward(imported, scores, columns)
    return imported


def of_verifiers(row: Json, columns: Columns) -> Imported:
    """A line of `results.jsonl` of the library verifiers. Raises RowRefused."""
    if "prompt" not in row or "completion" not in row:
        raise RowRefused(
            "lacks the key 'prompt' or 'completion', so this row is not a line of "
            "results.jsonl of the library `verifiers`"
        )
    prompt = items_of(row["prompt"], "prompt")
    imported = Imported(prompt, _answers(row["completion"], "completion"))
    imported.tools = tools_of(row.get("tools", row.get("tool_defs")), "tools")
    imported.task_id = _id_of(row) or _text_of(row.get("example_id"))
    if isinstance(row.get("task"), str) and imported.task_id:
        imported.task_id = f"{row['task']}/{imported.task_id}"
    imported.payload = {key: row[key] for key in ("answer", "info", "task") if key in row}
    if isinstance(row.get("answer"), str) and row["answer"].strip():
        imported.payload["expected_answer"] = imported.payload.pop("answer")
    imported.components = [
        {"name": str(name), "value": number}
        for name, value in object_of(row, "metrics").items()
        if (number := number_of(value)) is not None
    ]
    imported.reward = reward_of(row)
    if row.get("is_truncated") is True:
        imported.stop_reason = "MAX_OUTPUT_TOKENS"
    if row.get("error"):
        raise RowRefused(
            f"this rollout failed in the library `verifiers`: {str(row['error'])[:200]}"
        )
    return imported


def of_inspect(row: Json, columns: Columns) -> Imported:
    """A sample of a log of Inspect. Raises RowRefused."""
    imported, scores = of_sample(row)
    _put_reward(imported, scores, columns)
    return imported


def _put_reward(imported: Imported, scores: dict[str, float | None], columns: Columns) -> None:
    """The score that is the reward; the others are components."""
    if columns.score and columns.score not in scores:
        there = ", ".join(scores) or "none"
        raise RowRefused(f"has no score {columns.score!r}. The row's scores: {there}")
    name = columns.score or ("reward" if "reward" in scores else "")
    if not name and len(scores) == 1:
        (name,) = scores
    if not name and len(scores) > 1:
        raise RowRefused(f"has several scores. Choose the reward: --score {'|'.join(scores)}")
    if name:
        imported.reward = scores[name]
        if imported.reward is None:
            raise RowRefused(f"the score {name!r} is not a number")
    imported.components = [
        {"name": one, "value": value}
        for one, value in scores.items()
        if one != "reward" and value is not None
    ]


def _parted(items: list[Json]) -> Imported:
    """Items up to the last message of the user, and what the model says to it: data sets have
    earlier answers for context.
    """
    after = max((at for at, item in enumerate(items, 1) if item.get("role") == "user"), default=0)
    cut = after + first_answer(items[after:])
    return Imported(items[:cut], items[cut:])


def _answers(said: Any, where: str) -> list[Json]:
    """The items of messages, or of a text, which is the model's."""
    return items_of(
        [{"role": "assistant", "content": said}] if isinstance(said, str) else said, where
    )


def _guess(
    names: dict[str, str], key: str, columns: tuple[str, ...], row: Json, *, needed: bool = True
) -> None:
    if key in names:
        return
    # A column without a value only where no other has one: it is then named as the mistake.
    there = sorted((one for one in columns if one in row), key=lambda one: row[one] in (None, ""))
    if there and (needed or row[there[0]] is not None):
        names[key] = there[0]
    elif needed:
        all_columns = ", ".join(map(str, row)) or "none"
        raise RowRefused(
            f"has no known prompt column. Name the column: --column {key}=NAME (columns: "
            f"{all_columns[:200]})"
        )


def _column(row: Json, column: str) -> Any:
    """A column, or the key of an object in one, by dots."""
    if column in row:
        return row[column]
    value: Any = row
    for key in column.split("."):
        if not isinstance(value, dict) or key not in value:
            raise RowRefused(f"{column}: no such column")
        value = value[key]
    return value


def _id_of(row: Json) -> str:
    return _text_of(row.get("task_id"))


def _text_of(value: Any) -> str:
    if isinstance(value, str):
        return value
    return str(value) if type(value) is int else ""


IMPORT_FORMATS: Final[Mapping[str, ImportRow]] = {
    "hf": of_data_set,
    "messages": of_messages,
    "openai-evals": of_openai_eval,
    "verifiers": of_verifiers,
    "inspect": of_inspect,
}
"""The formats by their names for `gym-cli import --format`."""
