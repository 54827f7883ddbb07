#!/usr/bin/env bash
# Collects scored rollouts from a small language model on this machine. Needs no account and no model
# hub. `make demo` runs this script. You can set TASKS, REPEATS and CONCURRENCY.
set -euo pipefail
cd "$(dirname "$0")/.."
bin=.venv/bin

mkdir -p demo
echo "== generating tasks: arithmetic and word problems"
$bin/python tools/make_tasks.py --count "${TASKS:-20}" --seed 7 --output demo/tasks.jsonl
echo "== collecting rollouts"
$bin/gym-cli collect \
    --config examples/demo/demo.yaml \
    --input demo/tasks.jsonl \
    --output demo/rollouts.jsonl \
    --num-repeats "${REPEATS:-2}" \
    --concurrency "${CONCURRENCY:-4}" \
    --overwrite
