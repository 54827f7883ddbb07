#!/usr/bin/env bash
# Tests the page of gym-cli view: its lint, types and unit tests; that what is committed is what a
# build gives; every feature in a real browser; and the built site of the documentation in one. Run by
# `make test-view`.
#
#   tools/test-view.sh               all of it; further arguments go to pytest
#   tools/test-view.sh --pictures    draw the pictures of docs/how-to/view.md instead
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
echo "== what is committed is what a build gives"
kept=$(mktemp -d)
trap 'rm -rf "$kept"' EXIT
cp -r $built/. "$kept"
npm --prefix $ui run --silent build >/dev/null
diff -r "$kept" $built || {
    echo "test-view: $built was not what clients/view/ui builds; it is now, so commit it" >&2
    exit 1
}
echo "== in a browser"
[ -f dist/docs/index.html ] || tools/docs.sh
.venv/bin/python -m pytest tests/view "$@"
.venv/bin/python -m pytest tests/site
