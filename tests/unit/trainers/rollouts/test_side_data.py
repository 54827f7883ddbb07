"""The side data of samples, against rows that say which call they are of."""

from __future__ import annotations

import hashlib
import struct
from array import array
from pathlib import Path

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymmesh.model.v1 import tokens_pb2
from gymmesh.rollout.v1 import rollout_pb2 as pb
from gymmesh_client import UserError
from gymmesh_client.side_data import SideDataUnreadable
from gymmesh_responses import side_data_place
from gymmesh_trainers import samples_of

NAME = "routed_experts"


def side(first: int, rows: list[int], name: str = NAME) -> tokens_pb2.SideData:
    """Rows of one int16."""
    data = array("h", rows).tobytes()
    return tokens_pb2.SideData(
        name=name,
        dtype="int16",
        first_token=first,
        tokens=len(rows),
        data=data,
        digest=hashlib.sha256(data).digest(),
    )


def call(
    number: int, prompt: list[int], output: list[int], *sides: tokens_pb2.SideData, prefix: int = 0
) -> pb.ModelCallCompleted:
    """A call that continues the one before it by so many tokens; 0: a fork."""
    made = pb.ModelCallCompleted(
        call_id=f"c{number}",
        parent_call_id=f"c{number - 1}" if number else "",
        model="policy",
        trainable=True,
    )
    made.tokens.prompt_token_ids = array("i", prompt[prefix:]).tobytes()
    made.tokens.output_token_ids = array("i", output).tobytes()
    made.tokens.prompt_prefix_tokens = prefix
    if number and not prefix:
        made.tokens.fork.reason = tokens_pb2.FORK_REASON_TEMPLATE_REWRITES
    made.tokens.side_data.extend(sides)
    return made


def test_rows_of_calls_are_put_together_and_the_last_token_has_none() -> None:
    first = call(0, [1, 2], [3, 4], side(0, [10, 20, 30]))
    second = call(1, [1, 2, 3, 4, 5], [6], side(3, [40, 50]), prefix=4)
    (sample,) = samples_of([first, second])
    experts = sample.side_data[NAME]
    assert experts.array().tolist() == [10, 20, 30, 40, 50]
    assert (experts.tokens, experts.end, experts.missing) == (6, 5, [(5, 6)])
    assert experts.array(end=6, fill=-1).tolist() == [10, 20, 30, 40, 50, -1]
    assert experts.array(2, 4).tolist() == [30, 40]
    assert experts.read(4) == array("h", [50]).tobytes()
    with pytest.raises(ValueError, match="no rows for the tokens 5 to 5"):
        experts.read(end=6)
    with pytest.raises(ValueError, match="not a number of type int16"):
        experts.read(end=6, fill=70_000)
    with pytest.raises(ValueError, match="tokens 2 to 7 are not in"):
        experts.read(2, 7)


def test_the_earlier_call_of_two_that_have_a_row_counts() -> None:
    first = call(0, [1, 2], [3, 4], side(0, [10, 20, 30]))
    again = call(1, [1, 2, 3, 4, 5], [6], side(0, [11, 21, 31, 41, 51]), prefix=4)
    (sample,) = samples_of([first, again])
    assert sample.side_data[NAME].array().tolist() == [10, 20, 30, 41, 51]


def test_a_fork_has_the_rows_of_its_own_tokens() -> None:
    first = call(0, [1, 2], [3, 4], side(0, [10, 20, 30]))
    fork = call(1, [1, 9, 5], [6], side(0, [11, 91, 51]))
    one, other = samples_of([first, fork])
    assert one.side_data[NAME].array().tolist() == [10, 20, 30]
    # The first token is the one that both begin with; what follows it is not.
    assert other.side_data[NAME].array().tolist() == [10, 91, 51]


def test_rows_of_sampled_tokens_alone_leave_gaps() -> None:
    first = call(0, [1, 2], [3, 4], side(2, [30, 40], "teacher"))
    second = call(1, [1, 2, 3, 4, 5], [6], side(5, [60], "teacher"), prefix=4)
    (sample,) = samples_of([first, second])
    teacher = sample.side_data["teacher"]
    assert teacher.missing == [(0, 2), (4, 5)]
    assert teacher.array(fill=0).tolist() == [0, 0, 30, 40, 0, 60]
    assert teacher.array(2, 4).tolist() == [30, 40]


def test_calls_that_disagree_on_the_type_are_refused() -> None:
    other = side(3, [40])
    other.dtype, other.tokens = "uint8", 2
    calls = [
        call(0, [1, 2], [3, 4], side(0, [1, 2, 3])),
        call(1, [1, 2, 3, 4], [6], other, prefix=4),
    ]
    (sample,) = samples_of(calls)
    with pytest.raises(ValueError, match="call c1 has rows of uint8"):
        _ = sample.side_data


def test_without_side_data_there_is_none() -> None:
    (sample,) = samples_of([call(0, [1], [2])])
    assert dict(sample.side_data) == {}


@pytest.mark.parametrize("fill", [-1.0, 0.5])
@pytest.mark.parametrize(("dtype", "size"), [("float32", 4), ("float16", 2), ("bfloat16", 2)])
def test_floats_are_filled_as_floats(dtype: str, size: int, fill: float) -> None:
    data = bytes(size)
    given = tokens_pb2.SideData(name="values", dtype=dtype, first_token=1, tokens=1, data=data)
    given.digest = hashlib.sha256(data).digest()
    (sample,) = samples_of([call(0, [1], [2], given)])
    values = sample.side_data["values"]
    filled = values.read(fill=fill)[:size]
    if dtype == "bfloat16":
        assert struct.unpack("<f", b"\0\0" + filled)[0] == fill
        with pytest.raises(UserError, match="bfloat16"):
            values.array(fill=fill)
    else:
        assert values.array(fill=fill)[0] == fill


@given(st.data())
def test_any_chain_of_calls_gives_each_token_the_first_row_that_there_is(
    data: st.DataObject,
) -> None:
    tokens: list[int] = []
    calls: list[pb.ModelCallCompleted] = []
    wanted: dict[int, int] = {}
    for number in range(data.draw(st.integers(1, 5))):
        prefix = len(tokens)
        tokens = [*tokens, *range(1, data.draw(st.integers(0, 3)) + (2 if number == 0 else 1))]
        prompt = list(tokens)
        output = list(range(50, 50 + data.draw(st.integers(1, 4))))
        tokens = [*prompt, *output]
        first = data.draw(st.integers(0, len(tokens) - 1))
        count = data.draw(st.integers(0, len(tokens) - first))
        rows = [1000 * number + place for place in range(first, first + count)]
        for place, row in zip(range(first, first + count), rows, strict=True):
            wanted.setdefault(place, row)
        sides = [side(first, rows)] if rows else []
        calls.append(call(number, prompt, output, *sides, prefix=prefix))
    (sample,) = samples_of(calls)
    found = sample.side_data
    if not wanted:
        assert not found
        return
    array = found[NAME].array(0, len(tokens), fill=-7)
    assert array.tolist() == [wanted.get(place, -7) for place in range(len(tokens))]
    assert [place for low, high in found[NAME].missing for place in range(low, high)] == [
        place for place in range(len(tokens)) if place not in wanted
    ]


def stored(folder: Path, rows: list[int]) -> tokens_pb2.SideData:
    """Rows in a file, as the model service stores them."""
    made = side(0, rows)
    path = folder / side_data_place(made.digest)
    path.parent.mkdir(parents=True)
    path.write_bytes(made.data)
    made.data, made.location = b"", path.as_uri()
    return made


def test_rows_are_read_from_their_file_and_from_a_copy_of_the_folder(tmp_path: Path) -> None:
    given = stored(tmp_path / "there", [1, 2])
    calls = [call(0, [1, 2], [3], given)]
    (sample,) = samples_of(calls)
    experts = sample.side_data[NAME]
    assert experts.array().tolist() == [1, 2]
    assert experts.array().flags.writeable
    assert experts.array().dtype == numpy.dtype("int16")
    (tmp_path / "there").rename(tmp_path / "here")
    with pytest.raises(SideDataUnreadable, match="fetch"):
        experts.read()
    (sample,) = samples_of(calls, folders=[tmp_path / "here"])
    assert sample.side_data[NAME].array().tolist() == [1, 2]


@pytest.mark.parametrize("damage", [b"\x01\x00\x02", b"\x01\x00\x03\x00", b""])
def test_a_damaged_file_is_no_data(tmp_path: Path, damage: bytes) -> None:
    given = stored(tmp_path, [1, 2])
    (tmp_path / side_data_place(given.digest)).write_bytes(damage)
    (sample,) = samples_of([call(0, [1, 2], [3], given)])
    with pytest.raises(SideDataUnreadable, match="differs from the digest"):
        sample.side_data[NAME].read()


def test_a_damaged_file_is_passed_over_for_a_good_copy(tmp_path: Path) -> None:
    given = stored(tmp_path / "there", [1, 2])
    place = side_data_place(given.digest)
    copy = tmp_path / "copy" / place
    copy.parent.mkdir(parents=True)
    (tmp_path / "there" / place).rename(copy)
    (tmp_path / "there" / place).write_bytes(b"\x01\x00\x03\x00")
    (sample,) = samples_of([call(0, [1, 2], [3], given)], folders=[tmp_path / "copy"])
    assert sample.side_data[NAME].array().tolist() == [1, 2]


def test_a_row_cannot_have_other_files_opened(tmp_path: Path) -> None:
    given = stored(tmp_path, [1, 2])
    secret = tmp_path / "secret"
    secret.write_bytes(b"\x01\x00\x02\x00")
    given.location = secret.as_uri()
    (sample,) = samples_of([call(0, [1, 2], [3], given)])
    with pytest.raises(SideDataUnreadable, match=r"neither at.*max_bytes.*max_age_s"):
        sample.side_data[NAME].read()
