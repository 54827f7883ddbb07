"""Bytes drawn many at a time are never given twice, not even to a forked process."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor

from hypothesis import given
from hypothesis import strategies as st

from gymmesh_runtime.entropy import token_hex, token_number


@given(counts=st.lists(st.integers(8, 9000), max_size=20))
def test_as_many_as_asked_for_and_none_twice(counts: list[int]) -> None:
    given_out = [bytes.fromhex(token_hex(count)) for count in counts]
    assert [len(one) for one in given_out] == counts
    pieces = [one[at : at + 8] for one in given_out for at in range(0, len(one) - 7, 8)]
    assert len(set(pieces)) == len(pieces)


def test_tokens_are_hexadecimal_digits() -> None:
    tokens = {token_hex(16) for _ in range(1000)}
    assert len(tokens) == 1000
    assert all(len(one) == 32 and set(one) <= set("0123456789abcdef") for one in tokens)


def test_numbers_have_all_of_53_bits() -> None:
    numbers = [token_number() for _ in range(2000)]
    assert len(set(numbers)) == 2000
    set_in_any, set_in_all = 0, 2**53 - 1
    for number in numbers:
        set_in_any |= number
        set_in_all &= number
    assert (set_in_any, set_in_all) == (2**53 - 1, 0)


def test_threads_are_given_others() -> None:
    with ThreadPoolExecutor(8) as threads:
        given_out = list(threads.map(token_hex, [12] * 4000))
    assert len(set(given_out)) == 4000


def test_a_forked_process_draws_its_own() -> None:
    token_hex(16)  # more are drawn than one
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(write, token_hex(16).encode())
        os._exit(0)
    os.waitpid(child, 0)
    theirs = os.read(read, 32).decode()
    os.close(read)
    os.close(write)
    assert len(theirs) == 32
    assert theirs != token_hex(16)
