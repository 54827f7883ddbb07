#!/usr/bin/env bash
# Runs programs that people ship as agents, unchanged, against a scripted model: tests/programs.
# They are installed once, by npm and pip, into .cache/programs, in the versions that their files
# name. `make test-programs` calls it; its arguments go to pytest.
#
#   PROGRAMS   which (default: all that are known)
#   TASKS      how many tasks each works on (default: 20)
#   PYTHON     the interpreter of Python programs (default: of the version that a program's file asks
#              for, else the system's; one that is not below /usr is copied)
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
interpreter() { # VERSION
    local one found prefix own
    for one in ${PYTHON:-${1:+python$1 $folder/python$1/bin/python3} /usr/bin/python3}; do
        found=$("$one" -c 'import os, sys; print(os.path.realpath(sys.executable))' 2>&-) && break
    done
    [ -n "$found" ] || fail "${PYTHON:-/usr/bin/python3} is no Python"
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

say "the tests"
GYMMESH_TEST_PROGRAM_TASKS="${TASKS:-20}" GYMMESH_TEST_PROGRAMS="$programs" \
    GYMMESH_TEST_PROGRAMS_FOLDER="$folder" \
    .venv/bin/python -m pytest tests/programs "$@"
