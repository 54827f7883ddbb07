#!/usr/bin/env bash
# Builds the Kubernetes control plane of the tests (etcd, kube-apiserver, kube-controller-manager) from
# the Go module proxy in .cache/kubernetes, and prints this folder. Does nothing if everything is up to
# date. Needs Go. The first build takes 10 to 40 minutes, and 5 GB in Go's caches. The script also
# downloads the definitions of the custom resources that the chart creates (tools/kubernetes/crds.txt)
# to the folder crds/ in .cache/kubernetes.
#
# Kubernetes refers to its own libraries by paths in its repository. tools/kubernetes/go.mod replaces
# these paths with the published versions. To change the version of Kubernetes, change v1.X.Y and each
# v0.X.Y in tools/kubernetes/go.mod. Then run `go mod tidy` in tools/kubernetes.
set -euo pipefail
cd "$(dirname "$0")/kubernetes"
out=../../.cache/kubernetes
key=$(cat go.mod go.sum | sha256sum | cut -d' ' -f1)

if [ "$(cat "$out/key" 2>/dev/null)" != "$key" ]; then
    command -v go >/dev/null || {
        echo "setup-kubernetes: Go was not found: install Go 1.26 or newer" >&2
        exit 1
    }
    mkdir -p "$out"
    out=$(realpath "$out")
    version=$(go list -mod=readonly -m -f '{{.Version}}' k8s.io/kubernetes)
    IFS=. read -r major minor _ <<<"${version#v}"
    # A release build sets these version variables. Without them, the server reports version v0.0.0.
    stamp=k8s.io/component-base/version
    ldflags="-s -w -X $stamp.gitVersion=$version -X $stamp.gitMajor=$major -X $stamp.gitMinor=$minor"
    build() { # PROGRAM PACKAGE
        echo "setup-kubernetes: building $1" >&2
        CGO_ENABLED=0 go build -mod=readonly -trimpath -ldflags "$ldflags" -o "$out/$1" "$2"
    }
    build etcd go.etcd.io/etcd/server/v3
    for program in kube-apiserver kube-controller-manager; do
        build "$program" "k8s.io/kubernetes/cmd/$program"
    done
    echo "$key" >"$out/key"
fi

key=$(sha256sum <crds.txt | cut -d' ' -f1)
if [ "$(cat "$out/crds/key" 2>/dev/null)" != "$key" ]; then
    echo "setup-kubernetes: downloading the definitions of custom resources" >&2
    rm -rf "$out/crds"
    mkdir -p "$out/crds"
    while read -r module version sum files; do
        case $module in '#'* | '') continue ;; esac
        # Runs outside this Go module, so that the module doesn't get these modules as dependencies.
        fetched=$(cd / && go mod download -json "$module@$version")
        field() { sed -n "s/^\t\"$1\": \"\(.*\)\",\{0,1\}$/\1/p" <<<"$fetched"; }
        if [ "$(field Sum)" != "$sum" ]; then
            echo "setup-kubernetes: the checksum of $module $version differs from crds.txt: $fetched" >&2
            exit 1
        fi
        for file in $files; do
            install -m 644 "$(field Dir)/$file" "$out/crds/"
        done
    done <crds.txt
    echo "$key" >"$out/crds/key"
fi
realpath "$out"
