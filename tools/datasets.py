"""Writes docs/how-to/datasets.md, the catalogue of data sets that `gym-cli import` knows, or
checks it.

python -m tools.datasets [--check]
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator

from gymmesh_data.imports.datasets import ColumnShape, Recipe, recipes
from tools.generate import difference
from tools.protos import ROOT

PAGE = "docs/how-to/datasets.md"
_HEAD = """\
# Known data sets

Make tasks from a public data set that you have downloaded. `gym-cli import` recognises the data \
set by its columns, so you don't name columns in the command. Each task names the \
[environment](environments.md) that judges the task. `python -m tools.datasets` generates this \
page from recipes in gymmesh's code. A recipe describes the columns of one data set, and maps the \
columns to keys of the task.

<!-- check: hidden train.jsonl
{"question": "Ann has 3 pens and buys 4. How many has she?", "answer": "3 + 4 = 7\\n#### 7"}
{"question": "A mill grinds 1,234 sacks a day. How many in 2 days?", "answer": "2 * 1234 = \
2468\\n#### 2,468"}
-->
<!-- check: run exit 0 -->
```console
$ gym-cli import train.jsonl --output tasks.jsonl
rows          2 read
data set      gsm8k, 2 rows
tasks         2 in tasks.jsonl
$ gym-cli data validate tasks.jsonl
tasks.jsonl: 2 tasks, all valid; to check the rows with the environments, add --config FILE
```

- If several data sets have the file's columns, `gym-cli import` chooses the data set whose recipe \
has the most columns. To choose another data set, pass `--dataset NAME`.
- `--env NAME` selects a different environment for all tasks.
- Columns that the recipe doesn't use become keys of the task. `--only-columns` omits these \
columns.
- If a row doesn't fit the data set, `gym-cli import` rejects the row and reports the row's file \
and line. See [importing](import.md#rows-that-cannot-be-imported).
- gymmesh neither contains nor downloads data sets.

If no known data set has the file's columns, `gym-cli import` writes no tasks and exits with code \
1. The command shows the file's columns and the most similar known data sets. The command also \
guesses which columns have the prompt and the answer:

<!-- check: hidden mine.jsonl
{"exercise": "What is 6 * 7?", "result": 42}
-->
<!-- check: run exit 1 -->
```console
$ gym-cli import mine.jsonl --output mine-tasks.jsonl
```

Then import the file with [`--format hf`](import.md#columns), and name the file's columns with \
`--column`.
"""
_JUDGED = """\
## Judged

gymmesh's tests check each recipe with rows that we wrote in the data set's columns. For example, \
some test rows have fractions, negative numbers, three to ten choices, or several calls. No test \
row is copied from a data set. The tests import the rows from JSON lines and from Parquet. For \
each row, the tests judge several answers. The row's own right answer earns the reward, and the \
right answers of the other rows earn no reward.

| `--dataset` | data set | environment | test rows | test rows whose right answer earns the reward |
|---|---|---|---|---|
"""
_REFUSED = """\
## Not judged

`gym-cli import` recognises these data sets, but rejects the rows, because no environment that \
comes with gymmesh can judge the tasks.

| `--dataset` | data set | why gymmesh can't import the data set, and what to do |
|---|---|---|
"""
_COLUMNS = """\
## Columns

`gym-cli import` recognises a data set by its required columns. A file can have additional \
columns. If several data sets fit, `gym-cli import` chooses the data set whose table below has the \
most columns. In the tables, `becomes` lists what the importer writes into the task: the prompt, \
the tools, or keys of the task.
"""


def page_text() -> str:
    """The page."""
    judged = [one for one in recipes() if one.environment]
    refused = [one for one in recipes() if one.refused]
    parts = [
        _HEAD,
        _JUDGED + "\n".join(map(_judged_row, judged)) + "\n",
        _REFUSED + "\n".join(f"| `{one.name}` | {_told(one)} | {one.refused} |" for one in refused),
        "",
        _COLUMNS,
        *("\n".join(_section(one)) + "\n" for one in recipes()),
    ]
    return "\n".join(parts).rstrip("\n") + "\n"


def _judged_row(recipe: Recipe) -> str:
    page = f"[`{recipe.environment}`](../reference/environments/{recipe.environment}.md)"
    return f"| `{recipe.name}` | {_told(recipe)} | {page} | {recipe.tried} | {recipe.tried} |"


def _told(recipe: Recipe) -> str:
    return f"{recipe.title}: {recipe.about}"


def _section(recipe: Recipe) -> Iterator[str]:
    yield f"### {recipe.title}"
    yield ""
    yield "| column | value | becomes |"
    yield "|---|---|---|"
    for name, shape in recipe.columns.items():
        yield f"| {_names(name, shape)} | {_kind(shape)} | {_becomes(recipe, name)} |"
    if recipe.differs:
        yield ""
        yield recipe.differs


def _names(name: str, shape: ColumnShape) -> str:
    return f"`{name}`" + (f" or `{shape.other}`" if shape.other else "")


def _kind(shape: ColumnShape) -> str:
    told = shape.words
    if shape.like:
        told += f" that matches `{shape.like}`".replace("|", "\\|")
    return told + (", optional" if shape.optional else "")


def _becomes(recipe: Recipe, column: str) -> str:
    """What is made of a column, step by step."""
    if recipe.refused:
        return ""
    if recipe.columns[column].kind == "absent":
        return ""
    made, reached = list[str](), {column}
    for name, value in recipe.made.items():
        if reached & set(value.of):
            reached.add(name)
            made += [] if value.hidden else [f"`{name}`"]
    if any(name in reached for name in (*recipe.template_names, recipe.messages)):
        made.insert(0, "the prompt")
    if recipe.tools in reached:
        made.append("the tools")
    if column in recipe.id_names:
        made.append("`task_id`")
    if column in recipe.keep or not (made or column in recipe.used):
        made.append(f"`{column}`")
    return ", ".join(made)


def main(argv: list[str] | None = None) -> int:
    """Runs the script; returns its exit status (0 done, 1 stale)."""
    parser = argparse.ArgumentParser(prog="python -m tools.datasets", description=__doc__)
    parser.add_argument("--check", action="store_true", help="compare only, write nothing")
    options = parser.parse_args(argv)
    path = ROOT / PAGE
    if not options.check:
        path.write_text(page_text(), encoding="utf-8")
        return 0
    committed = path.read_text(encoding="utf-8") if path.exists() else ""
    lines = difference({PAGE: committed}, {PAGE: page_text()})
    if lines:
        print("\n".join(lines[:40]))
        print(f"{PAGE} is stale; run `python -m tools.datasets`", file=sys.stderr)
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
