#!/usr/bin/env bash
# Installs what `make test-view` needs, and prints the folder of Playwright and the path of Chromium.
# Does nothing if everything is up to date. The script installs:
#   - the packages of the web page, from the lock file of clients/view/ui
#   - Playwright for Python in .cache/view, from tools/view/requirements.txt
#   - Debian's package chromium, if Chromium is not installed
#
#   CHROMIUM   the path of an installed browser (default: chromium on PATH, else the script installs
#              chromium with apt-get, as root)
set -euo pipefail
cd "$(dirname "$0")/.."
out=$PWD/.cache/view
pins=tools/view/requirements.txt
ui=clients/view/ui
PYTHON=${PYTHON:-$([ -x .venv/bin/python ] && echo .venv/bin/python || command -v python3.11 || command -v python3)}

fail() {
    echo "setup-view: $*" >&2
    exit 1
}

tools/setup-view-page.sh

chromium=${CHROMIUM:-$(command -v chromium || true)}
if [ -z "$chromium" ]; then
    [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null ||
        fail "Chromium was not found: install your system's package, or set CHROMIUM=/path/to/chromium"
    echo "setup-view: installing Debian's chromium" >&2
    apt-get update -qq >&2
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium >&2
    chromium=$(command -v chromium)
fi

key=$(cat "$pins" <("$PYTHON" --version) | sha256sum | cut -d' ' -f1)
if [ "$(cat "$out/key" 2>/dev/null)" != "$key" ]; then
    echo "setup-view: installing Playwright in $out" >&2
    rm -rf "$out"
    mkdir -p "$out"
    "$PYTHON" -m pip --disable-pip-version-check --quiet install --require-hashes --no-deps \
        --only-binary :all: -r "$pins" --target "$out/python" >&2
    echo "$key" >"$out/key"
fi
echo "$out/python $chromium"
