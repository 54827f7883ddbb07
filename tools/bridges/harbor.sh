#!/usr/bin/env bash
# What Harbor's runner needs besides its package: Podman (root), and an image of Debian, made from
# Debian's packages. tools/setup-bridges.sh calls it with the environment's folder.
set -euo pipefail
env=$1
tools/setup-debian.sh bubblewrap mmdebstrap podman buildah runc
if [ ! -e "$env/image.tar" ]; then
    mmdebstrap --quiet --variant=minbase --include=python3 bookworm "$env/new.tar"
    mv "$env/new.tar" "$env/image.tar"
fi
