"""Every feature of the page in a browser, with rows of which some mean harm."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, Final

import pytest

from gymmesh_view import Filters, Sort, find_sources, write_bundle
from tests.view.browser import Requests, served, until
from tests.view.rows import HOSTILE, hostile, row, text, write_scene

AXE: Final = (
    Path(__file__).resolve().parents[2] / "clients/view/ui/node_modules/axe-core/axe.min.js"
)
ALL: Final = 162  # 40 tasks, four times each, and two that mean harm


def show(page: Any, place: str, sign: str) -> None:
    """Go to a place in the page, and wait for what shows that one is there."""
    base = page.url.partition("#")[0]
    page.goto("about:blank")  # so that nothing of the place before is still there
    page.goto(base + place)
    page.wait_for_selector(sign)


def count(page: Any) -> str:
    found: str = page.locator(".count strong").inner_text()
    return found


def counted(page: Any, filters: str) -> str:
    """How many rollouts there are, by the server: the page may still show the count before."""
    ask = "filters => fetch(`/api/count?${filters}`).then(answer => answer.json())"
    return str(page.evaluate(ask, filters)["count"])


def tasks(page: Any) -> list[str]:
    """The tasks of the table's rows."""
    found: list[str] = page.locator("a.open").all_inner_texts()
    return found


def test_the_token_leaves_the_address(page: Any) -> None:
    assert "token" not in page.url
    assert page.evaluate("document.cookie") == ""


def test_the_table_has_pages(page: Any) -> None:
    until(lambda: count(page) == str(ALL), page)
    assert len(tasks(page)) == 100
    page.get_by_role("button", name="next →").click()
    until(lambda: len(tasks(page)) == ALL - 100, page)
    assert "page=2" in page.url
    assert page.get_by_role("button", name="last").is_disabled()


def test_filters_are_in_the_url_and_come_back_from_it(page: Any) -> None:
    page.get_by_label("Environment").select_option("shop")
    until(lambda: count(page) == "41", page)
    page.get_by_label("Outcome").select_option("completed")
    page.get_by_label("Reward from").fill("1")
    until(lambda: "min_reward=1" in page.url, page)
    found, url = counted(page, "environment=shop&outcome=completed&min_reward=1"), page.url
    assert 0 < int(found) < 41
    until(lambda: count(page) == found, page)
    page.goto("about:blank")
    page.goto(url)
    page.wait_for_selector("a.open")
    until(lambda: count(page) == found, page)
    assert page.get_by_role("combobox", name="Environment").input_value() == "shop"
    page.get_by_role("button", name="Remove the filter environment shop").click()
    until(lambda: int(count(page)) > int(found), page)
    page.get_by_role("button", name="Clear all").click()
    until(lambda: count(page) == str(ALL), page)


def test_a_filter_that_is_typed_keeps_one_that_is_chosen_meanwhile(page: Any) -> None:
    page.get_by_label("Reward from").fill("1")
    page.get_by_label("Environment").select_option("shop")
    until(lambda: "min_reward=1" in page.url, page)
    assert "environment=shop" in page.url
    found = counted(page, "environment=shop&min_reward=1")
    until(lambda: count(page) == found, page)


def test_every_filter_filters(page: Any) -> None:
    for label, choice in (
        ("Stop reason", "MAX_STEPS"),
        ("Failure", "MODEL_SERVER_ERROR"),
        ("Tag", "level=hard"),
        ("Tool", "add"),
        ("Actor", "critic"),
    ):
        field = page.get_by_role("combobox", name=label, exact=True)
        field.select_option(choice)
        until(lambda: count(page) != str(ALL), page)
        field.select_option("")
        until(lambda: count(page) == str(ALL), page)


def test_words_are_searched(page: Any) -> None:
    page.get_by_label("Search").fill("trees stree")
    until(lambda: count(page) == "40", page)
    page.get_by_label("Search").fill("nowhere at all")
    until(lambda: page.get_by_text("No rollouts match these filters.").count() == 1, page)


def test_a_column_sorts(page: Any) -> None:
    page.get_by_role("button", name="Reward", exact=True).click()
    until(lambda: "sort=-reward" in page.url, page)
    header = page.locator("th[aria-sort=descending]")
    until(lambda: header.count() == 1, page)
    until(lambda: page.locator("tbody tr td:nth-child(3)").first.inner_text() == "1", page)
    page.get_by_role("button", name="Reward", exact=True).click()
    until(lambda: page.locator("tbody tr td:nth-child(3)").first.inner_text() == "0", page)


def test_a_rollout_is_a_conversation(page: Any) -> None:
    show(page, "#/rollout/ro-shop-4-2", ".conversation")
    assert page.get_by_role("heading", level=1).inner_text() == "shop-4 repeat 2"
    assert page.locator(".item.call").count() == 3
    assert page.locator(".item.call .json-key").first.inner_text() == '"item"'
    assert page.locator(".item.result .tool").first.inner_text() == "add"
    assert page.get_by_text("9007199254740993").count() == 1  # no browser's number
    assert page.get_by_text("Everything is in the basket.").is_visible()
    thought = page.locator(".item.reasoning .said").first
    assert thought.is_visible()
    page.get_by_role("button", name="Fold reasoning").click()
    assert not thought.is_visible()
    timeline = page.locator("table.timeline")
    assert timeline.locator("th").all_inner_texts() == [
        "model", "tools", "verify", "verify: compare", "verify: score",
    ]  # fmt: skip
    assert page.locator("table.bars").first.locator("th").all_inner_texts() == ["correct", "brief"]


def test_tokens_are_a_heat_map(page: Any) -> None:
    show(page, "#/rollout/ro-shop-4-2", ".conversation")
    page.get_by_role("button", name="Show 34 tokens").first.click()
    page.wait_for_selector(".heat-map")
    tokens = page.locator(".heat-map .token")
    assert tokens.count() == 34
    assert re.fullmatch(r"\d+", tokens.first.inner_text())  # ids, since the row has no texts
    assert "logprob" in tokens.first.get_attribute("title")
    shown = page.locator(".heat-map").get_attribute("aria-label")
    assert shown.startswith("34 sampled tokens")
    show(page, "#/rollout/ro-sums-1-0", ".conversation")
    page.get_by_role("button", name=re.compile("tokens")).click()
    page.wait_for_selector(".heat-map")
    assert page.locator(".heat-map .token").nth(0).inner_text().strip() == "18"


def test_an_image_is_shown(page: Any) -> None:
    show(page, "#/rollout/ro-pictures-2-0", "img.image")
    page.wait_for_function("document.querySelector('img.image').naturalWidth === 64")


def test_actors_and_forks_are_shown(page: Any) -> None:
    show(page, "#/rollout/ro-debate-3-0", ".tabs")
    assert page.get_by_text("history rewritten, 41 tokens in common").is_visible()
    page.get_by_role("navigation", name="Actors").get_by_role("link", name="critic").click()
    page.wait_for_selector("text=It leaves out the costs.")
    assert "view=critic" in page.url


def test_a_failure_shows_its_cause(page: Any) -> None:
    page.get_by_label("Outcome").select_option("failed")
    page.locator("tr.failed a.open").first.click()
    failure = page.get_by_role("region", name="Failure")
    failure.wait_for()
    assert "MODEL MODEL_SERVER_ERROR" in failure.inner_text()
    assert "a retry is safe" in failure.inner_text()


def test_repeats_stand_side_by_side(page: Any) -> None:
    show(page, "#/task/shop-4", ".column .conversation")
    until(lambda: page.locator(".column .conversation").count() == 4, page)
    boxes = [one.bounding_box() for one in page.locator(".column").all()]
    assert len({box["y"] for box in boxes}) == 1
    page.get_by_label("mark to compare").nth(0).check()
    page.get_by_label("mark to compare").nth(1).check()
    page.get_by_role("link", name="compare the two marked rollouts").click()
    page.wait_for_selector(".pairs")
    assert page.url.endswith("#/diff/ro-shop-4-0/ro-shop-4-1")


def test_repeats_by_the_keyboard(page: Any) -> None:
    show(page, "#/task/shop-4", ".column .conversation")
    assert page.locator(".head").get_by_text("into the basket (order 4)").is_visible()
    for key in "jxjx":
        page.keyboard.press(key)
    assert page.get_by_label("mark to compare").nth(1).is_checked()
    page.keyboard.press("k")
    assert page.evaluate("document.activeElement.textContent").strip() == "repeat 0"
    page.keyboard.press("d")
    page.wait_for_selector(".pairs")
    assert page.url.endswith("#/diff/ro-shop-4-0/ro-shop-4-1")


def test_what_is_not_there_says_so(browser: Any, address: str) -> None:
    page = browser.new_context().new_page()
    page.goto(address)
    page.wait_for_selector("a.open")
    show(page, "#/rollout/nosuch", "main [role=alert]")
    assert "there is no rollout 'nosuch' in these files" in page.get_by_role("alert").inner_text()
    page.get_by_role("link", name="back to the table").click()
    page.wait_for_selector("a.open")
    show(page, "#/?page=900", ".empty")
    assert (
        page.locator(".empty").inner_text() == "The table has fewer pages. Select an earlier page."
    )
    show(page, "#/?tool=nosuch", ".empty")
    assert page.locator(".empty").inner_text() == "No rollouts match these filters."
    page.context.close()


def test_two_runs_are_told_apart(browser: Any, tmp_path: Path) -> None:
    for number, name in enumerate(("night", "day"), start=1):
        (tmp_path / "runs" / name).mkdir(parents=True)
        write_scene(tmp_path / "runs" / name / "rows.jsonl", number, harm=False)
    with served(find_sources([tmp_path / "runs"]).sources, tmp_path / "index.sqlite") as url:
        page = browser.new_context().new_page()
        page.goto(url)
        until(lambda: count(page) == "12", page)
        page.get_by_role("combobox", name="Run").select_option("night/rows.jsonl")
        until(lambda: count(page) == "4", page)
        runs = page.locator("tbody tr td:nth-child(5)")
        until(lambda: set(runs.all_inner_texts()) == {"night/rows.jsonl"}, page)
        show(page, "#/task/shop-0", ".column .conversation")
        for run in ("day/rows.jsonl", "night/rows.jsonl"):
            region = page.get_by_role("region", name=f"Run {run}", exact=True)
            region.locator(".column .conversation").nth(3).wait_for()
            said = region.locator(".column h3 a").all_inner_texts()
            assert said == [f"repeat {number}" for number in range(4)]
        page.context.close()


def test_two_rollouts_are_compared(page: Any) -> None:
    show(page, "#/diff/ro-sums-1-0/ro-sums-1-1", ".pairs")
    assert page.locator(".pair.same").count() == 2
    assert page.locator(".pair:not(.same)").count() == 1
    gone, come = page.locator("del").all_inner_texts(), page.locator("ins").all_inner_texts()
    assert gone == ["414"]
    assert come != gone
    assert page.get_by_text("2 items are the same, 1 differ").is_visible()


def test_the_overview_leads_to_the_rollouts(page: Any) -> None:
    page.get_by_role("link", name="Overview").click()
    page.wait_for_selector(".plots")
    cards = page.locator(".card").all_inner_texts()
    assert any(str(ALL) in one for one in cards)
    page.get_by_role("link", name=re.compile(r"^Rewards .* to 1: \d+ rollouts$")).click()
    page.wait_for_selector("a.open")
    assert "max_reward=1" in page.url
    page.get_by_role("link", name="Overview").click()
    page.get_by_role("link", name="shop", exact=True).click()
    until(lambda: "environment=shop" in page.url, page)


def test_the_keyboard_does_it_all(page: Any) -> None:
    def focused() -> str:
        found: str = page.evaluate("document.activeElement.getAttribute('aria-label') || ''")
        return found

    page.keyboard.press("j")
    assert focused() == "shop-0, repeat 0"
    page.keyboard.press("j")
    page.keyboard.press("j")
    page.keyboard.press("k")
    assert focused() == "shop-0, repeat 1"
    page.keyboard.press("x")
    page.keyboard.press("Enter")
    page.wait_for_selector(".conversation")
    page.keyboard.press("j")
    until(lambda: "ro-shop-0-2" in page.url, page)
    page.keyboard.press("Escape")
    page.wait_for_selector("a.open")
    until(lambda: focused() == "shop-0, repeat 2", page)
    page.keyboard.press("x")
    page.keyboard.press("d")
    page.wait_for_selector(".pairs")
    page.keyboard.press("Escape")
    page.wait_for_selector("a.open")
    page.keyboard.press("/")
    page.keyboard.type("milk")
    until(lambda: "text=milk" in page.url, page)
    page.keyboard.press("Escape")
    page.keyboard.press("o")
    page.wait_for_selector(".plots")
    page.keyboard.press("o")
    page.wait_for_selector("a.open")
    page.keyboard.press("?")
    assert page.get_by_role("dialog", name="Keys").is_visible()
    page.keyboard.press("Escape")
    assert not page.get_by_role("dialog", name="Keys").is_visible()


def test_a_key_knows_what_the_key_just_before_it_did(page: Any) -> None:
    page.keyboard.press("j")
    page.keyboard.press("x")
    page.keyboard.press("j")
    # The second key comes before the screen is drawn anew.
    page.evaluate(
        """async () => {
            const press = (key) => document.activeElement.dispatchEvent(
                new KeyboardEvent("keydown", { key, bubbles: true, cancelable: true }));
            press("x");
            for (let turn = 0; turn < 5; turn += 1) await null;
            press("d");
        }"""
    )
    page.wait_for_selector(".pairs")


def test_j_goes_on_to_the_next_page(page: Any) -> None:
    page.locator("a.open").last.focus()
    page.keyboard.press("j")
    until(lambda: "page=2" in page.url and len(tasks(page)) == ALL - 100, page)
    until(lambda: page.evaluate("document.activeElement.className") == "open", page)


def test_themes(page: Any) -> None:
    def background() -> str:
        found: str = page.evaluate("getComputedStyle(document.body).backgroundColor")
        return found

    light = background()
    page.emulate_media(color_scheme="dark")
    dark = background()
    assert dark != light
    page.get_by_role("button", name="Theme: auto").click()
    until(lambda: background() == light, page)
    page.keyboard.press("t")
    until(lambda: background() == dark, page)
    page.emulate_media(color_scheme="light")
    assert background() == dark
    page.reload()
    page.wait_for_selector("a.open")
    assert background() == dark


def test_harm_stays_text(page: Any) -> None:
    for made in hostile():
        key = made["rollout_id"]
        place = "#/rollout/" + page.evaluate("encodeURIComponent", key)
        show(page, place, ".conversation")
        assert page.locator("main script, main img, main iframe, main [onerror]").count() == 0
        assert page.locator("main a[href^='javascript' i]").count() == 0
        assert page.get_by_text("window.harmed = true").count() > 0
        assert page.locator(".escape", has_text=r"\x1b").count() > 0
        assert page.locator(".escape", has_text=r"\u202e").count() > 0
    show(page, f"#/rollout/{HOSTILE}", ".conversation")
    assert page.get_by_text("that this page does not fetch: https://example.com").count() == 1
    assert page.get_by_text("not valid JSON").count() == 1
    assert page.evaluate("({}).polluted") is None
    show(page, f"#/task/{HOSTILE}", ".column .conversation")
    show(page, "#/overview", ".plots")


def test_a_script_that_gets_in_would_not_run(browser: Any, address: str) -> None:
    """The policy holds even were a text once taken for HTML."""
    page = browser.new_context().new_page()
    page.goto(address)
    refused = page.evaluate(
        """() => new Promise(resolve => {
            document.addEventListener("securitypolicyviolation", event =>
                resolve(event.effectiveDirective), {once: true});
            const script = document.createElement("script");
            script.textContent = "window.harmed = true";
            document.head.append(script);
            setTimeout(() => resolve("ran"), 5000);
        })"""
    )
    assert refused == "script-src-elem"
    assert page.evaluate("window.harmed") is None
    page.context.close()


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize(
    ("place", "sign"),
    [
        ("#/?environment=shop", "a.open"),
        ("#/rollout/ro-shop-4-2", ".conversation"),
        ("#/rollout/ro-debate-3-0", ".tabs"),
        (f"#/rollout/{HOSTILE}", ".conversation"),
        ("#/task/shop-4", ".column .conversation"),
        ("#/diff/ro-sums-1-0/ro-sums-1-1", ".pairs"),
        ("#/overview", ".plots"),
    ],
)
def test_nothing_stands_in_the_way_of_a_screen_reader(
    browser: Any, address: str, place: str, sign: str, theme: str
) -> None:
    # The policy would keep axe out, which is a script of ours and not of the page's.
    context = browser.new_context(bypass_csp=True, color_scheme=theme)
    page = context.new_page()
    page.goto(address)
    page.wait_for_selector("a.open")
    show(page, place, sign)
    page.add_script_tag(path=str(AXE))
    found = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
    context.close()
    said = [
        (one["id"], one["help"], [node["html"][:200] for node in one["nodes"][:3]])
        for one in found["violations"]
    ]
    assert said == []


def test_what_a_screen_reader_says(page: Any) -> None:
    snapshot = page.locator("body").aria_snapshot()
    for said in (
        'navigation "Main"',
        'link "Rollouts"',
        'textbox "Search"',
        'combobox "Environment"',
        'columnheader "Reward"',
        'link "shop-0, repeat 0"',
        'checkbox "Mark shop-0, repeat 0 for a comparison"',
        'button "next →"',
    ):
        assert said in snapshot, said


def test_new_rows_appear(browser: Any, tmp_path: Path) -> None:
    path = write_scene(tmp_path / "live.jsonl", 1, harm=False)
    with served(find_sources([path]).sources, tmp_path / "index.sqlite") as url:
        page = browser.new_context().new_page()
        page.goto(url)
        until(lambda: len(tasks(page)) == 4, page)
        with path.open("a") as file:
            file.write(json.dumps(row("late", 1, 0, "What now?", [text("This.")], 1.0)) + "\n")
        until(lambda: tasks(page)[-1:] == ["late-1"], page)
        page.context.close()


def test_a_bundle_opens_from_a_file(browser: Any, rows: Path, tmp_path: Path) -> None:
    folder = tmp_path / "site"
    index = tmp_path / "index.sqlite"
    write_bundle(find_sources([rows]).sources, folder, Filters(), Sort(), limit=1000, index=index)
    base = folder.as_uri()
    page = browser.new_context().new_page()
    requests = Requests(page)
    page.goto(f"{base}/index.html")
    page.wait_for_selector("a.open")
    until(lambda: count(page) == str(ALL), page)
    page.get_by_label("Environment").select_option("shop")
    until(lambda: count(page) == "41", page)
    page.get_by_label("Search").fill("milk")
    until(lambda: int(count(page)) < 41, page)
    page.locator("a.open").first.click()
    page.wait_for_selector(".conversation")
    show(page, "#/rollout/ro-sums-1-0", ".conversation")
    page.get_by_role("button", name=re.compile("tokens")).click()
    page.wait_for_selector(".heat-map")
    show(page, "#/overview", ".plots")
    assert any(str(ALL) in one for one in page.locator(".card").all_inner_texts())
    show(page, "#/task/shop-4", ".column .conversation")
    show(page, f"#/rollout/{HOSTILE}", ".conversation")
    assert page.evaluate("window.harmed") is None
    assert requests.errors == []
    assert requests.elsewhere(base) == []
    page.context.close()
