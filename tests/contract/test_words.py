"""README and docs/ are read once: sentences are short, and have no words that stop a reader.

docs/how-to/contributing.md says what else makes English that is read once.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.support.docs import ROOT

PAGES: Final = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
MOST_WORDS: Final = 40

#: Words that readers stopped at, and what to write instead.
STOPPERS: Final = {
    r"go(es|ne)? on with": "resume, continue",
    r"(is|are) said": "is reported, is logged",
    r"made anew": "rebuilt",
    r"(is|are) there already": "already exists",
    r"what is no\b": "not a …",
    r"(who|which)ever": "name who or what",
    r"is away\b": "is unreachable",
    r"so many\b": "a number, or a name",
    r"of no account": "ignored",
}

_SKIPPED: Final = re.compile(r"<!--.*?-->|^ *(`{3,}|~{3,}).*?^ *\1 *$", re.DOTALL | re.MULTILINE)
_CODE: Final = re.compile(r"`[^`]+`|\]\([^)]*\)")
_END: Final = re.compile(r"(?<=[.!?:])[\"”)*]*\s+(?=[A-Z\[*\"“(]|`|gymmesh\b|gym-cli\b)")


def sentences(text: str) -> Iterator[tuple[int, str]]:
    """The sentences of a page, each with the number of the line where its block begins.

    A block is a paragraph, an item of a list, or a cell of a table.
    """
    blocks: list[tuple[int, str]] = []
    begins = True
    blank = _SKIPPED.sub(lambda found: "\n" * found[0].count("\n"), text)
    for number, line in enumerate(blank.splitlines(), 1):
        if line.lstrip().startswith("|"):
            blocks += [(number, cell) for cell in re.split(r"(?<!\\)\|", line)]
            begins = True
        elif not line.strip() or line.startswith("#"):
            begins = True
        elif begins or re.match(r"\s*([-*]|\d+\.)\s", line):
            blocks.append((number, line))
            begins = False
        else:
            blocks[-1] = (blocks[-1][0], f"{blocks[-1][1]} {line}")
    for number, block in blocks:
        for sentence in _END.split(_CODE.sub("`x`", block)):
            yield number, sentence.strip()


def long_words(sentence: str) -> int:
    """How many words a sentence has; code counts as none."""
    return len(re.findall(r"[A-Za-z][\w'’-]*", _CODE.sub("", sentence)))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_is_read_once(page: Path) -> None:
    name = page.relative_to(ROOT)
    found = []
    for line, sentence in sentences(page.read_text(encoding="utf-8")):
        if (count := long_words(sentence)) > MOST_WORDS:
            found.append(f"{name}:{line}: {count} words, split it: {sentence}")
        found += [
            f"{name}:{line}: {stopper[0]!r}, write {better}: {sentence}"
            for words, better in STOPPERS.items()
            if (stopper := re.search(rf"\b{words}", sentence))
        ]
    assert not found, "\n".join(found)


def test_what_stops_a_reader_is_found() -> None:
    page = """# It goes on with a heading

Short. The run goes on with it `whoever so many`.
<!-- so many -->
```sh
so many
```
| a cell. | so many |
- one item
  so long
"""
    assert list(sentences(page)) == [
        (3, "Short."),
        (3, "The run goes on with it `x`."),
        *((8, cell) for cell in ("", "a cell.", "so many", "")),
        (9, "- one item   so long"),
    ]
    assert long_words("It can't read `so many words` of [a page](with.md).") == 7
