#!/usr/bin/env bash
# Creates .venv from the locked requirements, and installs this repository in .venv as an editable
# package. Does nothing if the lock file, pyproject.toml and Python have not changed since .venv was
# created.
#
#   PYTHON   the Python interpreter for .venv (default: python3.11, else python3)
set -euo pipefail
cd "$(dirname "$0")/.."

fail() {
    echo "setup: $*" >&2
    exit 1
}

PYTHON=${PYTHON:-$(command -v python3.11 || command -v python3 || true)}
[ -n "$PYTHON" ] || fail "Python was not found: install Python 3.11 or newer, or set PYTHON=/path/to/python"
"$PYTHON" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null ||
    fail "$PYTHON is not Python 3.11 or newer; set PYTHON=/path/to/python3.11"

# The sandbox for untrusted code needs bubblewrap. Without bubblewrap, everything else works. The tests
# that need bubblewrap are skipped with a message, or fail if CI=true. The environment `code` does not
# start.
if ! command -v bwrap >/dev/null; then
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
        echo "setup: installing Debian's bubblewrap"
        { apt-get update -qq &&
            apt-get install -y -qq --no-install-recommends bubblewrap >/dev/null; } ||
            echo "setup: the installation of bubblewrap failed, so code can't run in a sandbox" >&2
    else
        echo "setup: code can't run in a sandbox without bubblewrap: apt install bubblewrap" >&2
    fi
fi

# The digest does not include the tables of pyproject.toml that only configure tools (ruff, mypy,
# pytest, importlinter).
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

# Debian's python3 can lack ensurepip (package python3-venv) and pip (package python3-pip). So the
# function tries three ways: venv, virtualenv, and venv after the installation of python3-venv.
make_venv() {
    rm -rf .venv
    "$PYTHON" -m venv .venv >/dev/null 2>&1 && usable && return
    rm -rf .venv
    if ! "$PYTHON" -m virtualenv --version >/dev/null 2>&1 &&
        "$PYTHON" -m pip --version >/dev/null 2>&1; then
        # Debian's pip allows --target, because --target does not change the system's packages.
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
    fail "$PYTHON can't create a virtual environment: apt install python3-venv, then run make again"
}

usable || make_venv
echo "setup: installing the locked requirements in .venv"
.venv/bin/python -m pip install -qq --disable-pip-version-check \
    --require-hashes --no-deps --requirement requirements/dev.txt
.venv/bin/python -m pip install -qq --disable-pip-version-check --no-deps --no-build-isolation --editable .
.venv/bin/python tools/protos.py
echo "$key" >"$stamp"
