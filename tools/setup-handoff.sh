#!/usr/bin/env bash
# Makes what `make test-handoff` needs, once: environments in which trainers and other tools read
# what we export by their own code, each with this project in it. Does nothing for one that is there.
# Prints the environments' paths.
#
#   tools/setup-handoff.sh [loaders] [trackers] [trainers] [slime_areal] [prime_tinker_art]
#                                                                            (all if none is named)
#
#   loaders    datasets, pyarrow, Inspect and Harbor (ATIF): 1 GB, two minutes
#   trackers   W&B, MLflow and Trackio: 500 MB, two minutes
#   trainers   torch, TRL, veRL, OpenRLHF, SkyRL, SGLang, Ray and NeMo Gym: 3 GB with torch's build for
#              CPUs, 8 GB with PyPI's for Linux, which brings CUDA along; ten minutes
#   slime_areal
#              torch, AReaL and what slime imports: 2 GB, or 6 GB with CUDA; five minutes. slime is on
#              no package index: GYMMESH_TEST_SLIME=FOLDER names its repository, without which its
#              tests are skipped
#   prime_tinker_art
#              torch, verifiers (for prime-rl), tinker-cookbook and ART: 6 GB with PyPI's torch; three
#              minutes. prime-rl is on no package index: GYMMESH_TEST_PRIME_RL=FOLDER names its
#              repository, without which its tests are skipped
#
#   PYTHON_HANDOFF   the interpreter: Python 3.12, the only one that all of them take
#
# tools/handoff/NAME.txt has what each environment is for, NAME.lock.txt the versions of all that
# this brings, and NAME.alone.txt, where there is one, what is installed without what it names.
# tools/setup-handoff.sh --lock NAME writes the versions that an environment has.
set -euo pipefail
cd "$(dirname "$0")/.."

say() { echo "setup-handoff: $*" >&2; }
fail() {
    say "$@"
    exit 1
}

cache=$PWD/.cache/handoff
lists=tools/handoff
# This project is installed last, editable; what only steers tools in pyproject.toml doesn't count.
ours='^(# |-e |gymmesh|pip=|nvidia-|cuda-|triton=|torch=)'

if [ "${1:-}" = --lock ]; then
    [ -x "$cache/${2:?which environment?}/bin/python" ] || fail "there is no environment $2 yet"
    "$cache/$2/bin/python" -m pip freeze --disable-pip-version-check |
        grep -vE "$ours" >"$lists/$2.lock.txt"
    exit
fi

interpreter() {
    local one
    for one in "${PYTHON_HANDOFF:-}" python3.12 "$HOME"/.pyenv/versions/3.12.*/bin/python3 python3; do
        if [ -n "$one" ] && "$one" -c 'import sys; sys.exit(sys.version_info[:2] != (3, 12))' \
            2>/dev/null; then
            command -v "$one"
            return
        fi
    done
    fail "no Python 3.12 found; install it, or set PYTHON_HANDOFF=/path/to/python3.12"
}

# key NAME: changes with all that goes into the environment.
key() {
    "$python" - "$lists/$1".* <<'KEY'
import hashlib, json, pathlib, sys, tomllib
project = tomllib.loads(pathlib.Path("pyproject.toml").read_text(encoding="utf-8"))
parts = [project["project"], project["build-system"], project["tool"]["hatch"], sys.version]
text = json.dumps(parts, sort_keys=True) + "".join(pathlib.Path(p).read_text() for p in sys.argv[1:])
print(hashlib.sha256(text.encode()).hexdigest())
KEY
}

make_env() {
    local name=$1 env=$cache/$1 locked=() wanted
    wanted=$(key "$name")
    if [ "$(cat "$env/.gymmesh-setup" 2>/dev/null)" = "$wanted" ]; then
        return
    fi
    say "making $env (some minutes)"
    if [ ! -x "$env/bin/python" ]; then
        rm -rf "$env"
        "$python" -m venv "$env" || fail "$python can't make a virtual environment"
    fi
    local pip=("$env/bin/python" -m pip install -qq --disable-pip-version-check)
    [ -f "$lists/$name.lock.txt" ] && locked=(--constraint "$lists/$name.lock.txt")
    # What is not kept anywhere else is not kept in pip's cache either: it is gigabytes.
    "${pip[@]}" --no-cache-dir "${locked[@]}" --requirement "$lists/$name.txt" ||
        fail "$name: could not be installed, see above"
    if [ -f "$lists/$name.alone.txt" ]; then
        "${pip[@]}" --no-cache-dir --no-deps --requirement "$lists/$name.alone.txt" ||
            fail "$name: could not be installed, see above"
    fi
    # Last, so that the versions that our stubs need win over those that others would rather have.
    "${pip[@]}" --editable . || fail "$name: this project could not be installed, see above"
    echo "$wanted" >"$env/.gymmesh-setup"
}

[ $# -gt 0 ] || set -- loaders trackers trainers slime_areal prime_tinker_art
for name in "$@"; do
    [ -f "$lists/$name.txt" ] || fail "there is no environment named $name"
done
python=$(interpreter)
mkdir -p "$cache"
# One at a time, where there is flock; the second finds all done.
if command -v flock >/dev/null; then
    exec 9>"$cache/lock"
    flock -w 1800 9 || fail "another setup-handoff.sh has been running for half an hour"
fi
for name in "$@"; do
    make_env "$name"
    echo "$cache/$name"
done
