#!/usr/bin/env bash
# Installs the servers that the tests start: RabbitMQ, PgBouncer and a C compiler from the operating system's packages, NATS built from its source, Kafka's jars
# from the Maven repository; the programs that check the chart and the alerts: Helm built from its source, promtool from the operating system's packages,
# kubernetes-validate from PyPI; what checks the OpenAPI document: schemathesis from PyPI, Redocly's linter from npm; Chromium, from the operating system's
# packages, for the console; and what the clients for Python, Go and Java need to run their contract. What is no package of the operating system goes to
# $SVC_TEST_SERVERS (default ~/.cache/svc-test-servers). Leaves nothing running; programs that are there stay unchanged. On Debian and Ubuntu it also installs
# the tools it needs itself; elsewhere it says what is missing.
set -euo pipefail
cd "$(dirname "$0")"

servers=${SVC_TEST_SERVERS:-${HOME:?HOME is not set: set SVC_TEST_SERVERS to a folder for the servers}/.cache/svc-test-servers}
nats_version=v2.12.4
helm_version=v3.19.4
kubernetes_validate_version=1.37.0
schemathesis_version=4.32.5
openapi_linter_version=2.64.0
go_version=1.24.12 # For NATS and Helm, where the installed Go is older.
kafka_version=$(sed -n 's:.*<kafka.version>\(.*\)</kafka.version>.*:\1:p' pom.xml)
kafka_jars=$servers/kafka-$kafka_version

have() { command -v "$1" > /dev/null; }

fail() {
  echo "test/services/install.sh: $1" >&2
  exit 1
}

as_root() {
  if [ "$(id -u)" = 0 ]; then
    "$@"
  else
    sudo -n "$@"
  fi
}

have_rabbitmq() {
  { [ -x /usr/lib/rabbitmq/bin/rabbitmq-server ] || { have rabbitmq-server && have rabbitmqctl; }; } && have epmd
}

# Debian puts it where only root looks.
have_pgbouncer() { have pgbouncer || [ -x /usr/sbin/pgbouncer ]; }

have_nats() { [ "$("$servers/bin/nats-server" -v 2> /dev/null)" = "nats-server: $nats_version" ]; }

have_helm() { [ "$("$servers/bin/helm" version --template '{{.Version}}' 2> /dev/null)" = "$helm_version" ]; }

validate_folder=$servers/kubernetes-validate
have_kubernetes_validate() {
  [ "$("$validate_folder/bin/pip" show kubernetes-validate 2> /dev/null | sed -n 's/^Version: //p')" = "$kubernetes_validate_version" ]
}

have_cc() { echo '#include <stdio.h>' | cc -x c -fsyntax-only - 2> /dev/null; }
schemathesis_folder=$servers/schemathesis
have_schemathesis() {
  [ "$("$schemathesis_folder/bin/pip" show schemathesis 2> /dev/null | sed -n 's/^Version: //p')" = "$schemathesis_version" ]
}

openapi_linter_folder=$servers/openapi-linter
have_openapi_linter() {
  [ "$(sed -n 's/^  "version": "\(.*\)",$/\1/p' "$openapi_linter_folder/node_modules/@redocly/openapi-core/package.json" 2> /dev/null)" = "$openapi_linter_version" ]
}

have_java() {
  local version
  version=$(java -version 2>&1 | sed -n 's/.* version "\([0-9]*\).*/\1/p') || return 1
  [ "${version:-0}" -ge 17 ]
}

# Packages, with the services they bring kept from starting: the tests start servers of their own.
install_packages() {
  have apt-get || fail "install by hand, there is no apt-get here: $*"
  [ "$(id -u)" = 0 ] || { have sudo && sudo -n true 2> /dev/null; } ||
    fail "run it as root, or install by hand: apt-get install $*"
  local policy=/usr/sbin/policy-rc.d
  if [ ! -e "$policy" ]; then
    printf '#!/bin/sh\nexit 101\n' | as_root tee "$policy" > /dev/null
    as_root chmod 755 "$policy"
    trap 'as_root rm -f /usr/sbin/policy-rc.d' EXIT
  fi
  as_root apt-get update -q || echo "the list of packages could not be renewed; going on with the one that is there" >&2
  as_root env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends "$@"
  local package
  for package in "$@"; do
    case $package in
      # Nor shall they start with the machine.
      rabbitmq-server | pgbouncer | prometheus) ! have systemctl || as_root systemctl --quiet disable "$package" ;;
    esac
  done
}

# Builds a program of a Go module. $1 package and version, $2 linker flags
install_from_go() {
  local go=go
  if [ -z "$(go env GOTOOLCHAIN)" ]; then
    # Before 1.21 Go did not get the version of itself that a module asks for.
    local folder
    folder=$(go mod download -json "golang.org/toolchain@v0.0.1-go$go_version.$(go env GOOS)-$(go env GOARCH)" |
      sed -n 's/.*"Dir": "\(.*\)".*/\1/p')
    chmod u+x "$folder"/bin/* "$folder"/pkg/tool/*/*
    go=$folder/bin/go
  fi
  env -u GOROOT GOTOOLCHAIN=auto GOFLAGS= GOBIN="$servers/bin" "$go" install -ldflags "${2:-}" "$1"
}

# Installs a program of PyPI into an environment of its own. $1 folder, $2 package and version
install_from_pypi() {
  rm -rf "$1"
  python3 -m venv "$1"
  "$1/bin/pip" install -q --disable-pip-version-check "$2"
}

install_openapi_linter() {
  rm -rf "$openapi_linter_folder"
  npm install --prefix "$openapi_linter_folder" --silent --no-audit --no-fund "@redocly/openapi-core@$openapi_linter_version"
}

install_kafka() {
  local unfinished=$kafka_jars.unfinished
  rm -rf "$unfinished"
  mvn -q -B -f pom.xml dependency:copy-dependencies -DincludeScope=runtime -DoutputDirectory="$unfinished"
  mv -T "$unfinished" "$kafka_jars"
}

# Java's archive of a broker's classes, which halves the processor time of a start. It works with the Java that wrote it only.
kafka_classes=$kafka_jars/classes.jsa
have_kafka_classes() {
  [ -f "$kafka_classes" ] &&
    java -Xshare:on -XX:SharedArchiveFile="$kafka_classes" -XX:+UseSerialGC -cp "$kafka_jars/*" -version > /dev/null 2>&1
}

# Java writes it when a broker ends. Tests work without it, but more slowly.
archive_kafka_classes() {
  local folder port pid unfinished=$kafka_classes.unfinished
  folder=$(mktemp -d)
  rm -f "$unfinished"
  port=$((12000 + RANDOM % 15000))
  cat > "$folder/server.properties" << END
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:$((port + 1))
controller.listener.names=CONTROLLER
listeners=PLAINTEXT://127.0.0.1:$port,CONTROLLER://127.0.0.1:$((port + 1))
offsets.topic.replication.factor=1
log.dirs=$folder/data
END
  local java=(java -Xmx512m -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -cp "$kafka_jars/*" "-Djava.io.tmpdir=$folder")
  "${java[@]}" kafka.tools.StorageTool format -t AAAAAAAAAAAAAAAAAAAAAQ -c "$folder/server.properties" > "$folder/log" 2>&1 || true
  "${java[@]}" "-XX:ArchiveClassesAtExit=$unfinished" kafka.Kafka "$folder/server.properties" > "$folder/log" 2>&1 &
  pid=$!
  for _ in $(seq 120); do
    if grep -q "Kafka Server started" "$folder/log" || ! kill -0 "$pid" 2> /dev/null; then break; fi
    sleep 0.5
  done
  kill "$pid" 2> /dev/null || true
  wait "$pid" || true # It ends with the code of the signal.
  # It gets its name only when it is complete: Java crashes on a part of one.
  mv -f "$unfinished" "$kafka_classes" || echo "Kafka's classes could not be archived; brokers start more slowly" >&2
  rm -rf "$folder"
}

# What the runners of the clients' contract are built with. Each folder has the sum of the files that name its packages.
clients=$servers/clients
client_files() {
  case $1 in
    python) echo ../../clients/python/tests/requirements.txt ;;
    go) echo ../../clients/go/internal/contract/go.sum ;;
    java) echo ../../clients/java/pom.xml ;;
  esac
}
have_client() { sha256sum --status --check "$clients/$1/installed" 2> /dev/null; }
install_client() {
  if [ -d "$clients/$1" ]; then chmod -R u+w "$clients/$1"; fi # Go's modules are read-only.
  rm -rf "${clients:?}/$1"
  mkdir -p "$clients/$1"
  "install_client_$1"
  sha256sum "$(client_files "$1")" > "$clients/$1/installed"
}
install_client_python() {
  python3 -m venv "$clients/python"
  "$clients/python/bin/pip" install -q --disable-pip-version-check -r "$(client_files python)"
}
install_client_go() { GOMODCACHE=$clients/go go -C ../../clients/go/internal/contract build -o /dev/null .; }
install_client_java() {
  mvn -q -B -f "$(client_files java)" "-Dmaven.repo.local=$clients/java" -Dexec.skip=true test-compile exec:java
}

packages=()
have_rabbitmq || packages+=(rabbitmq-server)
have_pgbouncer || packages+=(pgbouncer)
have promtool || packages+=(prometheus)
have chromium || packages+=(chromium fonts-dejavu-core) # Shows the console.
have_cc || packages+=(gcc libc6-dev) # Makes the library that steps the clock of a PostgreSQL server.
{ have_kubernetes_validate && have_schemathesis && have_client python; } || python3 -c 'import ensurepip, venv' 2> /dev/null || packages+=(python3 python3-venv)
{ have_nats && have_helm && have_client go; } || have go || packages+=(golang-go ca-certificates)
have javac || packages+=(default-jdk-headless)
{ [ -d "$kafka_jars" ] && have_client java; } || have mvn || packages+=(maven)
[ ${#packages[@]} = 0 ] || install_packages "${packages[@]}"

mkdir -p "$servers/bin"
have_nats || install_from_go "github.com/nats-io/nats-server/v2@$nats_version"
have_helm || install_from_go "helm.sh/helm/v3/cmd/helm@$helm_version" "-s -w -X helm.sh/helm/v3/internal/version.version=$helm_version"
have_kubernetes_validate || install_from_pypi "$validate_folder" "kubernetes-validate==$kubernetes_validate_version"
have_schemathesis || install_from_pypi "$schemathesis_folder" "schemathesis==$schemathesis_version"
have_openapi_linter || install_openapi_linter
[ -d "$kafka_jars" ] || install_kafka
have_kafka_classes || archive_kafka_classes
for client in python go java; do
  have_client "$client" || install_client "$client"
done

have_rabbitmq || fail "rabbitmq-server is still missing"
have_pgbouncer || fail "pgbouncer is still missing"
have_nats || fail "nats-server $nats_version is still missing"
have_helm || fail "helm $helm_version is still missing"
have promtool || fail "promtool is still missing"
have chromium || fail "chromium is still missing"
have_cc || fail "a C compiler with the headers of the C library is still missing"
have_kubernetes_validate || fail "kubernetes-validate $kubernetes_validate_version is still missing"
have_schemathesis || fail "schemathesis $schemathesis_version is still missing"
have_openapi_linter || fail "@redocly/openapi-core $openapi_linter_version is still missing"
have_java || fail "Java 17 or newer is still missing"
echo "The servers of the tests are there: RabbitMQ, PgBouncer, NATS $nats_version and Kafka $kafka_version; and Helm $helm_version, promtool, kubernetes-validate, schemathesis, the OpenAPI linter, Chromium and the clients' packages."
