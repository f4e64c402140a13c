#!/bin/sh
# Moves the tests' Go modules to a Kubernetes release: `tests/move_to_kubernetes.sh v1.37.2`. It rewrites go.mod and go.sum.
# With the name of an older minor release before it, `tests/move_to_kubernetes.sh 1.34 v1.34.9`, it rewrites
# kubelet/harness/releases/v1.34.mod and .sum, by which the harness is built of that one.
#
# k8s.io/kubernetes requires its staging modules at v0.0.0 and replaces them by directories of its own repository, which
# holds for its own build only. Whoever imports it must replace each of them by the module published with the release:
# v1.X.Y goes with v0.X.Y. All else (etcd, too) is at the version that the release itself requires.
set -eu
usage="usage: move_to_kubernetes.sh [1.X] v1.X.Y"
older=
[ $# -lt 2 ] || { older=$1 && shift; }
release=${1:?$usage}
cd "$(dirname "$0")"

their_mod=$(go mod download -json "k8s.io/kubernetes@$release" | sed -n 's/^[[:space:]]*"GoMod": "\(.*\)",*$/\1/p')
[ -n "$their_mod" ] || { echo "move_to_kubernetes.sh: k8s.io/kubernetes $release cannot be had — there is no such release, or the Go module proxy does not answer — try another" >&2; exit 1; }

go_mod() { # MODULE
    echo "module devherd/tests/$1"
    echo
    grep -m 1 '^go ' "$their_mod"
    echo
    echo "require k8s.io/kubernetes $release"
    echo
    echo "replace ("
    sed -n "s|^[[:space:]]*\(k8s.io/[a-z-]*\) => \./staging/.*|	\1 => \1 v0.${release#v1.}|p" "$their_mod"
    echo ")"
}

# Writes the harness's go.mod (or releases/v1.X.mod) and its .sum. Tidied is a copy with those files alone that are built of the
# release: `go mod tidy` knows no build tags, and what a file for another release imports would raise the versions of this one.
move_harness() { # NAME [TAG]
    copy=$(mktemp -d)
    trap 'rm -rf "$copy"' EXIT
    go_mod kubelet/harness >"$copy/go.mod"
    cd kubelet/harness
    cp $(go list -e -tags "${2:-}" -f '{{join .GoFiles " "}}') "$copy"
    (cd "$copy" && go mod tidy)
    cp "$copy/go.mod" "$1.mod"
    cp "$copy/go.sum" "$1.sum"
}

if [ -n "$older" ]; then
    move_harness "releases/v$older" "kubernetes_$(echo "$older" | tr . _)"
    exit
fi
(move_harness go)
go_mod cluster/programs >cluster/programs/go.mod.new
mv cluster/programs/go.mod.new cluster/programs/go.mod
cd cluster/programs
go mod tidy
