#!/usr/bin/env bash
# All that CI checks besides the tests; stops at the first failure. `make check` calls it.
set -euo pipefail
cd "$(dirname "$0")/.."
bin=.venv/bin

step() {
    echo "== $1"
    shift
    "$@"
}

# Marks of a merge that nobody finished; a line of equal signs alone may be a heading.
unmerged() {
    ! git grep -nIE '^(<{7}|>{7}) '
}

step "git: no marks of a merge" unmerged
step "ruff: lint" $bin/ruff check --quiet .
step "ruff: format" $bin/ruff format --quiet --check .
step "mypy: strict types" $bin/mypy
step "import-linter: who may import whom" $bin/lint-imports --no-logo
step "dashboards and alerts: what is in the repository is what is made" $bin/python -m deploy.observe --check
step "buf: lint" $bin/python tools/buf_check.py lint
step "buf: breaking" $bin/python tools/buf_check.py breaking
step "stubs: regenerating leaves no diff" $bin/python tools/generate.py --check
step "stubs of clients: of the contract as it is" $bin/python tools/client_stubs.py
step "rows: columns and their page are what is made" $bin/python -m tools.rows --check
echo "== all checks passed"
