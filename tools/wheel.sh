#!/usr/bin/env bash
# Builds the wheel in dist/. Needs Python 3.11 or newer, pip (or venv, which includes pip), and access to
# the package registry. The script does not need .venv, because pip builds in an isolated environment.
#
#   PYTHON   the Python interpreter that builds (default: python3.11, else python3)
#   DIST     the folder of the wheel (default: dist)
set -euo pipefail
cd "$(dirname "$0")/.."

fail() {
    echo "wheel: $*" >&2
    exit 1
}

PYTHON=${PYTHON:-$(command -v python3.11 || command -v python3 || true)}
DIST=${DIST:-dist}
[ -n "$PYTHON" ] || fail "Python was not found: install Python 3.11 or newer, or set PYTHON=/path/to/python"
"$PYTHON" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null ||
    fail "$PYTHON is not Python 3.11 or newer; set PYTHON=/path/to/python3.11"
if ! "$PYTHON" -m pip --version >/dev/null 2>&1; then
    "$PYTHON" -m venv .cache/wheel >/dev/null 2>&1 ||
        fail "$PYTHON has neither pip nor venv: apt install python3-pip, then run make again"
    PYTHON=.cache/wheel/bin/python
fi
"$PYTHON" -m pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir "$DIST" .
ls "$DIST"/gymmesh-*.whl
