#!/usr/bin/env bash
# Writes the list of the images' Python packages (software bill of materials, CycloneDX 1.6) from the
# images' lock file, and prints the path of the list.
#
#   OUT   the file to write (default: dist/sbom.cdx.json)
set -euo pipefail
cd "$(dirname "$0")/.."
out=${OUT:-dist/sbom.cdx.json}
python=$(dirname "$(tools/setup-helm.sh)")/python
mkdir -p "$(dirname "$out")"
# The list has the packages' names and versions, but not the package index.
PYTHONPATH=$python .venv/bin/python -m cyclonedx_py requirements --pyproject pyproject.toml \
    --mc-type application --output-reproducible --spec-version 1.6 --output-format JSON \
    --output-file "$out" requirements/image.txt
echo "$out"
