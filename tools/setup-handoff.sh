#!/usr/bin/env bash
# Creates the virtual environments for `make test-handoff`. In these environments, trainers and other
# tools read gymmesh's exports with their own code. Each environment also has gymmesh. Skips
# environments that are up to date. Prints the environments' paths.
#
#   tools/setup-handoff.sh [NAME...]      without NAME: all environments
#   tools/setup-handoff.sh --lock NAME    writes the versions of an environment to NAME.lock.txt
#
#   loaders    datasets, pyarrow, Inspect and Harbor (ATIF): 1 GB, two minutes
#   trackers   W&B, MLflow and Trackio: 500 MB, two minutes
#   trainers   torch, TRL, veRL, OpenRLHF, SkyRL, SGLang, Ray and NeMo Gym: 3 GB with torch's CPU build,
#              8 GB with PyPI's Linux build, which includes CUDA; ten minutes
#   slime_areal
#              torch, AReaL and the packages that slime imports: 2 GB, or 6 GB with CUDA; five minutes.
#              slime is not on a package index. GYMMESH_TEST_SLIME=FOLDER is a checkout of its
#              repository. Without this variable, the tests of slime are skipped
#   prime_tinker_art
#              torch, verifiers (for prime-rl), tinker-cookbook and ART: 6 GB with PyPI's torch; three
#              minutes. prime-rl is not on a package index. GYMMESH_TEST_PRIME_RL=FOLDER is a checkout
#              of its repository. Without this variable, the tests of prime-rl are skipped
#
#   PYTHON_HANDOFF   the Python interpreter. All environments need Python 3.12
#
# Files in tools/handoff:
#   NAME.txt         the packages and the purpose of the environment
#   NAME.lock.txt    the versions of all dependencies
#   NAME.alone.txt   optional: packages that are installed without their dependencies
set -euo pipefail
cd "$(dirname "$0")/.."

say() { echo "setup-handoff: $*" >&2; }
fail() {
    say "$@"
    exit 1
}

cache=$PWD/.cache/handoff
lists=tools/handoff
# The lock files contain neither gymmesh nor packages that depend on the machine.
ours='^(# |-e |gymmesh|pip=|nvidia-|cuda-|triton=|torch=)'

if [ "${1:-}" = --lock ]; then
    [ -x "$cache/${2:?--lock needs the name of an environment}/bin/python" ] ||
        fail "the environment $2 does not exist yet: tools/setup-handoff.sh $2"
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
    fail "Python 3.12 was not found: install Python 3.12, or set PYTHON_HANDOFF=/path/to/python3.12"
}

# key NAME prints a digest of everything that determines the environment: the parts of pyproject.toml
# about the package (not the settings of tools), the Python version, and the files in tools/handoff.
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
    say "creating $env (takes some minutes)"
    if [ ! -x "$env/bin/python" ]; then
        rm -rf "$env"
        "$python" -m venv "$env" || fail "$python can't create a virtual environment"
    fi
    local pip=("$env/bin/python" -m pip install -qq --disable-pip-version-check)
    [ -f "$lists/$name.lock.txt" ] && locked=(--constraint "$lists/$name.lock.txt")
    # The packages are gigabytes, so pip does not keep a copy in its cache.
    "${pip[@]}" --no-cache-dir "${locked[@]}" --requirement "$lists/$name.txt" ||
        fail "$name: pip could not install $lists/$name.txt: see the output above"
    if [ -f "$lists/$name.alone.txt" ]; then
        "${pip[@]}" --no-cache-dir --no-deps --requirement "$lists/$name.alone.txt" ||
            fail "$name: pip could not install $lists/$name.alone.txt: see the output above"
    fi
    # gymmesh is last, so that pip installs the versions that gymmesh's stubs need, even if other
    # packages prefer other versions.
    "${pip[@]}" --editable . || fail "$name: pip could not install gymmesh: see the output above"
    echo "$wanted" >"$env/.gymmesh-setup"
}

[ $# -gt 0 ] || set -- loaders trackers trainers slime_areal prime_tinker_art
for name in "$@"; do
    [ -f "$lists/$name.txt" ] || fail "unknown environment '$name': $lists/$name.txt does not exist"
done
python=$(interpreter)
mkdir -p "$cache"
# With flock, only one script runs at a time. A second script waits, and then finds all environments
# up to date.
if command -v flock >/dev/null; then
    exec 9>"$cache/lock"
    flock -w 1800 9 || fail "waited 30 minutes for another setup-handoff.sh"
fi
for name in "$@"; do
    make_env "$name"
    echo "$cache/$name"
done
