"""What a reader sees: values drawn to scale, errors as errors, runs apart, tokens as text."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from gymmesh_view import Filters, Sort, ViewSource, find_sources, write_bundle
from tests.view.browser import Requests, served, until
from tests.view.desk import TASK, write_desk, write_tokenizer
from tests.view.rows import row, text
from tests.view.test_page import count, show

PHONE: Final = {"width": 420, "height": 880}
FAILED_TOOLS: Final = f"#/rollout/ro-{TASK}-1"


@contextmanager
def opened(browser: Any, sources: Sequence[ViewSource], folder: Path, **more: Any) -> Iterator[Any]:
    """A page over some sources, in which nothing may go wrong."""
    with served(sources, folder / "index.sqlite") as url:
        context = browser.new_context(viewport={"width": 1280, "height": 820} | more)
        page = context.new_page()
        page.set_default_timeout(120_000)
        requests = Requests(page)
        page.goto(url)
        page.wait_for_selector("a.open")
        yield page
        assert requests.errors == []
        context.close()


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Rollouts with tools that fail, and no vocabulary beside them."""
    return write_desk(tmp_path_factory.mktemp("desk") / "desk.jsonl")


def middle(locator: Any) -> float:
    """Where the middle of an element is, from the left of the page."""
    box = locator.bounding_box()
    found: float = box["x"] + box["width"] / 2
    return found


@pytest.mark.parametrize("width", [420, 1280, 1920])
@pytest.mark.parametrize("rewards", [(0.0, 0.1, 0.1, 1.0), (0.1, 0.1, 0.1)])
def test_a_reward_is_drawn_at_its_value(
    browser: Any, tmp_path: Path, rewards: tuple[float, ...], width: int
) -> None:
    made = [row("sums", at, 0, "What?", [text("a")], one) for at, one in enumerate(rewards)]
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(one) + "\n" for one in made))
    with opened(browser, find_sources([path]).sources, tmp_path, width=width) as page:
        show(page, "#/overview", ".plots")
        plot = page.locator("figure", has=page.get_by_role("list", name="Rewards"))
        ticks = {float(one.inner_text()): middle(one) for one in plot.locator(".ticks span").all()}
        assert min(ticks) == 0
        assert max(ticks) == 1
        many = rewards.count(0.1)
        bar = plot.get_by_role("link", name=f"Rewards 0.1: {many} rollouts")
        wanted = ticks[0] + 0.1 * (ticks[1] - ticks[0])
        assert abs(middle(bar) - wanted) < 1.5
        # Heights are to scale, too, between the labels of two counts.
        lines = {
            int(one.inner_text()): one.bounding_box() for one in plot.locator(".counts span").all()
        }
        level = {number: box["y"] + box["height"] / 2 for number, box in lines.items()}
        top = bar.locator(".bin").bounding_box()["y"]
        most = max(level)
        assert abs(top - (level[0] - (level[0] - level[most]) * many / most)) < 2.5
        bar.click()
        until(lambda: page.locator("a.open").count() == many, page)
        until(lambda: count(page) == str(many), page)


def test_a_bar_leads_to_just_the_rollouts_that_it_counts(page: Any) -> None:
    show(page, "#/overview", ".plots")
    bars = page.get_by_role("list", name="Rewards").get_by_role("link")
    said = [bars.nth(at).get_attribute("aria-label") for at in range(bars.count())]
    counts = [int(re.search(r": (\d+) rollouts?$", one)[1]) for one in said]  # type: ignore[index]
    ask = "filters => fetch(`/api/count?${filters}`).then(answer => answer.json())"
    for at, wanted in enumerate(counts):
        query = bars.nth(at).get_attribute("href").partition("?")[2]
        assert page.evaluate(ask, query)["count"] == wanted, said[at]


def test_errors_of_tools_look_like_errors(browser: Any, desk: Path, tmp_path: Path) -> None:
    with opened(browser, find_sources([desk]).sources, tmp_path) as page:

        def colours(item: Any) -> Any:
            ask = "one => [getComputedStyle(one).backgroundColor, getComputedStyle(one).color]"
            return item.evaluate(ask)

        show(page, f"#/rollout/ro-{TASK}-0", ".conversation")
        fine = page.locator(".item.result")
        assert fine.locator(".badge").count() == 0
        plain = colours(fine)
        show(page, FAILED_TOOLS, ".conversation")
        results = page.locator(".item.result")
        assert results.locator(".badge.bad").all_inner_texts() == [
            "tool error", "bad arguments", "unknown tool",
        ]  # fmt: skip
        assert all(colours(results.nth(at))[0] != plain[0] for at in range(3))


def test_the_reward_is_the_second_column_and_seen_on_a_phone(browser: Any, address: str) -> None:
    page = browser.new_context(viewport=PHONE).new_page()
    page.goto(address)
    page.wait_for_selector("a.open")
    heads = page.locator("table.rollouts th").all_inner_texts()
    assert [one.split(" ")[0] for one in heads[:4]] == ["Marked", "Task", "Reward", "Repeat"]
    for cell in (page.locator("th", has_text="Reward"), page.locator("tr td:nth-child(3)").first):
        box = cell.bounding_box()
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= PHONE["width"]
    page.context.close()


def test_the_repeat_has_a_column(page: Any) -> None:
    cells = page.locator("tbody tr td:nth-child(4)")
    assert cells.all_inner_texts()[:5] == ["0", "1", "2", "3", "0"]
    page.get_by_role("button", name="Repeat", exact=True).click()
    until(lambda: "sort=-repeat" in page.url, page)
    until(lambda: cells.first.inner_text() == "10", page)  # of the rows that mean harm


@pytest.mark.parametrize("kind", ["served", "bundle"])
def test_repeats_of_a_merged_file_are_apart_by_run(browser: Any, tmp_path: Path, kind: str) -> None:
    sources = find_sources([write_desk(tmp_path / "merged.jsonl", ("run-a", "run-b"))]).sources
    with served(sources, tmp_path / "index.sqlite") as url:
        if kind == "bundle":
            site, index = tmp_path / "site", tmp_path / "other.sqlite"
            write_bundle(sources, site, Filters(), Sort(), limit=9, index=index)
            url = (site / "index.html").as_uri()
        page = browser.new_context().new_page()
        page.goto(url)
        page.wait_for_selector("a.open")
        show(page, f"#/task/{TASK}", ".column .conversation")
        assert page.locator("section.run h2").all_inner_texts() == ["run-a", "run-b"]
        for run in ("run-a", "run-b"):
            region = page.get_by_role("region", name=f"Run {run}", exact=True)
            assert region.locator(".column h3 a").all_inner_texts() == ["repeat 0", "repeat 1"]
            assert "2 repeats · mean reward 0.55" in region.inner_text()
        page.context.close()


def test_evidence_is_open_where_the_reward_is_below_one(
    browser: Any, desk: Path, tmp_path: Path
) -> None:
    with opened(browser, find_sources([desk]).sources, tmp_path) as page:
        evidence = page.locator("aside details", has_text="evidence").locator("pre").first
        show(page, f"#/rollout/ro-{TASK}-1?at=1", "aside details")
        assert evidence.is_visible()
        # From one rollout to another, each has its own.
        page.get_by_role("button", name="previous").click()
        until(lambda: f"ro-{TASK}-0" in page.url, page)
        page.wait_for_selector(f"h1:has-text('{TASK} repeat 0')")
        assert not evidence.is_visible()


def test_reasoning_can_be_folded_where_there_is_some(page: Any) -> None:
    fold = page.get_by_role("button", name="Fold reasoning")
    show(page, "#/rollout/ro-pictures-2-0", ".conversation")
    assert fold.count() == 0
    show(page, "#/rollout/ro-shop-4-2", ".conversation")
    assert fold.count() == 1


def test_bars_of_a_timeline_have_names_of_their_own(page: Any) -> None:
    for key in ("ro-shop-4-2", "ro-sums-1-0", "ro-debate-3-0"):
        show(page, f"#/rollout/{key}", "table.timeline")
        names = page.locator("table.timeline th").all_inner_texts()
        assert len(set(names)) == len(names) > 1


def test_tokens_without_a_vocabulary_are_ids_and_why_is_said(
    browser: Any, desk: Path, tmp_path: Path
) -> None:
    with opened(browser, find_sources([desk]).sources, tmp_path) as page:
        show(page, FAILED_TOOLS, ".conversation")
        page.get_by_role("button", name=re.compile("Show .* tokens")).last.click()
        page.wait_for_selector(".heat-map")
        assert page.get_by_text(
            "No tokenizer.json was found in the folder of the rows."
        ).is_visible()
        assert page.get_by_text("gym-cli view --tokenizer PATH").is_visible()
        assert re.fullmatch(r"\d+", page.locator(".token").first.inner_text())
        assert page.get_by_role("button", name="Show as ids").count() == 0


@pytest.mark.parametrize("kind", ["served", "bundle"])
def test_tokens_are_read_as_text(browser: Any, tmp_path: Path, kind: str) -> None:
    sources = find_sources([write_desk(tmp_path / "desk.jsonl")]).sources
    write_tokenizer(tmp_path / "tokenizer.json")
    with served(sources, tmp_path / "index.sqlite") as url:
        if kind == "bundle":
            site, index = tmp_path / "site", tmp_path / "other.sqlite"
            write_bundle(sources, site, Filters(), Sort(), limit=9, index=index)
            url = (site / "index.html").as_uri()
        page = browser.new_context().new_page()
        page.goto(url)
        page.wait_for_selector("a.open")
        show(page, f"#/rollout/ro-{TASK}-0", ".conversation")
        page.get_by_role("button", name=re.compile("Show .* tokens")).last.click()
        page.wait_for_selector(".heat-map")
        heat = page.locator(".heat-map")
        said = "The ticket is open.\u21b5\nIt waits for the customer\u2019s answer \u2615.<|end|>"
        assert heat.inner_text() == said
        assert "The ticket is open" in heat.get_attribute("aria-label")
        assert page.get_by_text("Text from tokenizer.json.").is_visible()
        assert page.locator(".heat .badge").count() == 0
        # Text is read in lines, so tokens of one line are at one height.
        tops = [one.bounding_box()["y"] for one in heat.locator(".token").all()[:4]]
        assert max(tops) - min(tops) < 1
        page.get_by_role("button", name="Show as ids").click()
        until(lambda: heat.locator(".token").first.inner_text().isdigit(), page)
        page.get_by_role("button", name="Show as text").click()
        until(lambda: heat.inner_text() == said, page)
        page.context.close()


def test_a_vocabulary_that_is_another_models_is_doubted(browser: Any, tmp_path: Path) -> None:
    sources = find_sources([write_desk(tmp_path / "desk.jsonl")]).sources
    other = {"model": {"type": "BPE", "vocab": {f"w{number}": number for number in range(400)}}}
    (tmp_path / "tokenizer.json").write_text(json.dumps(other))
    with opened(browser, sources, tmp_path) as page:
        show(page, FAILED_TOOLS, ".conversation")
        page.get_by_role("button", name=re.compile("Show .* tokens")).last.click()
        doubt = page.locator(".heat .badge.warn")
        doubt.wait_for()
        assert "does not contain the answer" in doubt.inner_text()


def test_nothing_is_wider_than_a_phone(browser: Any, address: str) -> None:
    page = browser.new_context(viewport=PHONE).new_page()
    page.goto(address)
    page.wait_for_selector("a.open")
    for place, sign in (
        ("#/", "a.open"),
        ("#/overview", ".plots"),
        ("#/rollout/ro-shop-4-2?at=18", ".conversation"),
        ("#/rollout/ro-debate-3-0?view=critic", ".tabs"),
        ("#/rollout/hostile-1", ".conversation"),
        ("#/task/shop-4", ".column .conversation"),
        ("#/diff/ro-sums-1-0/ro-sums-1-1", ".pairs"),
    ):
        show(page, place, sign)
        width = page.evaluate("document.documentElement.scrollWidth")
        assert width <= PHONE["width"], place
    show(page, "#/rollout/ro-shop-4-2?at=18", ".conversation")
    steps, first = page.locator(".steps").bounding_box(), page.locator(".item").first.bounding_box()
    assert steps["y"] + steps["height"] <= first["y"]
    page.context.close()


def test_filters_of_a_phone_are_behind_a_button(browser: Any, address: str) -> None:
    page = browser.new_context(viewport=PHONE).new_page()
    page.goto(address)
    page.wait_for_selector("a.open")
    environment = page.get_by_role("combobox", name="Environment")
    assert not environment.is_visible()
    page.get_by_role("button", name="Filters").click()
    environment.select_option("shop")
    until(lambda: count(page) == "41", page)
    assert page.get_by_role("button", name="Filters").get_attribute("aria-expanded") == "true"
    page.context.close()
