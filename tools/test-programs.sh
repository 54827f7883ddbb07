#!/usr/bin/env bash
# Runs published coding agents (programs), unchanged, against a scripted model: tests/programs. The
# script installs the programs once with npm and pip in .cache/programs, in the versions that gymmesh
# pins. `make test-programs` runs this script, and passes its arguments to pytest.
#
#   PROGRAMS   the programs to test (default: all known programs)
#   TASKS      the number of tasks for each program (default: 20)
#   PYTHON     the Python interpreter for programs in Python (default: the version that the program
#              requires, else /usr/bin/python3). The script copies an interpreter that is not in /usr
set -euo pipefail
cd "$(dirname "$0")/.."
folder=$PWD/.cache/programs
say() { echo "== $*"; }
fail() {
    echo "test-programs: $*" >&2
    exit 1
}
command -v npm >/dev/null || fail "npm was not found: apt install npm"
command -v bwrap >/dev/null || fail "bubblewrap was not found: apt install bubblewrap"
mkdir -p "$folder"

programs=${PROGRAMS:-$(.venv/bin/python -c \
    'from gymmesh_agent.programs import known_programs; print(*known_programs())')}

# A virtual environment's interpreter is a link. The sandbox must contain the target of the link, too.
interpreter() { # VERSION
    local one found prefix own
    for one in ${PYTHON:-${1:+python$1 $folder/python$1/bin/python3} /usr/bin/python3}; do
        found=$("$one" -c 'import os, sys; print(os.path.realpath(sys.executable))' 2>&-) && break
    done
    [ -n "$found" ] || fail "${PYTHON:-/usr/bin/python3} is not a Python interpreter"
    prefix=$("$found" -c 'import sys; print(sys.base_prefix)')
    if [[ $prefix != /usr* && $prefix != "$folder"/* ]]; then
        own=$folder/$(basename "$found")
        [ -x "$own/bin/python3" ] || cp -r "$prefix" "$own"
        found=$own/bin/python3
    fi
    echo "$found"
}

say "installing: $programs"
for program in $programs; do
    version=$(.venv/bin/python -c "from gymmesh_agent.programs import find_program
print(find_program('$program').install.python)")
    python=$(interpreter "$version")
    .venv/bin/python -m gymmesh_agent.programs.install "$program" \
        --folder "$folder" --python "$python"
done

say "running the tests"
GYMMESH_TEST_PROGRAM_TASKS="${TASKS:-20}" GYMMESH_TEST_PROGRAMS="$programs" \
    GYMMESH_TEST_PROGRAMS_FOLDER="$folder" \
    .venv/bin/python -m pytest tests/programs "$@"
