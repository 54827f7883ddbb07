#!/usr/bin/env bash
# Makes what `make test-bridges` needs, once: for each bridge an environment with the other side in it,
# and nothing of this project. Does nothing for one that is up to date. Prints the interpreters' paths.
#
#   tools/setup-bridges.sh [NAME...]      (all of tools/bridges where none is named)
#
# tools/bridges/NAME.txt pins the other side and says what it is for, NAME.lock.txt has the versions of
# all that it brings, and NAME.sh, where there is one, installs the rest; it gets the environment's folder.
# `# python: 3.12` in NAME.txt chooses the interpreter, found as python3.12, below ~/.pyenv, or named by
# PYTHON_3_12; `# pip: OPTIONS` gives pip further ones. `# environment: OTHER` uses the environment of
# the bridge OTHER. tools/setup-bridges.sh --lock NAME writes the versions that an environment has.
set -euo pipefail
cd "$(dirname "$0")/.."

say() { echo "setup-bridges: $*" >&2; }
fail() {
    say "$@"
    exit 1
}

cache=$PWD/.cache/bridges
lists=tools/bridges
# What depends on the machine is not pinned.
unpinned='^(# |-e |pip=|nvidia-|cuda-|triton=|torch=)'

if [ "${1:-}" = --lock ]; then
    [ -x "$cache/${2:?which bridge?}/bin/python" ] || fail "there is no environment $2 yet"
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
    fail "the bridge $name needs Python $wanted, which was not found;" \
        "install it, or set $chosen=/path/to/python$wanted"
}

make_env() {
    local name=$1 python=$2 env=$cache/$1 locked=() options=() wanted
    wanted=$(cat "$lists/$name".* <("$python" -VV) | sha256sum)
    # One at a time, where there is flock; the second finds it done. Other environments aren't waited for.
    if command -v flock >/dev/null; then
        exec 9>"$cache/$name.lock"
        flock -w 1800 9 || fail "another setup-bridges.sh has been making $name for half an hour"
    fi
    if [ "$(cat "$env/.gymmesh-setup" 2>/dev/null)" = "$wanted" ]; then
        return
    fi
    say "making $env (some minutes)"
    rm -rf "$env"
    "$python" -m venv "$env" || fail "$python can't make a virtual environment"
    read -ra options < <(sed -nE 's/^# pip: (.+)$/\1/p' "$lists/$name.txt") || true
    [ -f "$lists/$name.lock.txt" ] && locked=(--constraint "$lists/$name.lock.txt")
    # Large, and kept nowhere else: pip's cache does not need it too.
    "$env/bin/python" -m pip install -qq --disable-pip-version-check --no-cache-dir \
        "${options[@]}" "${locked[@]}" --requirement "$lists/$name.txt" ||
        fail "$name: could not be installed, see above"
    if [ -f "$lists/$name.sh" ]; then
        bash "$lists/$name.sh" "$env" >&2 || fail "$name: $lists/$name.sh failed, see above"
    fi
    echo "$wanted" >"$env/.gymmesh-setup"
}

if [ $# -eq 0 ]; then
    mapfile -t names < <(basename -a -s .txt $lists/*.txt | grep -v '\.lock$')
    set -- "${names[@]}"
fi
# All interpreters are found before anything is made, which takes minutes.
declare -A pythons
envs=()
for name in "$@"; do
    [ -f "$lists/$name.txt" ] || fail "there is no bridge named $name"
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
