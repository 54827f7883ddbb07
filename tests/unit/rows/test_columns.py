"""The generated columns write what the rule of JSON says, for any message."""

from __future__ import annotations

import struct
from typing import Any

import msgspec
import pytest
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message
from hypothesis import given
from hypothesis import strategies as st

from gymmesh.json.v1 import json_pb2
from gymmesh.model.v1 import retries_pb2, tokens_pb2
from gymmesh.responses.v1 import responses_pb2
from gymmesh.rollout.v1 import rollout_pb2 as pb
from gymmesh.row.v1 import row_pb2
from gymmesh.sandbox.v1 import grant_pb2
from gymmesh_responses import dumps, loads
from gymmesh_rows import columns
from gymmesh_rows.values import encode, listed, overlaid, usage
from tests.unit.codec import strategies
from tests.unit.codec.equality import same_json
from tests.unit.rows.rule import key_of, written

COPIED: list[tuple[type[Any], type[Message]]] = [
    (columns.Annotation, pb.Annotation),
    (columns.CallRetries, retries_pb2.CallRetries),
    (columns.CallTimings, pb.CallTimings),
    (columns.FinalState, pb.FinalState),
    (columns.Fork, tokens_pb2.Fork),
    (columns.Media, pb.Media),
    (columns.ModelCallUsage, pb.ModelCallUsage),
    (columns.ProgramEnded, pb.ProgramEnded),
    (columns.SandboxOpened, pb.SandboxOpened),
    (columns.SandboxRef, grant_pb2.SandboxRef),
    (columns.TokenCapture, tokens_pb2.TokenCapture),
    (columns.Verification, pb.Verification),
]
INTEGERS = {
    FieldDescriptor.TYPE_INT32: st.integers(-(2**31), 2**31 - 1),
    FieldDescriptor.TYPE_UINT32: st.integers(0, 2**32 - 1),
    FieldDescriptor.TYPE_INT64: st.integers(-(2**63), 2**63 - 1),
    FieldDescriptor.TYPE_UINT64: st.integers(0, 2**64 - 1),
}


def values_of(field: Any) -> st.SearchStrategy[Any]:
    """Any value of a field, of one of its elements where it is a list."""
    if field.type in INTEGERS:
        return INTEGERS[field.type]
    if field.type == field.TYPE_BOOL:
        return st.booleans()
    if field.type == field.TYPE_STRING:
        return strategies.clean_text
    if field.type == field.TYPE_ENUM:
        return st.sampled_from([*field.enum_type.values_by_number, 1000])
    if field.type == field.TYPE_DOUBLE:
        return st.floats(allow_nan=False, allow_infinity=False)
    form = field.GetOptions().Extensions[json_pb2.field].bytes
    if field.name.endswith("_json"):
        return strategies.documents.map(dumps)
    if form == json_pb2.BYTES_FORM_INT32:
        ids = st.lists(st.integers(0, 2**31 - 1), max_size=4)
        return ids.map(lambda some: struct.pack(f"<{len(some)}i", *some))
    if form == json_pb2.BYTES_FORM_FLOAT32:
        numbers = st.lists(st.floats(width=32), max_size=4)
        return numbers.map(lambda some: struct.pack(f"<{len(some)}f", *some))
    return st.binary(max_size=6)


def fields_of(kind: Any) -> list[Any]:
    """The descriptors of a message's fields."""
    return list(kind.DESCRIPTOR.fields)


@st.composite
def messages(draw: st.DrawFn, kind: type[Message]) -> Any:
    """Any message of a kind."""
    message = kind()
    for field in fields_of(kind):
        if field.name == "overlay_json" or draw(st.integers(0, 2)) == 0:
            continue
        if field.type != field.TYPE_MESSAGE:
            if field.is_repeated:
                getattr(message, field.name).extend(draw(st.lists(values_of(field), max_size=2)))
            else:
                setattr(message, field.name, draw(values_of(field)))
            continue
        inner = field.message_type._concrete_class
        if field.is_repeated:
            for one in draw(st.lists(messages(inner), max_size=2)):
                getattr(message, field.name).add().CopyFrom(one)
        else:
            getattr(message, field.name).CopyFrom(draw(messages(inner)))
    return message


@pytest.mark.parametrize(("struct_of", "kind"), COPIED, ids=lambda one: one.__name__)
@given(data=st.data())
def test_columns_of_a_message_are_what_the_rule_says(
    struct_of: Any, kind: type[Message], data: st.DataObject
) -> None:
    message = data.draw(messages(kind))
    made = struct_of.of(message)
    text = encode(made)
    assert same_json(loads(text), written(message))
    assert list(loads(text)) == list(written(message))
    try:
        again = msgspec.json.decode(text, type=struct_of)
    except msgspec.DecodeError:
        assert "\\ud" in text.decode().lower()  # an unpaired surrogate, which is read otherwise
        return
    assert encode(again) == text


@pytest.mark.parametrize("answered", [True, False])
@given(data=st.data())
def test_columns_of_calls_are_copied_by_their_names(answered: bool, data: st.DataObject) -> None:
    call = data.draw(messages(pb.ModelCallCompleted))
    answer = data.draw(messages(responses_pb2.Response)) if answered else responses_pb2.Response()
    call.ClearField("response")
    call.ClearField("context_items")
    made = columns.ModelCall.of(
        call, answer, first_item=0, item_count=3, context_count=1, answer_count=2, items=[]
    )
    wanted = row_pb2.ModelCall(first_item=0, item_count=3, context_count=1, answer_count=2)
    taken = {"first_item", "item_count", "context_count", "answer_count", "items"}
    copy(wanted, taken, call, answer)
    assert same_json(loads(encode(made)), written(wanted))


@given(data=st.data())
def test_columns_of_tool_calls_and_turns_are_copied(data: st.DataObject) -> None:
    done = data.draw(messages(pb.ToolCallCompleted))
    called = row_pb2.ToolCall()
    copy(called, set(), done)
    assert same_json(loads(encode(columns.ToolCall.of(done))), written(called))
    taken = data.draw(messages(pb.TurnCompleted))
    turn = row_pb2.Turn()
    copy(turn, set(), taken)
    assert same_json(loads(encode(columns.Turn.of(taken))), written(turn))


def copy(target: Any, taken: set[str], *sources: Any) -> None:
    """Copy each field from the first source in which it is set."""
    for field in target.DESCRIPTOR.fields:
        for source in sources:
            theirs = source.DESCRIPTOR.fields_by_name.get(field.name)
            if field.name in taken or theirs is None or theirs.type != field.type:
                continue
            if theirs.message_type is not field.message_type:
                continue
            value = getattr(source, field.name)
            if not (source.HasField(field.name) if theirs.has_presence else value):
                continue
            if field.is_repeated:
                getattr(target, field.name).extend(value)
            elif field.message_type is not None:
                getattr(target, field.name).CopyFrom(value)
            else:
                setattr(target, field.name, value)
            break


def structs() -> list[tuple[str, type[msgspec.Struct], Any]]:
    modules = (row_pb2, pb, tokens_pb2, retries_pb2, grant_pb2)
    return [
        (name, kind, next(getattr(module, name) for module in modules if hasattr(module, name)))
        for name, kind in vars(columns).items()
        if isinstance(kind, type)
        and issubclass(kind, msgspec.Struct)
        and not name.startswith(("_", "UsageSumIn", "UsageSumOut"))
    ]


@pytest.mark.parametrize(("name", "kind", "message"), structs(), ids=lambda one: str(one)[:30])
def test_keys_are_those_of_the_contract_in_the_order_of_numbers(
    name: str, kind: type[msgspec.Struct], message: Any
) -> None:
    wanted = []
    for field in sorted(message.DESCRIPTOR.fields, key=lambda one: one.number):
        within = field.GetOptions().Extensions[json_pb2.field].within
        if field.name != "overlay_json":
            wanted.append(within or key_of(field))
    assert list(kind.__struct_encode_fields__) == wanted


@pytest.mark.parametrize(
    ("kind", "message", "said"),
    [
        (columns.RewardSpan, pb.RewardSpan(value=float("inf")), "value: inf is not a JSON number"),
        (columns.Verification, pb.Verification(reward=float("nan")), "reward: nan"),
        (columns.Annotation, pb.Annotation(value_json=b"{"), "value"),
        (columns.TokenCapture, tokens_pb2.TokenCapture(output_token_ids=b"abc"), "3 bytes"),
        (columns.TokenCapture, tokens_pb2.TokenCapture(logprobs=b"abcde"), "5 bytes"),
        (
            columns.TokenCapture,
            tokens_pb2.TokenCapture(prompt_token_ids=b"\xff\xff\xff\xff"),
            "-1 is negative",
        ),
    ],
)
def test_what_json_does_not_have_is_refused(kind: Any, message: Message, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        kind.of(message)


def test_usage_with_more_in_it_keeps_that() -> None:
    more = {"audio": {"n": 12345678901234567890123}}
    told = responses_pb2.Usage(input_tokens=1, overlay_json=dumps(more))
    assert loads(encode(usage(told))) == {"input_tokens": 1, **more}


def test_long_lists_are_written_in_pieces_and_read_the_same() -> None:
    elements = [columns.Turn(turn=number) for number in range(1000)]
    assert isinstance(listed(elements), msgspec.Raw)
    assert encode(listed(elements)) == encode(elements)
    assert listed(elements[:9]) == elements[:9]


def test_an_overlay_stands_behind_the_columns() -> None:
    made = columns.WeightsSpan(version=1, first_token=0)
    assert bytes(overlaid(made, b'{"a":1}')) == b'{"version":1,"first_token":0,"a":1}'
    assert bytes(overlaid(made, b"{}")) == bytes(overlaid(made, b"")) == encode(made)
