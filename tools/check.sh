#!/usr/bin/env bash
# Runs all checks of CI except the tests, and stops at the first failure. `make check` runs this script.
set -euo pipefail
cd "$(dirname "$0")/.."
bin=.venv/bin

step() {
    echo "== $1"
    shift
    "$@"
}

# Fails if a file has conflict markers of an unfinished merge. A line of equal signs is not checked,
# because it can be a heading.
unmerged() {
    ! git grep -nIE '^(<{7}|>{7}) '
}

step "git: no conflict markers" unmerged
step "ruff: lint" $bin/ruff check --quiet .
step "ruff: format" $bin/ruff format --quiet --check .
step "mypy: strict types" $bin/mypy
step "import-linter: which package may import which" $bin/lint-imports --no-logo
step "dashboards and alerts: the committed files are up to date" $bin/python -m deploy.observe --check
step "buf: lint" $bin/python tools/buf_check.py lint
step "buf: breaking" $bin/python tools/buf_check.py breaking
step "Python stubs: the committed stubs are up to date" $bin/python tools/generate.py --check
step "stubs of the other clients: the committed stubs are up to date" $bin/python tools/client_stubs.py
step "rows: the column list and its page are up to date" $bin/python -m tools.rows --check
echo "== all checks passed"
