"""Rows of side data as a backend returns them, before they are stored. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from gymmesh_model.errors import AnswerInvalid
from gymmesh_responses import row_bytes

SideBytes: TypeAlias = bytes | bytearray | memoryview


@dataclass(frozen=True, slots=True)
class SideRows:
    """A row of side data for each of several consecutive tokens of a call.

    Attributes:
        name: the name of the side data, such as `routed_experts`.
        dtype: the type of the numbers, as in SideData; little-endian.
        shape: the shape of one row; empty: a row is one number.
        first_token: the first token with a row, counted over the call's whole prompt and output.
        data: the numbers, row after row.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    first_token: int
    data: SideBytes

    @classmethod
    def of_array(cls, name: str, array: Any, *, first_token: int = 0) -> SideRows:
        """Rows from a numpy array whose first axis is the token. The memory of a contiguous array
        is shared, not copied.
        """
        kept = array if array.flags.c_contiguous else array.copy(order="C")
        data = memoryview(kept.reshape(-1).view("uint8"))
        return cls(name, str(kept.dtype), tuple(kept.shape[1:]), first_token, data)

    def checked(self, total: int) -> SideRows:
        """These rows after a check, with `data` as a memoryview of bytes.

        total: how many tokens the prompt and output have. Raises AnswerInvalid for rows that can't
        be theirs.
        """
        try:
            size = row_bytes(self.dtype, self.shape)
            data = memoryview(self.data).cast("B")
        except (TypeError, ValueError) as error:
            raise AnswerInvalid(f"side data '{self.name}': {error}") from None
        rows, rest = divmod(len(data), size)
        if rest:
            raise AnswerInvalid(
                f"side data '{self.name}' has {len(data)} bytes, which is not a whole number of "
                f"rows of {size} bytes"
            )
        if self.first_token < 0 or self.first_token + rows > total:
            raise AnswerInvalid(
                f"side data '{self.name}' has {rows} rows from token {self.first_token} on, but "
                f"there are {total} tokens"
            )
        return replace(self, data=data)

    @property
    def size(self) -> int:
        """Bytes of a row."""
        return row_bytes(self.dtype, self.shape)

    @property
    def tokens(self) -> int:
        """How many rows there are."""
        return memoryview(self.data).nbytes // self.size

    @property
    def end(self) -> int:
        """The first token after the last token with a row."""
        return self.first_token + self.tokens

    def followed_by(self, other: SideRows) -> SideRows:
        """These rows, followed by the rows of `other`. For a token with a row in both, the row of
        this object is kept.

        Raises AnswerInvalid for rows of another type, and for a gap.
        """
        if (other.name, other.dtype, other.shape) != (self.name, self.dtype, self.shape):
            raise AnswerInvalid(
                f"side data '{self.name}' changes its type or shape between two parts"
            )
        if other.first_token > self.end:
            raise AnswerInvalid(f"side data '{self.name}' has no row for token {self.end}")
        rest = other.behind(self.end)
        return replace(self, data=bytes(self.data) + bytes(rest.data))

    def behind(self, known: int) -> SideRows:
        """These rows without the rows of the first `known` tokens. The numbers are not copied."""
        skipped = min(max(known - self.first_token, 0), self.tokens)
        if not skipped:
            return self
        data = memoryview(self.data).cast("B")[skipped * self.size :]
        return replace(self, first_token=self.first_token + skipped, data=data)


def picked(name: str, given: Any, asked: frozenset[str], total: int) -> list[SideRows]:
    """The requested side data of an engine's answer, checked.

    name: the name of the engine or model, for errors. given: what the engine returned. Raises
    AnswerInvalid.
    """
    found: dict[str, SideRows] = {}
    for one in given:
        if not isinstance(one, SideRows):
            raise AnswerInvalid(
                f"'side_data' must be a list of SideRows, but has a {type(one).__name__}"
            )
        if one.name in found:
            raise AnswerInvalid(f"side data '{one.name}' appears twice")
        if one.name in asked:
            found[one.name] = one.checked(total)
    if missing := asked - found.keys():
        raise AnswerInvalid(
            f"{name} is configured to return side data, but the answer has no "
            f"{', '.join(sorted(missing))}"
        )
    return list(found.values())


def rows_known(known: Mapping[str, int], name: str, first_token: int, tokens: int) -> int:
    """How many leading tokens have a row without a gap, including the rows that this call added.

    known: this number before the call, by the side data's name.
    """
    before = known.get(name, 0)
    return max(before, first_token + tokens) if first_token <= before else before
