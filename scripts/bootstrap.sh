#!/bin/sh
# Makes sure that this machine has what a command needs, and says what is missing otherwise.
#   bootstrap.sh venv   a compiler, Python with headers, and .venv
#   bootstrap.sh browser  Chromium for the tests of pages; without it they are skipped
#   bootstrap.sh prometheus  Prometheus for the tests of boards and alerts; without it they are skipped
#   bootstrap.sh java   a Java runtime for Spark; without one its tests are skipped
set -eu
cd "$(dirname "$0")/.."

say() { echo "millstream: $*" >&2; }

may_install() { [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; }

apt_install() {
    say "installing $*"
    export DEBIAN_FRONTEND=noninteractive
    apt-get install -y -qq --no-install-recommends "$@" >/dev/null 2>&1 && return
    apt-get update -qq && apt-get install -y -qq --no-install-recommends "$@" >/dev/null
}

# need <what> <check command> <packages...>: install when allowed, else one line and stop
need() {
    what=$1 check=$2
    shift 2
    $check && return
    if may_install; then apt_install "$@"; fi
    $check && return
    say "$what is missing. Install it (Debian: apt-get install $*) and run make again."
    exit 1
}

find_python() {
    for python in ${PYTHON:-} python3 python3.14 python3.13 python3.12 python3.11; do
        "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && return
    done
    return 1
}

has_headers() {
    "$python" -c 'import os, sys, sysconfig
sys.exit(not os.path.exists(os.path.join(sysconfig.get_path("include"), "Python.h")))'
}

has_venv() { "$python" -c 'import ensurepip, venv' 2>/dev/null; }

has_compiler() { echo '#include <stdlib.h>' | gcc -x c -c -o /dev/null - 2>/dev/null; }

has_java() { [ "$(java_version)" -ge 17 ]; }

java_version() {
    java=${JAVA_HOME:+$JAVA_HOME/bin/}java
    version=$("$java" -version 2>&1 | sed -n 's/.*version "\([0-9]*\).*/\1/p' | head -n 1) || true
    echo "${version:-0}"
}

case ${1:-} in
venv)
    need "Python 3.11 or newer" find_python python3
    need "the C compiler" has_compiler gcc libc6-dev
    need "Python's C headers" has_headers python3-dev
    need "Python's venv module" has_venv python3-venv
    [ -x .venv/bin/pip ] || "$python" -m venv .venv
    ;;
java)
    has_java || ! may_install || apt_install openjdk-17-jre-headless || apt_install openjdk-21-jre-headless || true
    has_java || say "no Java 17: Spark tests will be skipped (Debian: apt-get install openjdk-17-jre-headless)"
    ;;
browser)
    command -v chromium >/dev/null || ! may_install || apt_install chromium || true
    command -v chromium >/dev/null || say "no chromium: tests of foreign pages will be skipped (Debian: apt-get install chromium)"
    ;;
prometheus)
    command -v promtool >/dev/null || ! may_install || apt_install prometheus || true
    command -v promtool >/dev/null || say "no prometheus: tests of boards and alerts will be skipped (Debian: apt-get install prometheus)"
    ;;
*)
    say "usage: bootstrap.sh venv|java|browser|prometheus"
    exit 2
    ;;
esac
