from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymmesh_model.routing import Router, ranking

NAMES = ("http://a/v1", "http://b/v1", "http://c/v1")
# By what they rank first, second and third.
ORDER = {"r0": ranking("r0", NAMES)}
FIRST, SECOND, THIRD = ORDER["r0"]


def loads(**by_rank: float) -> list[float]:
    """Loads by the rank of their endpoint for the rollout r0."""
    given = [0.0, 0.0, 0.0]
    for name, value in by_rank.items():
        given[{"first": FIRST, "second": SECOND, "third": THIRD}[name]] = value
    return given


@dataclass(frozen=True)
class Row:
    """before: where an earlier call of the rollout was answered. goes: where this one goes."""

    name: str
    goes: int | None
    loads: list[float] = field(default_factory=loads)
    barred: tuple[int, ...] = ()
    before: int | None = None


TABLE = [
    Row("all idle: the first of the ranking", FIRST),
    Row("as busy as the margin allows: stays", FIRST, loads(first=4)),
    Row("busier than the margin: the next", SECOND, loads(first=5)),
    Row("the margin counts from the least busy", FIRST, loads(first=9, second=5, third=6)),
    Row("the next is too busy as well: the third", THIRD, loads(first=9, second=8)),
    Row("the first is barred: the next", SECOND, barred=(FIRST,)),
    Row("a barred one's idleness counts for nothing", FIRST, loads(first=9, third=8), (SECOND,)),
    Row("two are barred: the last, however busy", THIRD, loads(third=99), (FIRST, SECOND)),
    Row("all are barred: nowhere", None, barred=(0, 1, 2)),
    Row("after a move: where its prefix is", THIRD, before=THIRD),
    Row("after a move: also while the first is idle", THIRD, loads(third=4), before=THIRD),
    Row("moved, and too busy there: by the ranking", FIRST, loads(third=5), before=THIRD),
    Row("moved, and barred there: by the ranking", FIRST, barred=(THIRD,), before=THIRD),
    Row("moved and back", FIRST, before=FIRST),
]


@pytest.mark.parametrize("row", TABLE, ids=lambda row: row.name)
def test_where_a_call_goes(row: Row) -> None:
    router = Router(NAMES, margin=4)
    if row.before is not None:
        router.answered("r0", row.before)
    assert router.choose("r0", row.loads, row.barred) == row.goes


def test_a_home_moves_with_the_answer() -> None:
    router = Router(NAMES, margin=4)
    assert router.home("r0") == FIRST
    router.answered("r0", SECOND)
    assert router.home("r0") == SECOND
    router.answered("r0", FIRST)
    assert router.home("r0") == FIRST


def test_what_is_remembered_is_bounded() -> None:
    router = Router(NAMES, margin=4, remembered=2)
    moved = {key: ranking(key, NAMES)[1] for key in ("a", "b", "c")}
    for key, place in moved.items():
        router.answered(key, place)
    assert router.home("a") == ranking("a", NAMES)[0]
    assert [router.home(key) for key in ("b", "c")] == [moved["b"], moved["c"]]


def test_calls_without_a_rollout_go_to_the_least_busy_by_turns() -> None:
    router = Router(NAMES, margin=4)
    assert [router.choose("", [1, 1, 1]) for _ in range(4)] == [0, 1, 2, 0]
    assert router.choose("", [3, 2, 1]) == 2
    router.answered("", 1)
    assert router.choose("", [0, 1, 1]) == 0


def test_rankings_are_even_and_survive_a_change() -> None:
    """An endpoint that goes moves its own rollouts only, and these evenly."""
    keys = [f"run-1/t{number}/0" for number in range(3000)]
    before = {key: NAMES[ranking(key, NAMES)[0]] for key in keys}
    after = {key: NAMES[:2][ranking(key, NAMES[:2])[0]] for key in keys}
    assert all(900 < count < 1100 for count in Counter(before.values()).values())
    moved = [key for key in keys if before[key] != after[key]]
    assert all(before[key] == NAMES[2] for key in moved)
    assert len(moved) == Counter(before.values())[NAMES[2]]
    assert all(count > 420 for count in Counter(after[key] for key in moved).values())


def test_rankings_are_the_same_in_every_process() -> None:
    """Two model services must agree; so this order is fixed, here and for ever."""
    assert [ranking(f"r{n}", NAMES) for n in range(4)] == EXPECTED


@given(
    st.text(max_size=4),
    st.lists(st.floats(0, 50), min_size=1, max_size=6),
    st.data(),
)
def test_a_choice_is_never_barred_nor_too_busy(
    key: str, busy: list[float], data: st.DataObject
) -> None:
    names = [f"http://{place}" for place in range(len(busy))]
    barred = data.draw(st.sets(st.integers(0, len(busy) - 1)))
    router = Router(names, margin=7)
    router.answered(key, data.draw(st.integers(0, len(busy) - 1)))
    chosen = router.choose(key, busy, barred)
    usable = [load for place, load in enumerate(busy) if place not in barred]
    if not usable:
        assert chosen is None
        return
    assert chosen is not None
    assert chosen not in barred
    assert busy[chosen] <= min(usable) + (7 if key else 0)


EXPECTED = [(0, 1, 2), (0, 2, 1), (0, 1, 2), (2, 0, 1)]
