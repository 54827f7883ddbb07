"""The page over what gym-cli collect writes: while it writes, with a trace, with several actors."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from gymmesh_view import find_sources
from tests.support import endpoint as fake
from tests.support.cli import Bench, sums, write_tasks
from tests.support.endpoint import Seen
from tests.view.browser import Requests, served, until
from tests.view.collecting import address_of, collected, endpoint, gym, wait
from tests.view.rows import row, text

ROOT = Path(__file__).resolve().parents[2]
CRITIC = ROOT / "examples" / "custom_agent" / "agent.yaml"


@contextmanager
def opened(browser: Any, url: str) -> Iterator[Any]:
    """A page, in which nothing may go wrong."""
    context = browser.new_context(viewport={"width": 1320, "height": 900})
    page = context.new_page()
    page.set_default_timeout(120_000)
    requests = Requests(page)
    page.goto(url)
    page.wait_for_selector("table.rollouts")
    yield page
    assert requests.errors == []
    assert requests.elsewhere(url.partition("?")[0]) == []
    context.close()


def shown(page: Any) -> int:
    """How many rollouts the page says that there are."""
    found = page.locator(".count strong").inner_text()
    return int(found) if found.isdigit() else 0


def state(page: Any) -> str:
    found: str = page.locator("header .status").inner_text()
    return found


def go(page: Any, place: str, sign: str) -> None:
    base = page.url.partition("#")[0]
    page.goto("about:blank")
    page.goto(base + place)
    page.wait_for_selector(sign)


def test_a_run_is_watched_from_its_beginning_to_its_end(browser: Any, tmp_path: Path) -> None:
    with endpoint(waits=True) as model:
        bench = Bench(tmp_path, model.url, tasks=6)
        collect = bench.collect("--concurrency", "2", "--quiet")
        with gym(*collect, folder=tmp_path) as collecting:
            registered = tmp_path / "runtime" / "runs"
            wait(lambda: any(registered.glob("*.json")))
            with (
                gym("view", "--run", "live", "--no-browser", folder=tmp_path) as viewer,
                opened(browser, address_of(viewer)) as page,
            ):
                until(lambda: "running" in state(page), page)
                until(page.get_by_text("No rollouts yet").is_visible, page)
                model.answer(4)  # two calls are in flight, and two make a rollout
                until(lambda: shown(page) >= 1, page)
                until(lambda: page.locator("a.open").count() >= 1, page)

                collecting.kill()
                collecting.wait()
                whole = bench.output.read_bytes().count(b"\n")
                # As much of a row as got into the file before its collector died.
                with bench.output.open("ab") as file:
                    file.write(b'{"responses_create_params": {"input": "half a ro')
                until(lambda: "not ended" in state(page), page)
                until(lambda: shown(page) == whole, page)
                go_on(page, bench, model, tmp_path)


def go_on(page: Any, bench: Bench, model: Any, folder: Path) -> None:
    """The run is gone on with, and the page that has been open all the while sees it end."""
    model.answer(100)
    with gym(*bench.collect("--resume", "--quiet"), folder=folder) as collecting:
        collecting.communicate(timeout=100)
        assert collecting.returncode == 0
    until(lambda: "finished" in state(page), page)
    until(lambda: shown(page) == 6, page)
    until(lambda: len(set(page.locator("a.open").all_inner_texts())) == 6, page)
    page.locator("a.open").first.click()
    page.wait_for_selector(".conversation")
    assert page.locator(".item.call .tool").first.inner_text() == "calculator"


def test_half_a_line_waits_for_its_other_half(browser: Any, tmp_path: Path) -> None:
    def line(number: int) -> str:
        made = row("sums", number, 0, "What now?", [text("This: }")], 1.0)
        return json.dumps(made) + "\n"

    path = tmp_path / "rows.jsonl"
    path.write_text(line(0))
    whole = line(1)
    # Where the text so far ends in a brace it looks most like a whole row.
    middle = whole.index("This: }") + len("This: }")
    with (
        served(find_sources([path]).sources, tmp_path / "index.sqlite") as url,
        opened(browser, url) as page,
    ):
        until(lambda: shown(page) == 1, page)
        with path.open("a") as file:
            file.write(whole[:middle])
        size = path.stat().st_size
        ask = "fetch('api/status').then(answer => answer.json())"
        until(lambda: page.evaluate(ask)["bytes"] == size, page)
        said = page.evaluate(ask)
        assert (said["rollouts"], said["wrong"], said["error"]) == (1, 0, "")
        with path.open("a") as file:
            file.write(whole[middle:])
        until(lambda: page.locator("a.open").all_inner_texts() == ["sums-0", "sums-1"], page)


def test_a_trace_gives_every_call_its_place_in_time(browser: Any, tmp_path: Path) -> None:
    with endpoint() as model:
        bench = Bench(tmp_path, model.url, tasks=2)
        collected(*bench.collect("--trace", "--quiet"), folder=tmp_path)
    with (
        served(find_sources([bench.output]).sources, tmp_path / "index.sqlite") as url,
        opened(browser, url) as page,
    ):
        page.locator("a.open").first.click()
        timeline = page.locator("table.timeline")
        timeline.wait_for()
        assert "Calls over time" in timeline.locator("caption").inner_text()
        assert timeline.locator("th").all_inner_texts() == [
            "model call 1", "calculator", "model call 2", "verify",
        ]  # fmt: skip
        lefts = [one.bounding_box()["x"] for one in timeline.locator(".bar").all()]
        assert lefts == sorted(lefts)
        assert lefts[0] < lefts[-1]


def _solver_and_critic(seen: Seen) -> fake.Send:
    """A solver that is wrong at first, and a critic that says so."""
    messages = seen.body["messages"]
    if seen.body["model"] == "critic":
        right = messages[-1]["content"].rstrip().endswith("right")
        return fake.text("OK" if right else "Too vague, say whether it is right.")
    if messages[-1]["content"].startswith("Too vague"):
        return fake.text("It is right")
    return fake.text("Something")


def test_each_actor_has_its_conversations(browser: Any, tmp_path: Path) -> None:
    made = sums(4)
    for one in made[:2]:
        one["agent"] = "tool_loop"
    tasks = write_tasks(tmp_path, made)
    output = tmp_path / "rollouts.jsonl"
    with endpoint(_solver_and_critic) as model:
        config = tmp_path / "base.yaml"
        models = {
            name: {"backend": "chat", "url": model.url, "model": name}
            for name in ("policy", "critic")
        }
        use = f"{ROOT / 'tests' / 'support' / 'sums.py'}:Sums"
        base = {
            "models": models,
            "environments": {"math": {"use": use}},
            "agents": {"tool_loop": {}},
        }
        config.write_text(json.dumps(base))
        asked: list[str | Path] = [
            "collect",
            "-i",
            tasks,
            "-o",
            output,
            "--config",
            config,
            "--config",
            CRITIC,
        ]
        collected(*asked, "--quiet", folder=tmp_path)
    with (
        served(find_sources([output]).sources, tmp_path / "index.sqlite") as url,
        opened(browser, url) as page,
    ):
        until(lambda: shown(page) == 4, page)
        page.get_by_role("combobox", name="Actor", exact=True).select_option("critic")
        until(lambda: shown(page) == 2, page)
        rows = page.locator("a.open")
        until(lambda: sorted(rows.all_inner_texts()) == ["sum-2", "sum-3"], page)
        page.locator("a.open").first.click()
        page.wait_for_selector(".tabs")
        assert page.locator(".item.assistant").count() == 2
        page.get_by_role("navigation", name="Actors").get_by_role("link", name="critic").click()
        page.wait_for_selector("text=model critic · 2 model calls · not trained")
        first = page.get_by_role("region", name="Conversation 1 of 2")
        second = page.get_by_role("region", name="Conversation 2 of 2")
        assert "Too vague, say whether it is right." in first.inner_text()
        assert second.locator(".item.assistant").inner_text().endswith("OK")
