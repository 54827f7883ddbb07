"""The line that says how a process ended."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from gymmesh_sandbox.backends.image_shell.end_mark import EndMark

WORD = b"5f0c5f0c5f0c"


@given(
    st.lists(st.sampled_from((b"5f0c", b"5f0c5f0c5", b"a", b"\n", b"")), max_size=9).map(b"".join),
    st.binary(max_size=9),
    st.lists(st.integers(0, 60), max_size=8),
)
def test_the_end_is_found_however_it_is_cut(before: bytes, after: bytes, cuts: list[int]) -> None:
    text = before + WORD + b" 137 1 2\n" + after
    at = text.find(WORD)
    places = [0, *sorted(min(one, len(text)) for one in cuts), len(text)]
    mark = EndMark(WORD)
    said = b"".join(mark.take(text[start:end]) for start, end in itertools.pairwise(places))
    assert mark.numbers == (137, 1, 2) or at < len(before)
    if at == len(before):
        assert said + mark.rest() == before + after


@given(st.binary(max_size=40), st.integers(0, 40))
def test_nothing_is_lost_without_an_end(text: bytes, cut: int) -> None:
    text = text.replace(WORD, b"")
    mark = EndMark(WORD)
    assert mark.take(text[:cut]) + mark.take(text[cut:]) + mark.rest() == text
    assert mark.numbers is None
