"""The side data of a sample: a row for each token, put together from its calls' rows when read.

    sample.side_data["routed_experts"].array()   # [tokens, layers, experts], numpy

Each call has the rows that the calls before it lack (see SideData in tokens.proto). Where two calls
have a row for a token that they share, the earlier one's counts: the model sampled with it. A last
token that no forward pass read has no row.
"""

from __future__ import annotations

import importlib
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from gymmesh.model.v1 import tokens_pb2
from gymmesh_client import UserError
from gymmesh_client.side_data import read_side_data
from gymmesh_responses import SIDE_DATA_DTYPES, row_bytes
from gymmesh_trainers.rollouts.token_tree import CallNode

_FORMATS: Final = {
    "int8": "<b", "uint8": "<B", "int16": "<h", "uint16": "<H", "int32": "<i",
    "float16": "<e", "float32": "<f",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Stretch:
    """Positions [begin, end) whose rows are those of one call."""

    side: tokens_pb2.SideData
    begin: int
    end: int


class SampleSideData:
    """One kind of side data of a sample. Nothing is read before `read` or `array`.

    Attributes:
        name: what it is, such as `routed_experts`.
        dtype: the type of a number, by numpy's name.
        shape: of one row; empty: one number.
        tokens: how many tokens the sample has.
    """

    def __init__(
        self, name: str, stretches: Sequence[_Stretch], tokens: int, folders: Sequence[Path]
    ) -> None:
        first = stretches[0].side
        self.name = name
        self.dtype = first.dtype
        self.shape = tuple(first.shape)
        self.tokens = tokens
        self._stretches = stretches
        self._folders = folders

    def __repr__(self) -> str:
        return f"<side data {self.name!r}: {self.dtype}{list(self.shape)} of {self.end} tokens>"

    @property
    def end(self) -> int:
        """The position after the last token that has a row. It is `tokens - 1` if only the last
        sampled token has none.
        """
        return self._stretches[-1].end

    @property
    def missing(self) -> list[tuple[int, int]]:
        """The ranges [begin, end) of positions without a row."""
        found, at = [], 0
        for one in self._stretches:
            if at < one.begin:
                found.append((at, one.begin))
            at = one.end
        return [*found, (at, self.tokens)] if at < self.tokens else found

    @property
    def references(self) -> list[tokens_pb2.SideData]:
        """The references of the calls, in the order of the tokens; don't change them."""
        return [one.side for one in self._stretches]

    def read(
        self, begin: int = 0, end: int | None = None, *, fill: float | None = None
    ) -> bytearray:
        """The rows of the tokens [begin, end), little-endian. Each file is compared with its
        digest. Blocks: it reads files.

        Args:
            end: None: the position after the last token that has a row.
            fill: the number for missing rows; None: a missing row raises ValueError.

        Raises SideDataUnreadable if the numbers are missing, or differ from their digest.
        """
        last = self.end if end is None else end
        if not 0 <= begin <= last <= self.tokens:
            raise ValueError(
                f"tokens {begin} to {last} are not in this sample of {self.tokens} tokens"
            )
        size = row_bytes(self.dtype, self.shape)
        made = bytearray((last - begin) * size)
        for missing in self.missing:
            low, high = max(missing[0], begin), min(missing[1], last)
            if low < high:
                if fill is None:
                    raise ValueError(
                        f"side data '{self.name}' has no rows for the tokens {low} to {high - 1}. "
                        "Pass a number as fill, or read other tokens"
                    )
                count = (high - low) * size // SIDE_DATA_DTYPES[self.dtype]
                made[(low - begin) * size : (high - begin) * size] = self._number(fill) * count
        for one in self._stretches:
            low, high = max(one.begin, begin), min(one.end, last)
            if low < high:
                data = memoryview(read_side_data(one.side, self._folders))
                first = one.side.first_token
                rows = data[(low - first) * size : (high - first) * size]
                made[(low - begin) * size : (high - begin) * size] = rows
        return made

    def array(self, begin: int = 0, end: int | None = None, *, fill: float | None = None) -> Any:
        """As `read`, but returns a numpy array of the shape [end - begin, *shape] that you may
        change.

        Raises UserError if numpy is not installed, or lacks the type (`bfloat16`): use `read` then.
        """
        try:
            numpy: Any = importlib.import_module("numpy")
            dtype = numpy.dtype(self.dtype).newbyteorder("<")
        except ImportError:
            raise UserError("SampleSideData.array needs numpy: pip install numpy") from None
        except TypeError:
            raise UserError(f"numpy has no type {self.dtype!r}; use read()") from None
        return numpy.frombuffer(self.read(begin, end, fill=fill), dtype).reshape(-1, *self.shape)

    def _number(self, value: float) -> bytes:
        """A number as side data has it. Raises ValueError for one that the type can't have."""
        try:
            if self.dtype == "bfloat16":
                return struct.pack("<f", value)[2:]
            kind = _FORMATS[self.dtype]
            return struct.pack(kind, float(value) if kind[-1] in "ef" else int(value))
        except (struct.error, OverflowError):
            raise ValueError(f"fill: {value} is not a number of type {self.dtype}") from None


def side_data_of(leaf: CallNode, folders: Sequence[Path]) -> Mapping[str, SampleSideData]:
    """The side data of the tokens up to a call, by name.

    folders: see `read_side_data`. Raises ValueError where calls disagree on a type or shape.
    """
    found: dict[str, list[_Stretch]] = {}
    for node, limit in _from_the_first(leaf):
        for side in node.call.tokens.side_data:
            known = found.setdefault(side.name, [])
            if known and _kind(known[0].side) != _kind(side):
                raise ValueError(
                    f"side data '{side.name}': call {node.call.call_id} has rows of "
                    f"{side.dtype}{list(side.shape)}, but an earlier call has rows of "
                    f"{known[0].side.dtype}{list(known[0].side.shape)}"
                )
            end = min(side.first_token + side.tokens, limit)
            known += [_Stretch(side, *gap) for gap in _gaps(known, side.first_token, end)]
            known.sort(key=lambda one: one.begin)
    return {
        name: SampleSideData(name, stretches, leaf.end, folders)
        for name, stretches in found.items()
        if stretches
    }


def _from_the_first(leaf: CallNode) -> list[tuple[CallNode, int]]:
    """The calls whose tokens the leaf's are made of, each with the position up to which they are
    its own or those of calls before it.
    """
    chain: list[tuple[CallNode, int]] = []
    node: CallNode | None = leaf
    limit = leaf.end
    while node is not None:
        chain.append((node, limit))
        limit = min(limit, node.start)
        node = node.base
    return chain[::-1]


def _gaps(known: Sequence[_Stretch], begin: int, end: int) -> Iterator[tuple[int, int]]:
    """The parts of [begin, end) that no stretch covers. known: in order."""
    for one in known:
        if one.end <= begin:
            continue
        if one.begin >= end:
            break
        if begin < one.begin:
            yield begin, one.begin
        begin = one.end
    if begin < end:
        yield begin, end


def _kind(side: tokens_pb2.SideData) -> tuple[str, tuple[int, ...]]:
    return side.dtype, tuple(side.shape)
