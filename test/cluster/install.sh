#!/usr/bin/env bash
# Installs what the tests of this folder need beside test/services/install.sh: etcd from the operating system's packages, and the API server, the controllers and
# kubectl of Kubernetes in one program, built from their Go modules (20 minutes on two cores), and Helm 4. They are kept in $SVC_TEST_SERVERS
# (default ~/.cache/svc-test-servers). What is there stays as it is.
set -euo pipefail
cd "$(dirname "$0")"

servers=${SVC_TEST_SERVERS:-${HOME:?HOME is not set: set SVC_TEST_SERVERS to a folder for the servers}/.cache/svc-test-servers}
kubernetes_version=v1.34.2
helm_version=v4.0.0
mkdir -p "$servers/bin"

if ! command -v etcd > /dev/null; then
  apt-get install -y -q etcd-server
fi

# Neither has a release in the module proxy that `go install` accepts with its replacements: the module beside this script has them.
if ! "$servers/bin/kube" kubectl version --client 2> /dev/null | grep -q "$kubernetes_version"; then
  version=k8s.io/component-base/version
  (cd controlPlane && go build -trimpath -o "$servers/bin/kube" \
    -ldflags "-s -w -X $version.gitVersion=$kubernetes_version -X $version.gitMajor=1 -X $version.gitMinor=34" .)
fi

if [ "$("$servers/bin/helm4" version --template '{{.Version}}' 2> /dev/null)" != "$helm_version" ]; then
  folder=$(mktemp -d)
  trap 'rm -rf "$folder"' EXIT
  GOBIN=$folder go install -trimpath -ldflags "-s -w -X helm.sh/helm/v4/internal/version.version=$helm_version" "helm.sh/helm/v4/cmd/helm@$helm_version"
  mv "$folder/helm" "$servers/bin/helm4"
fi
