#!/usr/bin/env bash
# Makes .venv from the locked requirements and installs this repository into it, editable.
# Does nothing when .venv was made from the same lock, pyproject.toml and Python.
#
#   PYTHON   the interpreter to build on (default: python3.11, else python3)
set -euo pipefail
cd "$(dirname "$0")/.."

fail() {
    echo "setup: $*" >&2
    exit 1
}

PYTHON=${PYTHON:-$(command -v python3.11 || command -v python3 || true)}
[ -n "$PYTHON" ] || fail "no Python found; install Python 3.11 or newer, or set PYTHON=/path/to/python"
"$PYTHON" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null ||
    fail "$PYTHON is not a Python 3.11 or newer; set PYTHON=/path/to/python3.11"

# The sandbox for untrusted code needs bubblewrap. Without it everything else works: the tests that
# need it are skipped loudly (and fail under CI=true), and the `code` environment refuses to start.
if ! command -v bwrap >/dev/null; then
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
        echo "setup: installing Debian's bubblewrap"
        { apt-get update -qq &&
            apt-get install -y -qq --no-install-recommends bubblewrap >/dev/null; } ||
            echo "setup: bubblewrap could not be installed; there is no sandbox for code" >&2
    else
        echo "setup: there is no bubblewrap, so no sandbox for code; install Debian's bubblewrap" >&2
    fi
fi

# The tables of pyproject.toml that only steer tools (ruff, mypy, pytest, importlinter) don't count.
key=$("$PYTHON" - <<'EOF'
import hashlib, json, pathlib, sys, tomllib
project = tomllib.loads(pathlib.Path("pyproject.toml").read_text(encoding="utf-8"))
parts = [project["project"], project["build-system"], project["tool"]["hatch"], sys.version]
text = json.dumps(parts, sort_keys=True) + pathlib.Path("requirements/dev.txt").read_text()
print(hashlib.sha256(text.encode()).hexdigest())
EOF
)
stamp=.venv/.gymmesh-setup
if [ -x .venv/bin/python ] && [ "$(cat "$stamp" 2>/dev/null)" = "$key" ] &&
    [ -d .cache/googleapis ]; then
    exit 0
fi

usable() { [ -x .venv/bin/python ] && .venv/bin/python -m pip --version >/dev/null 2>&1; }

# Debian's python3 lacks ensurepip (package python3-venv) and pip (python3-pip): three ways, best
# first.
make_venv() {
    rm -rf .venv
    "$PYTHON" -m venv .venv >/dev/null 2>&1 && usable && return
    rm -rf .venv
    if ! "$PYTHON" -m virtualenv --version >/dev/null 2>&1 &&
        "$PYTHON" -m pip --version >/dev/null 2>&1; then
        # --target leaves the system's packages alone, so that Debian's pip allows it.
        "$PYTHON" -m pip install -qq --target .cache/virtualenv virtualenv || true
    fi
    PYTHONPATH=.cache/virtualenv "$PYTHON" -m virtualenv --quiet .venv >/dev/null 2>&1 &&
        usable && return
    rm -rf .venv
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
        echo "setup: installing Debian's python3-venv"
        apt-get update -qq && apt-get install -y -qq --no-install-recommends python3-venv >/dev/null
        "$PYTHON" -m venv .venv && usable && return
    fi
    fail "$PYTHON can't make a virtual environment; install Debian's python3-venv and run make again"
}

usable || make_venv
echo "setup: installing the locked requirements into .venv"
.venv/bin/python -m pip install -qq --disable-pip-version-check \
    --require-hashes --no-deps --requirement requirements/dev.txt
.venv/bin/python -m pip install -qq --disable-pip-version-check --no-deps --no-build-isolation --editable .
.venv/bin/python tools/protos.py
echo "$key" >"$stamp"
