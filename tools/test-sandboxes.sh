#!/usr/bin/env bash
# Runs tests/sandboxes with the daemons of Podman and Docker. `make test-sandboxes` runs this script,
# and passes its arguments to pytest. The script needs root. It installs both daemons from Debian's
# packages, and creates an image once from Debian's packages, without a registry of images.
#
# If the first argument is --chaos, the script runs tests.chaos.sandboxes instead. That test starts
# Podman's daemon itself, and kills the daemon.
#
#   BASE_SUITE   Debian's release in the image (default: bookworm)
#   DAEMONS      the daemons to use (default: "docker podman"; an empty value means no daemon)
set -euo pipefail
cd "$(dirname "$0")/.."
suite=${BASE_SUITE:-bookworm}
daemons=${DAEMONS-docker podman}
chaos=
if [ "${1:-}" = --chaos ]; then
    chaos=yes
    # The chaos test does not use Docker's daemon.
    case $daemons in *podman*) daemons=podman ;; *) daemons= ;; esac
    shift
fi
cache=$PWD/.cache/sandboxes
image=local/py:1
say() { echo "== $*"; }
fail() {
    echo "test-sandboxes: $*" >&2
    exit 1
}
[ "$(id -u)" -eq 0 ] || fail "this script needs root, because it starts the daemons of Docker and Podman"
packages=(bubblewrap mmdebstrap runc)
[[ $daemons != *podman* ]] || packages+=(podman buildah)
[[ $daemons != *docker* ]] || packages+=(docker.io)
tools/setup-debian.sh "${packages[@]}"

mkdir -p "$cache"
if [ ! -e "$cache/$suite.tar" ]; then
    say "creating an image of Debian $suite"
    mmdebstrap --quiet --variant=minbase --include=python3 "$suite" "$cache/new.tar"
    mv "$cache/new.tar" "$cache/$suite.tar"
fi

# The path is short, because paths of sockets have a length limit. All data of the daemons is in this
# folder, and is deleted with it.
place=$(mktemp -d /tmp/gymmesh-sandboxes-XXXXXX)
pids=()
# Many machines have hybrid control groups, with which crun does not work.
podman=(podman --root "$place/podman" --runroot "$place/podman-run" --runtime runc)
clean() {
    [[ $daemons != *podman* ]] || "${podman[@]}" rm --all --force --time 0 >/dev/null 2>&1 || true
    for pid in "${pids[@]}"; do kill "$pid" 2>/dev/null || true; done
    for pid in "${pids[@]}"; do wait "$pid" 2>/dev/null || true; done
    # Podman's monitor processes run for minutes. When they end, they would create the folder again.
    for one in /proc/[0-9]*; do
        if [ "${one#/proc/}" != "$$" ] &&
            tr '\0' ' ' 2>/dev/null <"$one/cmdline" | grep -qF "$place/"; then
            kill -9 "${one#/proc/}" 2>/dev/null || true
        fi
    done
    # A killed process can leave mounts.
    awk -v place="$place/" 'index($2, place) == 1 {print $2}' /proc/mounts | sort -r |
        while read -r one; do umount --lazy "$one" || true; done
    rm -rf "$place"
}
trap clean EXIT
trap 'exit 130' INT TERM

answers() { # SOCKET LOG
    for _ in $(seq 150); do
        curl --silent --fail --output /dev/null --unix-socket "$1" http://d/version && return
        sleep 0.2
    done
    tail -20 "$2" >&2
    fail "no daemon answered at $1 within 30 s: see the log above"
}

[[ $daemons != *podman* ]] ||
    "${podman[@]}" import --quiet "$cache/$suite.tar" "$image" >/dev/null
if [ "$chaos" ]; then
    if [ "$daemons" ]; then
        words=$(printf '"%s", ' "${podman[@]}")
        export GYMMESH_TEST_PODMAN="[${words%, }]" GYMMESH_TEST_SANDBOX_IMAGE=$image
    fi
    .venv/bin/python -m tests.chaos.sandboxes "$@"
    exit
fi

named=()
for daemon in $daemons; do
    socket=$place/$daemon.sock
    log=$cache/$daemon.log
    say "starting $daemon"
    if [ "$daemon" = podman ]; then
        BUILDAH_ISOLATION=chroot "${podman[@]}" system service --time 0 "unix://$socket" \
            >"$log" 2>&1 &
        pids+=($!)
        answers "$socket" "$log"
    else
        dockerd --data-root "$place/docker" --exec-root "$place/docker-run" \
            --host "unix://$socket" --pidfile "$place/docker.pid" \
            --iptables=false --ip6tables=false --bridge=none >"$log" 2>&1 &
        pids+=($!)
        answers "$socket" "$log"
        curl --silent --fail --unix-socket "$socket" --request POST --upload-file "$cache/$suite.tar" \
            --header 'Content-Type: application/x-tar' --output /dev/null \
            "http://d/v1.41/images/create?fromSrc=-&repo=${image%:*}&tag=${image#*:}"
    fi
    named+=("$daemon=unix://$socket")
done

say "running the tests"
GYMMESH_TEST_SANDBOXES="${named[*]-}" GYMMESH_TEST_SANDBOX_IMAGE=$image \
    .venv/bin/python -m pytest tests/sandboxes "$@"
