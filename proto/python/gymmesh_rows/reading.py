"""Reads a line of a run's file as a Row: one of this contract, or of an earlier form."""

from __future__ import annotations

from array import array
from collections.abc import Collection
from contextlib import suppress
from functools import cache
from types import NoneType, UnionType
from typing import Any, Final, Union, get_args, get_origin

import msgspec
from msgspec import UNSET, Raw, UnsetType

from gymmesh_responses import LOGPROB_ROUNDING, CodecError, JsonValue, dumps_clean, loads_line
from gymmesh_rows.earlier import is_earlier, of_this_contract, own_keys
from gymmesh_rows.row import COLUMNS, METADATA_COLUMNS, Row, RowError

Json = dict[str, Any]
_DECODER: Final = msgspec.json.Decoder(Row)
_REFUSED: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
_UNSET_TYPES: Final = (UnsetType, NoneType)
_SCALARS: Final = (int, str, float)
# Columns that are made of an earlier row's items, or are checked: these must fit.
_OF_EARLIER: Final = ("first_items", "calls", "actors")
# The columns of `metadata` as version 0.1 wrote it.
_METADATA_0_1: Final = METADATA_COLUMNS | {"token_forks", "model_calls"}
_ROWS_OF: Final = "this is not a row of a rollout"
# Each time anew, this would evaluate all annotations: milliseconds for a row.
_fields_of: Final = cache(msgspec.structs.fields)


def read_row(line: bytes) -> Row:
    """The row of a line, which may be from NeMo Gym or an earlier version.

    This function checks types, token ids (not negative), log probabilities (not positive, one for
    each id), and that each call's part is within the output. The methods that follow calls check
    the relations between calls.

    Raises:
        RowError: it is not a row; the text names the key and the problem.
    """
    try:
        if not line.isascii():
            line.decode()  # of what stays JSON text, msgspec does not look at the bytes
        row = _DECODER.decode(line)
    except _REFUSED:
        row = _read_slowly(line)
    else:
        if not row.calls and (row.response.output or row.actors):
            row = _read_slowly(line)
    row.__dict__["line"] = line
    _check(row)
    return row


def _read_slowly(line: bytes) -> Row:
    """A row of an earlier form, or with what msgspec does not read."""
    try:
        document = loads_line(line)
    except CodecError as error:
        raise RowError(f"is not a line of JSON: {error}") from None
    if type(document) is not dict:
        raise RowError("must be a JSON object, a row as gym-cli collect writes it")
    for key in ("responses_create_params", "response"):
        if type(document.get(key)) is not dict:
            said = "is missing" if key not in document else "must be an object"
            raise RowError(f"{key}: {said}; {_ROWS_OF}")
    _check_reward(document.get("reward"))
    own: Json | None = None
    beginnings: dict[str, tuple[int, str]] = {}
    if is_earlier(document):
        own = own_keys(document)
        document, beginnings = of_this_contract(document)
        _drop_what_does_not_fit(document, Row, _OF_EARLIER)
    row: Row = _built(Row, document, "")
    if own is not None:
        row.__dict__["extras"] = own
        row.__dict__["beginnings"] = beginnings
    return row


def _drop_what_does_not_fit(
    document: Json, kind: type[msgspec.Struct], but: Collection[str] = ()
) -> None:
    """Drop what is another's under the name of a column that rows need not have."""
    for one in _fields_of(kind):
        key = one.encode_name
        if one.required or key not in document or key in but:
            continue
        try:
            _built(one.type, document[key], key)
        except RowError:
            del document[key]


def _check_reward(reward: JsonValue) -> None:
    if reward is None:
        return
    if isinstance(reward, bool) or not isinstance(reward, int | float):
        raise RowError("reward: must be a number or null")
    try:
        float(reward)
    except OverflowError:
        raise RowError("reward: is beyond the range of a number") from None


def beside_columns(document: Json) -> Json:
    """The keys of a parsed row that are not columns: the task's own, and those of the evidence."""
    if is_earlier(document):
        return own_keys(document)
    return {key: value for key, value in document.items() if key not in COLUMNS}


def own_metadata(document: Json) -> Json:
    """The members of a parsed row's `metadata` that are the task's own. Those with the name of a
    column are in the row's `task_extras`.
    """
    metadata = document.get("metadata")
    if type(metadata) is not dict:
        return {}
    names = _METADATA_0_1 if is_earlier(document) else METADATA_COLUMNS
    return {key: value for key, value in metadata.items() if key not in names}


def _built(kind: Any, value: JsonValue, place: str) -> Any:
    """A parsed value as its type in a row. Raises RowError, which names the place."""
    if kind is Raw:
        return Raw(dumps_clean(value))
    if _is_plain(kind):
        with suppress(msgspec.ValidationError):  # below, which names the place
            return msgspec.convert(value, kind)
    inner = get_args(kind)
    if get_origin(kind) in (Union, UnionType):
        if value is None and NoneType in inner:
            return None
        return _built(next(one for one in inner if one not in _UNSET_TYPES), value, place)
    if get_origin(kind) is list and type(value) is list and inner[0] not in _SCALARS:
        return [_built(inner[0], one, f"{place}[{n}]") for n, one in enumerate(value)]
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct) and type(value) is dict:
        return _struct(kind, value, place)
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise RowError(f"{place}: {error}") from None


@cache
def _is_plain(kind: Any) -> bool:
    """Whether a type is a list of numbers or texts, or of some of these and null."""
    inner = get_args(kind)
    if get_origin(kind) in (Union, UnionType):
        return all(one is NoneType or one in _SCALARS for one in inner)
    return get_origin(kind) is list and (inner[0] in _SCALARS or _is_plain(inner[0]))


def _struct(kind: type[msgspec.Struct], value: dict[str, JsonValue], place: str) -> msgspec.Struct:
    made: dict[str, Any] = {}
    for one in _fields_of(kind):
        key = f"{place}.{one.encode_name}".lstrip(".")
        if one.encode_name in value:
            made[one.name] = _built(one.type, value[one.encode_name], key)
        elif one.required:
            raise RowError(f"{key}: is missing; {_ROWS_OF}")
    return kind(**made)


def _check(row: Row) -> None:
    items = len(row.response.output)
    for number, call in enumerate(row.calls):
        place = f"calls[{number}]"
        first, count = call.first_item, call.item_count
        if first is UNSET:
            first, have = 0, len(call.items)
        else:
            have = items
        inside = first >= 0 and first + count <= have
        if not inside or not 0 <= call.context_count <= count - call.answer_count <= count:
            raise RowError(f"{place}: some of its items are missing")
        if call.tokens is UNSET:
            continue
        tokens = call.tokens
        for key, ids in (
            ("prompt_token_ids", tokens.prompt_token_ids),
            ("output_token_ids", tokens.output_token_ids),
        ):
            try:
                negative = bool(ids) and min(array("i", ids)) < 0
            except OverflowError:
                negative = True
            if negative:
                raise RowError(f"{place}.tokens.{key}: has a number that is not a token id")
        if tokens.logprobs and len(tokens.logprobs) != len(tokens.output_token_ids):
            raise RowError(
                f"{place}.tokens: {len(tokens.output_token_ids)} token ids were sampled, but there "
                f"are {len(tokens.logprobs)} log probabilities"
            )
        if (most := _largest(tokens.logprobs)) > LOGPROB_ROUNDING:
            raise RowError(f"{place}.tokens.logprobs: {most:g} is positive")
        if tokens.prompt_prefix_tokens < 0:
            raise RowError(f"{place}.tokens.prompt_prefix_tokens: must not be negative")


def _largest(logprobs: list[float | None]) -> float:
    """The largest of some log probabilities, of which those that are not known are None."""
    return max((one for one in logprobs if one is not None), default=0.0)
