#!/usr/bin/env bash
# Builds the images of deploy/images without the daemon of a container engine, and tests both images.
# The image `sandbox` also runs under runc, with the settings of the chart's pod. `make test-images`
# runs this script. It needs root, takes some minutes, and installs Debian's buildah, runc and
# debootstrap.
#
# The script creates the base image with debootstrap, so the script needs no registry of images. Python
# is Debian's Python in /usr/bin.
#
#   BASE_SUITE   Debian's release (default: bookworm)
set -euo pipefail
cd "$(dirname "$0")/.."
tools/setup-debian.sh buildah runc debootstrap
suite=${BASE_SUITE:-bookworm}
cache=$PWD/.cache/images
mkdir -p "$cache"
say() { echo "== $*"; }
fail() {
    echo "test-images: $*" >&2
    exit 1
}

if [ ! -e "$cache/$suite/ready" ]; then
    say "creating the base image, Debian $suite"
    rm -rf "${cache:?}/$suite"
    debootstrap --variant=minbase --include=python3,python3-venv,ca-certificates \
        "$suite" "$cache/$suite/root" >"$cache/debootstrap.log"
    touch "$cache/$suite/ready"
fi

containers=()
place=$(mktemp -d)
clean() {
    mountpoint -q "$place/root" && umount "$place/root"
    for one in "${containers[@]}"; do buildah rm "$one" >/dev/null; done
    rm -rf "$place"
}
trap clean EXIT

base=localhost/gymmesh-base:$suite
if ! buildah inspect --type image "$base" >/dev/null 2>&1; then
    working=$(buildah from scratch)
    buildah add --quiet "$working" "$cache/$suite/root" / >/dev/null
    buildah commit --quiet --rm "$working" "$base" >/dev/null
fi

# The steps that download packages use the machine's certificates and pip settings.
given=(--volume /etc/ssl/certs:/etc/ssl/certs:ro)
[ ! -e /etc/pip.conf ] || given+=(--volume /etc/pip.conf:/etc/pip.conf:ro)
[ -z "${PIP_CERT:-}" ] || given+=(--env "PIP_CERT=$PIP_CERT")
for target in services sandbox; do
    say "building the image $target"
    buildah build --quiet --isolation chroot --network host --layers "${given[@]}" \
        --build-arg "BASE=$base" --file deploy/images/Dockerfile --target "$target" \
        --tag "localhost/gymmesh-$target" . >"$cache/build-$target.log" 2>&1 ||
        fail "the build of the image $target failed: see $cache/build-$target.log"
done

say "testing the image services: its user, its programs, its command"
container=$(buildah from localhost/gymmesh-services)
containers+=("$container")
in_image() { buildah run --isolation chroot "$container" -- "$@"; }
[ "$(in_image id -u)" = 10001 ] || fail "the image services does not run as user 10001"
in_image gym-cli --version
! in_image sh -c 'command -v gcc || [ -e /opt/gymmesh/bin/pip ]' 2>/dev/null ||
    fail "the image services contains a compiler or pip"
! in_image touch /opt/gymmesh/touched 2>/dev/null ||
    fail "the user of the image services can write to /opt/gymmesh"
said=$(in_image gym-cli serve environment nobody 2>&1 || true)
[[ $said == *"no environment 'nobody'"* ]] ||
    fail "gym-cli serve printed another message than \"no environment 'nobody'\": $said"
in_image python -c 'import consul, envoy.config, mcp, openai'

say "testing the image sandbox under runc, with the settings of the chart's pod"
container=$(buildah from localhost/gymmesh-sandbox)
containers+=("$container")
mkdir "$place/root"
# In a user namespace, root is another user. This user must be able to enter the folder.
chmod 711 "$place"
mount --bind "$(buildah mount "$container")" "$place/root"
try() { # VARIANT EXPECTED
    .venv/bin/python tools/images/bundle.py "$place/root" "$place" "$1"
    local said
    said=$(timeout 120 runc run --bundle "$place" "gymmesh-$1-$$" 2>&1 || true)
    [[ $said == *"$2"* ]] || fail "variant $1: the sandbox did not print \"$2\", but: $said"
    echo "$1: $(tail -n 1 <<<"$said" | cut -c 1-160)"
}
try pod "ran EXITED 42"
try hostusers "ran EXITED 42"
try masked "Can't mount proc"
say "2 images built and tested"
