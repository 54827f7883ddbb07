#!/usr/bin/env bash
# This project itself, whose gymmesh_taskset verifiers loads; its requirements are in verifiers.txt.
set -euo pipefail
exec "$1/bin/python" -m pip install -qq --disable-pip-version-check --no-deps --editable .
