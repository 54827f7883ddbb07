#!/usr/bin/env bash
# Runs programs that people ship as agents, unchanged, against a scripted model: tests/programs.
# They are installed once, by npm and pip, into .cache/programs, in the versions that their files
# name. `make test-programs` calls it; its arguments go to pytest.
#
#   PROGRAMS   which (default: all that are known)
#   PYTHON     the interpreter of Python programs (default: python3.12, else the system's). One that
#              lies where sandboxes cannot read, such as below /root, is copied.
set -euo pipefail
cd "$(dirname "$0")/.."
folder=$PWD/.cache/programs
say() { echo "== $*"; }
fail() {
    echo "test-programs: $*" >&2
    exit 1
}
command -v npm >/dev/null || fail "needs npm; install the Debian package npm"
command -v bwrap >/dev/null || fail "needs bubblewrap; install the Debian package bubblewrap"
mkdir -p "$folder"

programs=${PROGRAMS:-$(.venv/bin/python -c \
    'from gymmesh_agent.programs import known_programs; print(*known_programs())')}

# A virtual environment's interpreter is a link, and its target has to be in the sandbox as well.
python=${PYTHON:-$(command -v python3.12 || command -v python3)}
python=$("$python" -c 'import os, sys; print(os.path.realpath(sys.executable))')
prefix=$("$python" -c 'import sys; print(sys.base_prefix)')
if [[ $prefix != /usr* ]]; then
    own=$folder/$(basename "$python")
    if [ ! -x "$own/bin/python3" ]; then
        say "copying $prefix"
        rm -rf "$own"
        cp -r "$prefix" "$own"
    fi
    python=$own/bin/python3
fi

say "installing: $programs"
for program in $programs; do
    .venv/bin/python -m gymmesh_agent.programs.install "$program" \
        --folder "$folder" --python "$python"
done

say "the tests"
GYMMESH_TEST_PROGRAMS="$programs" GYMMESH_TEST_PROGRAMS_FOLDER="$folder" \
    .venv/bin/python -m pytest tests/programs "$@"
