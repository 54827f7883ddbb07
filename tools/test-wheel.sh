#!/usr/bin/env bash
# Builds the wheel, installs it with its dependencies in a new virtual environment, and runs gym-cli
# from this environment, like a user who follows only the README.
#
#   PYTHON   the Python interpreter (default: python3.11, else python3)
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
cd "$work" # so that Python can't import from the checkout
env/bin/gym-cli --version
env/bin/gym-cli --help >/dev/null
echo 'environments: {math: {use: math}}' >mesh.yaml
# Without the extra `math`, gym-cli must name the extra to install. With the extra, gym-cli must succeed.
validate="env/bin/gym-cli data validate --config mesh.yaml tasks.jsonl"
said=$($validate 2>&1) && fail "gym-cli accepted the environment math without the extra math"
[[ $said == *"pip install 'gymmesh[math]'" ]] ||
    fail "gym-cli did not name the command that installs the extra math, but printed: $said"
env/bin/python -m pip install --quiet --disable-pip-version-check "$wheel[math]"
$validate
