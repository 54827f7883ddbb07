"""The site of the documentation: what is made of code and pages, and the check of its links.

`make docs` builds it with Sphinx; what comes before and after is tried here without.
"""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import click
import pytest

import gymmesh
from gymmesh_cli.main import cli
from tests.support.docs import cli_options
from tools.docs.commands import command_pages, help_text
from tools.docs.contract import contract_pages, described
from tools.docs.docstrings import rewritten as docstring
from tools.docs.faces import face_pages
from tools.docs.links import check_links
from tools.docs.markdown import cell, rewritten
from tools.docs.shelves import DocsError, read_shelves
from tools.docs.source import Source

ROOT = Path(__file__).resolve().parents[3]


def test_every_option_of_every_command_is_on_a_page() -> None:
    text = "\n".join(command_pages(cli).values())
    shown = re.findall(r"^```\{option\} (.*)$", text, re.MULTILINE)
    options = {name for line in shown for name in re.findall(r"(?<![\w-])--[a-z][a-z-]*", line)}
    assert cli_options() - {"--help"} <= options


def test_a_default_and_a_kept_paragraph_are_shown() -> None:
    @click.command(help="Try *it*.\n\n\b\nas\n  typed")
    @click.option("--times", default=3, help="How often.")
    def tried(times: int) -> None: ...

    page = command_pages(click.Group("root", commands={"try": tried}))["try.md"]
    assert "Try \\*it\\*." in page
    assert "```text\nas\n  typed\n```" in page
    assert "```{option} --times INTEGER\nHow often.  \\[default: 3\\]\n```" in page
    assert not any(help_text(""))


def test_every_rpc_message_field_and_value_of_the_contract_is_on_a_page() -> None:
    files = described()
    pages = contract_pages(files)
    for file in files.file:
        text = pages[file.package.split(".")[1] + ".md"]
        for service in file.service:
            for method in service.method:
                assert f"### rpc {method.name}\n" in text
        for message in file.message_type:
            assert f"({file.package}.{message.name})=\n" in text
            for one in message.field:
                assert f"| `{one.name}` = {one.number} |" in text
        for enum in file.enum_type:
            assert all(f"| `{value.name}` = " in text for value in enum.value)
    linked = set(re.findall(r"\]\(#(gymmesh\.[\w.]+)\)", "\n".join(pages.values())))
    labels = set(re.findall(r"^\(([\w.]+)\)=$", "\n".join(pages.values()), re.MULTILINE))
    assert linked <= labels


def test_every_public_name_is_described_once() -> None:
    client = importlib.import_module("gymmesh_client")
    pages = face_pages(gymmesh, [client])
    named = re.findall(r"^\.\. [\w:]+:: ([\w.]+)$", "\n".join(pages.values()), re.MULTILINE)
    described_here = [name for name in named if "." in name]
    assert sorted({f"gymmesh.{name}" for name in gymmesh.__all__} - {*described_here}) == []
    assert len(described_here) == len({*described_here})
    rest = {name for name in client.__all__ if name not in gymmesh.__all__}
    assert {f"gymmesh_client.{name}" for name in rest} <= {*described_here}


def test_a_page_loses_comments_and_keeps_code() -> None:
    page = (
        "# Page\n\n<!-- check: hidden a.jsonl\n{}\n```\n-->\n<!-- check: run exit 0 -->\n"
        "```jsonl\n[a](b.md) <!-- kept -->\n```\n[text](b.md#x), `[c](d.md)`, [`e`](f), "
        "![p](g.svg), [out](https://example.com)\n"
    )
    targets = {"b.md#x": "../b.md#x", "f": None, "g.svg": "h.svg"}
    assert rewritten(page, lambda link: targets[link]) == (
        "# Page\n\n```json\n[a](b.md) <!-- kept -->\n```\n[text](../b.md#x), `[c](d.md)`, `e`, "
        "![p](h.svg), [out](https://example.com)\n"
    )


def test_comments_of_the_contract_are_plain_text_but_for_code() -> None:
    assert cell("A `b|c` of *all*,\n<i>.\n\nMore.") == "A `b|c` of \\*all\\*, \\<i\\>.<br>More."


def test_the_prose_of_docstrings_is_no_markup() -> None:
    made = docstring(["Some `Task`s of *args.", "", "    code(1)", "", "a: b", "    and c", "d"])
    assert made[0] == "Some ``Task``\\ s of \\*args."
    assert made[2:5] == ["::", "", "        code(1)"]
    assert made[-4:-1] == ["* a: b", "  and c", "* d"]
    assert docstring(["Args:", "    a: b `c", "        d`."])[1] == "    a: b ``c d``\\ ."


def test_a_page_that_no_shelf_lists_and_a_link_that_leads_nowhere_fail(tmp_path: Path) -> None:
    docs = tmp_path / "docs"
    docs.mkdir()
    (docs / "index.md").write_text("# Index\n\n## Start\n\n[one](one.md)\n")
    (docs / "one.md").write_text("# One\n\n[two](two.md)\n")
    with pytest.raises(DocsError, match=r"docs/one\.md: there is no two\.md"):
        Source(tmp_path).add_pages()
    (docs / "two.md").write_text("# Two\n")
    source = Source(tmp_path, texts={"index.md": "", "one.md": "# One", "two.md": "# Two"})
    with pytest.raises(DocsError, match=r"does not list two\.md"):
        source.add_contents()
    with pytest.raises(DocsError, match=r"one\.md twice"):
        read_shelves("## A\n[one](one.md)\n## B\n[one](one.md)\n")


def test_the_repository_can_be_put_together() -> None:
    source = Source(ROOT)
    source.add_pages()
    for folder in ("cli", "api", "contract"):
        source.add_made(f"reference/{folder}", {"index.md": "# Made"})
    source.add_contents()
    assert source.texts["index.md"].count("{toctree}") == 5
    assert "reference/contract/transport.md" in source.texts
    assert "files/examples/grpo/agent.py.md" in source.texts


def test_a_broken_link_of_a_site_is_found(tmp_path: Path) -> None:
    (tmp_path / "index.html").write_text('<a href="a/b.html#here">b</a><img src="c.svg">')
    (tmp_path / "c.svg").write_text("<svg/>")
    (tmp_path / "a").mkdir()
    (tmp_path / "a/b.html").write_text('<p id="here"><a href="../#">up</a><a href="https://x.y">')
    found = check_links(tmp_path)
    assert (found.pages, found.links, found.outside, found.problems) == (2, 3, 1, [])
    (tmp_path / "a/b.html").write_text('<a href="gone.html">')
    (tmp_path / "lost.html").write_text("")
    assert check_links(tmp_path).problems == [
        "a/b.html: gone.html: there is no such file",
        "index.html: a/b.html#here: the page has no such anchor",
        "lost.html: no link leads to this page",
    ]
