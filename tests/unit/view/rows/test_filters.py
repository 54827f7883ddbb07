"""Filters and orders by SQL find what a loop over all rows finds."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymmesh_client import UserError
from gymmesh_view import Filters, Sort, find_sources, parse_filters, parse_sort
from gymmesh_view.index.indexing import Indexer, index_path
from gymmesh_view.index.store import Store
from gymmesh_view.rows.filters import SORTS, words_of
from tests.unit.data.rows import call, row, text

Json = dict[str, Any]

ENVIRONMENTS = ("sums", "shop", "a b%'\"")
TOOLS = ("add", "take", "look")
WORDS = ("apple", "tea", "Bread", "café", "appletree", "x9")


def made_rows() -> list[Json]:
    """Rows whose columns have every combination that the filters ask for."""
    rows = []
    for number in range(90):
        tools = [tool for at, tool in enumerate(TOOLS) if number >> at & 1]
        said = [text(f"{WORDS[number % 6]} {WORDS[number // 6 % 6]}_{number}")]
        calls = [call(tool, "{}", f"c{at}") for at, tool in enumerate(tools)]
        made = row(
            *calls,
            *said,
            task=f"task-{number % 7}",
            repeat=number // 7,
            reward=[0.0, 0.5, 1.0, None][number % 4],
            environment=ENVIRONMENTS[number % 3],
            tags={"level": ("easy", "hard")[number % 2], "set": str(number % 5)},
            metadata={
                "steps_taken": number % 6,
                "timings": {"duration_us": number * 7919 % 1000, "started_at": 1e9 + number % 11},
            },
        )
        made["stop_reason"] = ("MODEL_FINISHED", "MAX_STEPS")[number % 5 == 0]
        made["response"]["usage"] = {"output_tokens": number % 13}
        if number % 9 == 0:
            del made["reward"], made["stop_reason"]
            status = {"code": 14, "reason": "MODEL_SERVER_ERROR", "message": "it failed"}
            made["failure"] = {"boundary": "MODEL", "status": status}
        rows.append(made)
    return rows


ROWS = made_rows()


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    folder = tmp_path_factory.mktemp("view")
    path = folder / "rows.jsonl"
    path.write_text("".join(json.dumps(one) + "\n" for one in ROWS))
    indexer = Indexer(find_sources([path]).sources, folder / "index.sqlite")
    indexer.prepare()
    indexer.run_once()
    store = Store(folder / "index.sqlite", deep=20)
    yield store
    store.close()
    indexer.stop()


def wanted(made: Json, filters: Filters) -> bool:
    """Whether a row is one of these, by its own keys."""
    failed, reward = "failure" in made, made.get("reward")
    tools = {one["name"] for one in made["response"]["output"] if one["type"] == "function_call"}
    tags = {f"{key}={value}" for key, value in made["tags"].items()}
    turns = made["metadata"]["steps_taken"]
    status = made.get("failure", {}).get("status", {})
    # No word that is asked for stands among the keys of a row.
    have = words_of(json.dumps(made, ensure_ascii=False))
    asked = words_of(filters.text)
    return (
        (not filters.environment or made["environment"] in filters.environment)
        and (not filters.stop or made.get("stop_reason", "") in filters.stop)
        and (not filters.cause or status.get("reason", "") in filters.cause)
        and (not filters.task or made["task_id"] == filters.task)
        and (not filters.outcome or failed == (filters.outcome == "failed"))
        and set(filters.tool) <= tools
        and set(filters.tag) <= tags
        and (filters.min_reward is None or (reward is not None and reward >= filters.min_reward))
        and (filters.max_reward is None or (reward is not None and reward <= filters.max_reward))
        and (not filters.no_reward or reward is None)
        and (filters.min_turns is None or turns >= filters.min_turns)
        and (filters.max_turns is None or turns <= filters.max_turns)
        and all(
            any(one.startswith(word) if word is asked[-1] else one == word for one in have)
            for word in asked
        )
    )


def some(values: tuple[str, ...]) -> st.SearchStrategy[tuple[str, ...]]:
    return st.lists(st.sampled_from(values), max_size=2, unique=True).map(tuple)


numbers = st.none() | st.sampled_from([0.0, 0.25, 0.5, 1.0])
all_filters = st.builds(
    Filters,
    text=st.sampled_from(["", "", "apple", "app", "tea bread", "BREAD", "x9 tea", "nowhere"]),
    environment=some((*ENVIRONMENTS, "none")),
    task=st.sampled_from(["", "", "task-1", "task-6", "other"]),
    outcome=st.sampled_from(["", "", "completed", "failed"]),
    stop=some(("MODEL_FINISHED", "MAX_STEPS", "")),
    cause=some(("MODEL_SERVER_ERROR",)),
    tag=some(("level=easy", "level=hard", "set=3", "set=9")),
    tool=some(TOOLS),
    min_reward=numbers,
    max_reward=numbers,
    no_reward=st.booleans(),
    min_turns=st.none() | st.integers(0, 6),
    max_turns=st.none() | st.integers(0, 6),
)
sorts = st.builds(Sort, st.sampled_from(sorted(SORTS)), st.booleans())
VALUES: dict[str, Callable[[Json, int], Any]] = {
    "order": lambda made, at: at,
    "reward": lambda made, at: made.get("reward"),
    "task": lambda made, at: int(made["task_id"][-1]),
    "repeat": lambda made, at: made["repeat_index"],
    "turns": lambda made, at: made["metadata"]["steps_taken"],
    "tools": lambda made, at: sum(
        one["type"] == "function_call" for one in made["response"]["output"]
    ),
    "tokens": lambda made, at: made["response"]["usage"]["output_tokens"],
    "duration": lambda made, at: made["metadata"]["timings"]["duration_us"],
    "started": lambda made, at: made["metadata"]["timings"]["started_at"],
}


def in_order(filters: Filters, sort: Sort) -> list[str]:
    """The ids that a loop finds, in the order that Python's sort gives."""
    found = [(at, made) for at, made in enumerate(ROWS) if wanted(made, filters)]
    if sort.descending:
        found.reverse()

    def key(one: tuple[int, Json]) -> tuple[bool, float]:
        value = VALUES[sort.by](one[1], one[0])
        number = 0.0 if value is None else float(value)
        return value is None, -number if sort.descending else number

    return [made["rollout_id"] for _, made in sorted(found, key=key)]


@given(all_filters, sorts)
def test_sql_finds_what_a_loop_finds(store: Store, filters: Filters, sort: Sort) -> None:
    expected = in_order(filters, sort)
    listed = [one["rollout_id"] for one in store.listed(filters, sort, 0, 1000)]
    assert listed == expected
    assert store.counted(filters) == len(expected)


@given(all_filters, sorts, st.integers(0, 100), st.integers(1, 40))
def test_pages_are_parts_of_the_whole(
    store: Store, filters: Filters, sort: Sort, offset: int, limit: int
) -> None:
    whole = [one["key"] for one in store.listed(filters, sort, 0, 1000)]
    page = [one["key"] for one in store.listed(filters, sort, offset, limit)]
    assert page == whole[offset : offset + limit]


def query_of(filters: Filters) -> dict[str, list[str]]:
    """The query that stands for some filters."""
    query: dict[str, list[str]] = {}
    for field in fields(Filters):
        value = getattr(filters, field.name)
        if isinstance(value, tuple):
            query[field.name] = list(value)
        elif isinstance(value, bool):
            query[field.name] = ["1"] if value else []
        elif value not in ("", None):
            query[field.name] = [str(value)]
    return query


@given(all_filters)
def test_a_query_stands_for_its_filters(filters: Filters) -> None:
    again = parse_filters(query_of(filters))
    # What is empty asks for nothing, and has no place in a URL.
    assert again == parse_filters(query_of(again))
    assert (again.environment, again.min_reward) == (filters.environment, filters.min_reward)


@given(all_filters)
def test_the_overview_counts_what_the_table_has(store: Store, filters: Filters) -> None:
    found = [made for made in ROWS if wanted(made, filters)]
    overview = store.overview(filters)
    rewards = [made["reward"] for made in found if made.get("reward") is not None]
    totals = overview["totals"]
    assert totals["rollouts"] == len(found)
    assert totals["failed"] == sum("failure" in made for made in found)
    assert totals["rewarded"] == len(rewards)
    if rewards:
        assert math.isclose(totals["mean_reward"], sum(rewards) / len(rewards))
    assert sum(one["count"] for one in overview["rewards"]) == len(rewards)
    assert sum(one["count"] for one in overview["turns"]) == len(found)
    assert sum(one["rollouts"] for one in overview["environments"]) == len(found)
    ended = sum(one["count"] for one in overview["stops"] + overview["causes"])
    assert ended == len(found)


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ({"min_reward": ["high"]}, "min_reward: must be a number"),
        ({"max_turns": ["inf"]}, "max_turns: must be a finite number"),
        ({"outcome": ["maybe"]}, "outcome: must be 'completed' or 'failed'"),
        ({"tag": ["a"] * 101}, "tag: has more than 100 values"),
    ],
)
def test_wrong_filters_are_named(query: dict[str, list[str]], said: str) -> None:
    with pytest.raises(UserError, match=said):
        parse_filters(query)


def test_an_unknown_order_is_named() -> None:
    with pytest.raises(UserError, match="'colour' is not a column to sort by"):
        parse_sort("-colour")


@pytest.mark.parametrize("hostile", ['"', "* OR *", 'a" NEAR b', "'; DROP TABLE rollouts;--", "("])
def test_no_text_is_a_query(store: Store, hostile: str) -> None:
    assert store.counted(Filters(text=hostile)) >= 0
    assert store.counted(Filters(task=hostile, tag=(hostile,))) == 0
    assert store.counted(Filters()) == len(ROWS)


def test_runs_are_told_apart_by_their_place_below_their_folder(tmp_path: Path) -> None:
    for number, name in enumerate(("night/rows.jsonl", "day/rows.jsonl")):
        path = tmp_path / "runs" / name
        path.parent.mkdir(parents=True)
        path.write_text("".join(json.dumps(one) + "\n" for one in ROWS[: 3 + number]))
    paths = [tmp_path / "runs" / "night" / "rows.jsonl", tmp_path / "runs" / "day"]
    found: list[Path] = []
    for order in (paths, paths[::-1]):
        sources = find_sources(order).sources
        index = tmp_path / f"{len(found)}.sqlite"
        indexer = Indexer(sources, index)
        indexer.prepare()
        indexer.run_once()
        indexer.stop()
        store = Store(index)
        assert store.facets()["run"] == ["day/rows.jsonl", "night/rows.jsonl"]
        assert store.counted(Filters(run=("night/rows.jsonl",))) == 3
        rows = store.listed(Filters(run=("day/rows.jsonl",)), Sort(), 0, 10)
        assert {(one["run"], sources[one["source"]].path.parent.name) for one in rows} == {
            ("day/rows.jsonl", "day")
        }
        found.append(index_path(sources))
        store.close()
    # An index has its sources' numbers, so another order has another one.
    assert found[0] != found[1]


def test_repeats_and_facets(store: Store) -> None:
    repeats = store.repeats("task-3")
    expected = [made["repeat_index"] for made in ROWS if made["task_id"] == "task-3"]
    assert [one["repeat"] for one in repeats] == expected
    facets = store.facets()
    assert facets["environment"] == sorted(ENVIRONMENTS)
    assert facets["tool"] == sorted(TOOLS)


def test_rows_out_of_bins_are_in_bins_of_one_width(tmp_path: Path) -> None:
    rows = [row(text("a"), repeat=at, reward=at / 97) for at in range(98)]
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(one) + "\n" for one in rows))
    indexer = Indexer(find_sources([path]).sources, tmp_path / "index.sqlite")
    indexer.prepare()
    indexer.run_once()
    store = Store(tmp_path / "index.sqlite")
    bins = store.overview(Filters())["rewards"]
    store.close()
    indexer.stop()
    assert [round(one["from"], 9) for one in bins] == [at / 20 for at in range(20)]
    assert sum(one["count"] for one in bins) == 98
    for one in bins:
        # The values at its ends choose just the rollouts of a bin.
        inside = sum(one["least"] <= made["reward"] <= one["most"] for made in rows)
        assert inside == one["count"]
        assert one["from"] - 1e-9 <= one["least"] <= one["most"] <= one["to"] + 1e-9


def test_totals_of_more_tokens_than_an_int64_holds(tmp_path: Path) -> None:
    made = [row(text("a"), repeat=at, reward=1.0) for at in range(3)]
    for one in made:
        one["response"]["usage"] = {"input_tokens": 2**63 - 1, "output_tokens": 7}
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(one) + "\n" for one in made))
    indexer = Indexer(find_sources([path]).sources, tmp_path / "index.sqlite")
    indexer.prepare()
    indexer.run_once()
    store = Store(tmp_path / "index.sqlite")
    totals = store.overview(Filters())["totals"]
    store.close()
    indexer.stop()
    assert (totals["input_total"], totals["output_total"]) == (2**63 - 1, 21)
