#!/usr/bin/env bash
# Builds the images of deploy/images, without a container engine's daemon, and tries them: as they
# are, and the sandbox's under runc with what the chart gives its pod. Needs root and some
# minutes; installs Debian's buildah, runc and debootstrap. `make test-images` calls it.
#
# The base is a Debian of our own making, as no registry of images need be reached: Python is
# Debian's and below /usr/bin.
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
    say "making a Debian $suite"
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

# The machine's own certificates and settings of pip, for the steps that fetch packages.
given=(--volume /etc/ssl/certs:/etc/ssl/certs:ro)
[ ! -e /etc/pip.conf ] || given+=(--volume /etc/pip.conf:/etc/pip.conf:ro)
[ -z "${PIP_CERT:-}" ] || given+=(--env "PIP_CERT=$PIP_CERT")
for target in services sandbox; do
    say "building $target"
    buildah build --quiet --isolation chroot --network host --layers "${given[@]}" \
        --build-arg "BASE=$base" --file deploy/images/Dockerfile --target "$target" \
        --tag "localhost/gymmesh-$target" . >"$cache/build-$target.log" 2>&1 ||
        fail "the image $target was not built; see $cache/build-$target.log"
done

say "the services' image: its user, its programs, its command"
container=$(buildah from localhost/gymmesh-services)
containers+=("$container")
in_image() { buildah run --isolation chroot "$container" -- "$@"; }
[ "$(in_image id -u)" = 10001 ] || fail "it does not run as user 10001"
in_image gym-cli --version
! in_image sh -c 'command -v gcc || [ -e /opt/gymmesh/bin/pip ]' 2>/dev/null ||
    fail "it has a compiler or pip"
! in_image touch /opt/gymmesh/touched 2>/dev/null || fail "it can change its own programs"
said=$(in_image gym-cli serve environment nobody 2>&1 || true)
[[ $said == *"no environment 'nobody'"* ]] || fail "gym-cli serve said: $said"
in_image python -c 'import consul, envoy.config, mcp, openai'

say "the sandbox's image under runc, with what the chart gives its pod"
container=$(buildah from localhost/gymmesh-sandbox)
containers+=("$container")
mkdir "$place/root"
# Where others may pass through, as a user namespace makes one of them of root.
chmod 711 "$place"
mount --bind "$(buildah mount "$container")" "$place/root"
try() { # VARIANT EXPECTED
    .venv/bin/python tools/images/bundle.py "$place/root" "$place" "$1"
    local said
    said=$(timeout 120 runc run --bundle "$place" "gymmesh-$1-$$" 2>&1 || true)
    [[ $said == *"$2"* ]] || fail "as $1 the sandbox said: $said"
    echo "$1: $(tail -n 1 <<<"$said" | cut -c 1-160)"
}
try pod "ran EXITED 42"
try hostusers "ran EXITED 42"
try masked "Can't mount proc"
say "images: 2 built and tried"
