#!/bin/sh
# Moves the harness to a Kubernetes release: `./move_to_release.sh v1.36.3`. It rewrites go.mod and go.sum.
#
# k8s.io/kubernetes requires its staging modules at v0.0.0 and replaces them by directories of its own repository, which
# holds for its own build only. Whoever imports it must replace each of them by the module published with the release:
# v1.X.Y goes with v0.X.Y.
set -eu
release=${1:?usage: move_to_release.sh v1.X.Y}
cd "$(dirname "$0")"

their_mod=$(go mod download -json "k8s.io/kubernetes@$release" | sed -n 's/^[[:space:]]*"GoMod": "\(.*\)",*$/\1/p')
[ -n "$their_mod" ] || { echo "move_to_release.sh: k8s.io/kubernetes $release cannot be had — there is no such release, or the Go module proxy does not answer — try another" >&2; exit 1; }
{
    echo "module devherd/tests/kubelet/harness"
    echo
    grep -m 1 '^go ' "$their_mod"
    echo
    echo "require k8s.io/kubernetes $release"
    echo
    echo "replace ("
    sed -n "s|^[[:space:]]*\(k8s.io/[a-z-]*\) => \./staging/.*|	\1 => \1 v0.${release#v1.}|p" "$their_mod"
    echo ")"
} >go.mod.new
mv go.mod.new go.mod
go mod tidy
