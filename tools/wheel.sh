#!/usr/bin/env bash
# Builds the wheel into dist/. Needs Python 3.11 or newer with pip (or with venv, which brings it)
# and the package registry, but no development environment: pip builds in isolation.
#
#   PYTHON   the interpreter to build with (default: python3.11, else python3)
#   DIST     the folder of the wheel (default: dist)
set -euo pipefail
cd "$(dirname "$0")/.."

fail() {
    echo "wheel: $*" >&2
    exit 1
}

PYTHON=${PYTHON:-$(command -v python3.11 || command -v python3 || true)}
DIST=${DIST:-dist}
[ -n "$PYTHON" ] || fail "no Python found; install Python 3.11 or newer, or set PYTHON=/path/to/python"
"$PYTHON" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null ||
    fail "$PYTHON is not a Python 3.11 or newer; set PYTHON=/path/to/python3.11"
if ! "$PYTHON" -m pip --version >/dev/null 2>&1; then
    "$PYTHON" -m venv .cache/wheel >/dev/null 2>&1 ||
        fail "$PYTHON has neither pip nor venv; install Debian's python3-pip and run make again"
    PYTHON=.cache/wheel/bin/python
fi
"$PYTHON" -m pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir "$DIST" .
ls "$DIST"/gymmesh-*.whl
