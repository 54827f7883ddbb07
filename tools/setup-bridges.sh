#!/usr/bin/env bash
# Creates the virtual environments for `make test-bridges`, one for each bridge. An environment has the
# bridge's other project, and nothing of gymmesh. Skips environments that are up to date. Prints the
# paths of the environments' interpreters.
#
#   tools/setup-bridges.sh [NAME...]      without NAME: all bridges in tools/bridges
#   tools/setup-bridges.sh --lock NAME    writes the versions of an environment to NAME.lock.txt
#
# Files in tools/bridges:
#   NAME.txt        the pinned version of the other project, and the purpose of the bridge
#   NAME.lock.txt   the versions of all dependencies
#   NAME.sh         optional: installs the rest. Its argument is the folder of the environment
#
# Comments in NAME.txt:
#   # python: 3.12          the Python version. The script looks for python3.12, in ~/.pyenv, and for
#                           the path in the variable PYTHON_3_12
#   # pip: OPTIONS          further options for pip
#   # environment: OTHER    use the environment of the bridge OTHER
set -euo pipefail
cd "$(dirname "$0")/.."

say() { echo "setup-bridges: $*" >&2; }
fail() {
    say "$@"
    exit 1
}

cache=$PWD/.cache/bridges
lists=tools/bridges
# Packages that depend on the machine are not pinned.
unpinned='^(# |-e |pip=|nvidia-|cuda-|triton=|torch=)'

if [ "${1:-}" = --lock ]; then
    [ -x "$cache/${2:?--lock needs the name of a bridge}/bin/python" ] ||
        fail "the environment of $2 does not exist yet: tools/setup-bridges.sh $2"
    "$cache/$2/bin/python" -m pip freeze --disable-pip-version-check |
        grep -vE "$unpinned" >"$lists/$2.lock.txt"
    exit
fi

interpreter() {
    local name=$1 wanted=$2 one chosen
    chosen=PYTHON_${wanted/./_}
    for one in "${!chosen:-}" "python$wanted" "$HOME"/.pyenv/versions/"$wanted".*/bin/python3 python3; do
        if [ -n "$one" ] && "$one" -c 'import sys; v, w = sys.version_info, sys.argv[1]
sys.exit(f"{v[0]}.{v[1]}" != w)' "$wanted" 2>/dev/null; then
            command -v "$one"
            return
        fi
    done
    fail "the bridge $name needs Python $wanted, which was not found." \
        "Install Python $wanted, or set $chosen=/path/to/python$wanted"
}

make_env() {
    local name=$1 python=$2 env=$cache/$1 locked=() options=() wanted
    wanted=$(cat "$lists/$name".* <("$python" -VV) | sha256sum)
    # With flock, only one script at a time creates an environment. A second script waits, and then finds
    # the environment up to date.
    if command -v flock >/dev/null; then
        exec 9>"$cache/$name.lock"
        flock -w 1800 9 || fail "waited 30 minutes for another setup-bridges.sh that creates $name"
    fi
    if [ "$(cat "$env/.gymmesh-setup" 2>/dev/null)" = "$wanted" ]; then
        return
    fi
    say "creating $env (takes some minutes)"
    rm -rf "$env"
    "$python" -m venv "$env" || fail "$python can't create a virtual environment"
    read -ra options < <(sed -nE 's/^# pip: (.+)$/\1/p' "$lists/$name.txt") || true
    [ -f "$lists/$name.lock.txt" ] && locked=(--constraint "$lists/$name.lock.txt")
    # The packages are large, so pip does not keep a copy in its cache.
    "$env/bin/python" -m pip install -qq --disable-pip-version-check --no-cache-dir \
        "${options[@]}" "${locked[@]}" --requirement "$lists/$name.txt" ||
        fail "$name: pip could not install the packages: see the output above"
    if [ -f "$lists/$name.sh" ]; then
        bash "$lists/$name.sh" "$env" >&2 || fail "$name: $lists/$name.sh failed: see the output above"
    fi
    echo "$wanted" >"$env/.gymmesh-setup"
}

if [ $# -eq 0 ]; then
    mapfile -t names < <(basename -a -s .txt $lists/*.txt | grep -v '\.lock$')
    set -- "${names[@]}"
fi
# The script finds all interpreters first, because the installation takes minutes.
declare -A pythons
envs=()
for name in "$@"; do
    [ -f "$lists/$name.txt" ] || fail "unknown bridge '$name': $lists/$name.txt does not exist"
    other=$(sed -nE 's/^# environment: (.+)$/\1/p' "$lists/$name.txt")
    name=${other:-$name}
    envs+=("$name")
    version=$(sed -nE 's/^# python: ([0-9.]+)$/\1/p' "$lists/$name.txt")
    pythons[$name]=$(interpreter "$name" "${version:-3.11}")
done
mkdir -p "$cache"
for name in "${envs[@]}"; do
    make_env "$name" "${pythons[$name]}"
    echo "$cache/$name/bin/python"
done
