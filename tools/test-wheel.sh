#!/usr/bin/env bash
# Builds the wheel, installs it with its dependencies into an environment of its own, and runs
# gym-cli from there: what somebody has who follows the README and nothing else.
#
#   PYTHON   the interpreter (default: python3.11, else python3)
set -euo pipefail
cd "$(dirname "$0")/.."

fail() {
    echo "test-wheel: $*" >&2
    exit 1
}

PYTHON=${PYTHON:-$(command -v python3.11 || command -v python3)}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
DIST="$work" PYTHON="$PYTHON" tools/wheel.sh
"$PYTHON" -m venv "$work/env"
wheel=$(echo "$work"/gymmesh-*.whl)
"$work/env/bin/python" -m pip install --quiet --disable-pip-version-check "$wheel"
row='{"responses_create_params": {"input": "What is 1 + 1?"}, "expected_answer": "2"}'
echo "$row" >"$work/tasks.jsonl"
cd "$work" # nothing of the checkout is in reach
env/bin/gym-cli --version
env/bin/gym-cli --help >/dev/null
echo 'environments: {math: {use: math}}' >mesh.yaml
# The core alone says what an environment lacks; with its extra, it works.
validate="env/bin/gym-cli data validate --config mesh.yaml tasks.jsonl"
said=$($validate 2>&1) && fail "an environment without its extra was taken"
[[ $said == *"pip install 'gymmesh[math]'" ]] || fail "of a missing extra is said: $said"
env/bin/python -m pip install --quiet --disable-pip-version-check "$wheel[math]"
$validate
