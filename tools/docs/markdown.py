"""Pages of the repository, rewritten for the site (pure)."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterable
from typing import Final

_FENCE: Final = re.compile(r"^ *(`{3,}|~{3,})(\S*)")
_LINK: Final = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s]+)\)")
_CODE: Final = re.compile(r"(`+)(?:.+?)\1", re.DOTALL)
# What Markdown reads as more than text.
_SPECIAL: Final = re.compile(r"([\\`*_{}\[\]<>#|~$^])")
# Languages that Pygments has under another name, or not at all.
_LANGUAGES: Final = {"jsonl": "json", "mermaid": "text"}

Target = Callable[[str], str | None]


def rewritten(text: str, target: Target) -> str:
    """A page for the site: without HTML comments, and with links as `target` has them.

    Args:
        target: the new target of a link, or None, where only the link's text is to be kept.
    """
    parts = [
        part if is_code else _with_links(_without_comments(part), target)
        for is_code, part in _split(text)
    ]
    return "".join(parts)


def _split(text: str) -> Iterable[tuple[bool, str]]:
    """Code blocks and what is between them; a comment that holds a fence is no code."""
    kept: list[str] = []
    fence, comment = "", False
    for line in text.splitlines(keepends=True):
        found = _FENCE.match(line)
        if fence:
            kept.append(line)
            if line.strip() == fence:
                yield True, "".join(kept)
                kept, fence = [], ""
            continue
        if comment or line.startswith("<!--"):
            comment = "-->" not in line
        elif found:
            yield False, "".join(kept)
            fence = found[1]
            language = found[2].partition(",")[0]  # `rust,no_run`
            kept = [line.replace(found[2], _LANGUAGES.get(language, language), 1)]
            continue
        kept.append(line)
    yield bool(fence), "".join(kept)


def _without_comments(text: str) -> str:
    return re.sub(r"^<!--.*?-->\n?", "", text, flags=re.DOTALL | re.MULTILINE)


def _with_links(text: str, target: Target) -> str:
    """Links outside code spans."""
    made, at = [], 0
    for code in _CODE.finditer(text):
        made += [_LINK.sub(lambda one: _link(one, target), text[at : code.start()]), code[0]]
        at = code.end()
    # A link whose text is code was cut in two by the spans; such links are done on the whole text.
    made.append(_LINK.sub(lambda one: _link(one, target), text[at:]))
    return _LINK.sub(lambda one: _link(one, target) if "`" in one[2] else one[0], "".join(made))


def _link(found: re.Match[str], target: Target) -> str:
    picture, words, old = found.groups()
    if "://" in old or old.startswith("#"):
        return found[0]
    new = target(old)
    return words if new is None else f"{picture}[{words}]({new})"


def relative(target: str, page: str) -> str:
    """A path from the folder of `page` to `target`, both paths from one root."""
    return posixpath.relpath(target, posixpath.dirname(page) or ".")


def plain(text: str) -> str:
    """Text that Markdown shows as it is."""
    return _SPECIAL.sub(r"\\\1", text)


def comment_text(text: str) -> str:
    """A comment of plain words with `code` in it, for Markdown: all but code spans is escaped."""
    made, at = [], 0
    for code in re.finditer(r"`[^`\n]+`", text):
        made += [plain(text[at : code.start()]), code[0]]
        at = code.end()
    return "".join([*made, plain(text[at:])])


def cell(text: str) -> str:
    """The text of a comment as a cell of a table: one line, its paragraphs apart."""
    paragraphs = re.split(r"\n\s*\n", text.strip())
    joined = [" ".join(paragraph.split()) for paragraph in paragraphs]
    return "<br>".join(comment_text(one).replace("`|`", "`\\|`") for one in joined)
