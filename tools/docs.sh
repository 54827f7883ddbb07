#!/usr/bin/env bash
# Builds the documentation as a site in dist/docs, and checks its links. Creates a virtual environment
# in .cache/docs/env from the locked requirements. If the lock file, pyproject.toml and Python have
# not changed, the script uses the existing virtual environment.
#
#   PYTHON   the Python interpreter for the environment (default: python3.11, else python3)
set -euo pipefail
cd "$(dirname "$0")/.."

PYTHON=${PYTHON:-$(command -v python3.11 || command -v python3)}
env=.cache/docs/env
key=$({ "$PYTHON" -VV && cat requirements/docs.txt pyproject.toml; } | sha256sum)
if [ ! -x $env/bin/python ] || [ "$(cat $env/.gymmesh-setup 2>/dev/null)" != "$key" ]; then
    echo "docs: installing the locked requirements in $env"
    rm -rf $env
    # Debian's python3 can lack ensurepip. `make setup` has other ways to create .venv. The Python of
    # .venv then creates this environment.
    "$PYTHON" -m venv $env 2>/dev/null || { rm -rf $env && make --no-print-directory setup &&
        .venv/bin/python -m venv $env; } || {
        echo "docs: $PYTHON can't create a virtual environment: apt install python3-venv" >&2
        exit 1
    }
    pip=("$env/bin/python" -m pip install -qq --disable-pip-version-check --no-deps)
    "${pip[@]}" --require-hashes --requirement requirements/docs.txt
    "${pip[@]}" --no-build-isolation --editable .
    echo "$key" >$env/.gymmesh-setup
fi
exec $env/bin/python -m tools.docs
