#!/usr/bin/env bash
# Tests the web page of gym-cli view and the site of the documentation. `make test-view` runs this
# script. It runs the page's linter, type checks and unit tests, checks that the committed page is up
# to date, and tests every feature of the page, and the documentation's site, in a real browser.
#
#   tools/test-view.sh [ARGS]        run all tests. ARGS are arguments of pytest
#   tools/test-view.sh --pictures    only draw the pictures of docs/how-to/view.md
set -euo pipefail
cd "$(dirname "$0")/.."
ui=clients/view/ui
built=clients/view/gymmesh_view/static

read -r playwright chromium < <(tools/setup-view.sh)
export PYTHONPATH=$playwright GYMMESH_TEST_CHROMIUM=$chromium
if [ "${1:-}" = --pictures ]; then
    exec .venv/bin/python tests/view/pictures.py
fi

echo "== lint, unit tests"
npm --prefix $ui run --silent lint
npm --prefix $ui run --silent test
echo "== the committed page is up to date"
kept=$(mktemp -d)
trap 'rm -rf "$kept"' EXIT
cp -r $built/. "$kept"
npm --prefix $ui run --silent build >/dev/null
diff -r "$kept" $built || {
    echo "test-view: $built was out of date. It is now built from clients/view/ui: commit $built" >&2
    exit 1
}
echo "== tests in a browser"
[ -f dist/docs/index.html ] || tools/docs.sh
.venv/bin/python -m pytest tests/view "$@"
.venv/bin/python -m pytest tests/site
