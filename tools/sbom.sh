#!/usr/bin/env bash
# Writes the software bill of materials of the images' Python packages, as CycloneDX 1.6, from the
# lock file that the images are built from; prints its path.
#
#   OUT   the file (default: dist/sbom.cdx.json)
set -euo pipefail
cd "$(dirname "$0")/.."
out=${OUT:-dist/sbom.cdx.json}
python=$(dirname "$(tools/setup-helm.sh)")/python
mkdir -p "$(dirname "$out")"
# The index is left out: packages are named by what they are, and not by where they came from.
PYTHONPATH=$python .venv/bin/python -m cyclonedx_py requirements --pyproject pyproject.toml \
    --mc-type application --output-reproducible --spec-version 1.6 --output-format JSON \
    --output-file "$out" requirements/image.txt
echo "$out"
