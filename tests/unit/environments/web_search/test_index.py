"""Building an index from all kinds of files, and searching it."""

from __future__ import annotations

import json
import sqlite3
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymmesh_resource.environments.web_search import corpus as corpus_module
from gymmesh_resource.environments.web_search.corpus import Corpus, CorpusError, match_expression
from gymmesh_resource.environments.web_search.documents import Document, read_documents
from gymmesh_resource.environments.web_search.index import TokenizerName, build_index, main

DOCUMENTS = Path(corpus_module.__file__).with_name("documents.jsonl")


def _corpus(folder: Path, *texts: str, tokenizer: TokenizerName = "unicode") -> Corpus:
    documents = [Document(f"d{n}", "", f"title {n}", text) for n, text in enumerate(texts)]
    build_index(documents, folder / "index.db", tokenizer=tokenizer)
    return Corpus(folder / "index.db")


@pytest.fixture(scope="module")
def examples(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    path = tmp_path_factory.mktemp("index") / "index.db"
    build_index(read_documents([DOCUMENTS], []), path)
    return Corpus(path)


def test_the_command_indexes_all_kinds_of_files(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "docs"
    (folder / "deep").mkdir(parents=True)
    (folder / "a.md").write_text("\n# Heading of it #\n\nalpha text")
    (folder / "deep" / "b.txt").write_text("beta text")
    (folder / "c.html").write_text(
        "<html><title>Page &amp; title</title><script>hidden()</script>"
        "<style>.x{}</style><body><p>gamma<b>text</b><p>and &eacute;</body>"
    )
    (folder / "d.pdf").write_bytes(b"%PDF")
    (folder / "e.txt").write_text(" \n")
    rows = [{"id": 5, "text": "delta"}, {"url": "https://x", "contents": "eta", "title": "T"}]
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)) + "\n\n")
    output = tmp_path / "index.db"

    assert main([str(folder), str(tmp_path / "rows.jsonl"), f"--output={output}"]) == 0

    printed = capsys.readouterr()
    assert "5 documents" in printed.out
    assert "d.pdf: the file is not text" in printed.err
    assert "e.txt: the file has no text" in printed.err
    corpus = Corpus(output)
    found = {key: corpus.fetch(key, 0, 100) for key in ("a.md", "deep/b.txt", "c.html", "5")}
    assert [page.title for page in found.values() if page] == [
        "Heading of it",
        "beta text",
        "Page & title",
        "5",
    ]
    page = found["c.html"]
    assert page is not None
    assert page.text == "gammatext\nand é"
    assert not corpus.search("hidden", 5)
    by_url = corpus.fetch("https://x", 0, 100)
    assert by_url is not None
    assert (by_url.id, by_url.title, by_url.text) == ("https://x", "T", "eta")
    corpus.close()


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("{", "rows.jsonl:1 is not JSON"),
        ("[1]", "rows.jsonl:1 is not a JSON object"),
        ('{"text": "a"}', "rows.jsonl:1 has no id"),
        ('{"id": "a"}', "rows.jsonl:1 has no text"),
        ('{"id": "a", "text": " "}', "rows.jsonl:1 has no text"),
        ('{"id": "a", "text": ["b"]}', "rows.jsonl:1: text must be text"),
        ('{"id": "a", "text": "b"}\n{"id": "a", "text": "c"}', "Two documents have the id 'a'"),
        ("", "no documents"),
    ],
)
def test_broken_documents_are_named_and_the_old_index_stays(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: str, says: str
) -> None:
    (tmp_path / "rows.jsonl").write_text(content)
    output = tmp_path / "index.db"
    output.write_text("old")
    assert main([str(tmp_path / "rows.jsonl"), f"--output={output}"]) == 2
    assert says in capsys.readouterr().err
    assert output.read_text() == "old"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["index.db", "rows.jsonl"]


def test_files_that_are_missing_or_no_text(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "latin.txt").write_bytes(b"caf\xe9")
    for name, says in (("nowhere", "no file or folder"), ("latin.txt", "not UTF-8: byte 3")):
        assert main([str(tmp_path / name), f"--output={tmp_path / 'index.db'}"]) == 2
        assert says in capsys.readouterr().err


def test_what_is_no_index_is_refused(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("not a database, but long enough to be looked at as one")
    other = sqlite3.connect(tmp_path / "other.db")
    other.execute("CREATE TABLE documents (id)")
    other.close()
    for name, says in (("none", "no index"), ("text", "is not an index"), ("other.db", "again")):
        with pytest.raises(CorpusError, match=says):
            Corpus(tmp_path / name)


@pytest.mark.parametrize(
    ("query", "first"),
    [
        ("keeper of the lighthouse born", "ada-lindqvist"),
        ("KESTREL point", "kestrel-point"),
        ('"herring market"', "torsund"),
        ("viaduct span", "jonas-ek"),
        ("terns?", "lilla"),
    ],
)
def test_search_ranks(examples: Corpus, query: str, first: str) -> None:
    assert examples.search(query, 3)[0].id == first


@pytest.mark.parametrize(
    "query",
    [
        '"', '""', '"""', "'", "*", "fjord*", "fjord AND", "OR", "NOT fjord", "NEAR(a b)",
        "title:fjord", "{title text}: fjord", "^fjord", "a + b", "(", ")", "()", "fjord)", "-fjord",
        "fjord; DROP TABLE documents", "' OR 1=1 --", "\0", "a\0b", "\ud800", "\u202efjord", "%",
        "_", "?", "?1", ":x", "@x", "$x", "\\", "[fjord]", "`fjord`", "<fjord>", "!", "&", "|",
        "AND AND AND", '"a" "b', "fjord\nisland", "日本", "🦆", "x" * 100_000, "a " * 100_000,
        '"' * 100_000, "((((" * 10_000,
    ],
)  # fmt: skip
def test_no_query_is_syntax(examples: Corpus, query: str) -> None:
    hits = examples.search(query, 5)
    assert len(hits) <= 5
    assert all(len(hit.snippet) <= 400 for hit in hits)
    if "fjord" in query:
        assert hits


@given(st.text(max_size=80))
def test_an_expression_is_quoted_words(query: str) -> None:
    for part in filter(None, match_expression(query).split(" OR ")):
        assert part[0] == part[-1] == '"'
        assert '"' not in part[1:-1]


def test_tokenizers(tmp_path: Path) -> None:
    english = _corpus(tmp_path, "She was running.", tokenizer="english")
    assert english.search("runs", 5)
    english.close()
    trigram = _corpus(tmp_path, "東京都渋谷区", tokenizer="trigram")
    assert trigram.search("京都渋", 5)
    trigram.close()
    accents = _corpus(tmp_path, "Café Zürich")
    assert accents.search("cafe zurich", 5)
    accents.close()


def test_pages_are_cut_by_characters(tmp_path: Path) -> None:
    corpus = _corpus(tmp_path, "äöü" * 100)
    page = corpus.fetch("d0", 4, 5)
    assert page is not None
    assert (page.text, page.offset, page.total) == ("öüäöü", 4, 300)
    assert corpus.fetch("d0", 300, 5).text == ""  # type: ignore[union-attr]  # it is there
    assert corpus.fetch("d1", 0, 5) is None
    assert corpus.fetch("' OR 1=1 --", 0, 5) is None
    assert corpus.fetch("", 0, 5) is None
    assert corpus.fetch("\ud800", 0, 5) is None
    corpus.close()


def test_a_search_that_takes_too_long_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(corpus_module, "_STEPS", 1)
    build_index([Document("a", "", "t", "word " * 1_000)], tmp_path / "index.db")
    corpus = Corpus(tmp_path / "index.db", timeout_s=0.0)
    with pytest.raises(corpus_module.TooSlow):
        corpus.search("word", 5)
    corpus.close()


def test_threads_share_a_corpus(examples: Corpus) -> None:
    found: list[str] = []
    threads = [
        threading.Thread(target=lambda: found.append(examples.search("terns", 1)[0].id))
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=20)
    assert found == ["lilla"] * 8
