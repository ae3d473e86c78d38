#!/bin/bash
# Runs the tests of a client library's checkout against millstream: they start `nats-server`,
# and the first one in PATH is a script that starts millstream instead. Nothing is written
# into the checkout. Such suites use fixed ports, so where this machine allows it they get a
# network of their own.
#   compat.sh <checkout, or a sub-project in it> [pytest arguments, e.g. nats/tests/test_client.py]
# COMPAT_PYTHON names another Python with pytest and what the tests import, where the checkout
# needs a newer one than ours; COMPAT_SERVER another server than millstream, to compare with.
set -euo pipefail

suite=${1:-}
if [ ! -d "$suite" ]; then
    echo "millstream: name a checkout, e.g. make compat SUITE=../nats.py ARGS=nats/tests" >&2
    exit 2
fi
shift
here=$(cd "$(dirname "$0")/.." && pwd)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

if [ -n "${COMPAT_SERVER:-}" ]; then
    printf '#!/bin/sh\nexec "%s" "$@"\n' "$COMPAT_SERVER" >"$scratch/nats-server"
else  # PYTHONPATH is for the tests alone
    printf '#!/bin/sh\nunset PYTHONPATH\nexec "%s/.venv/bin/millstream" nats-server "$@"\n' "$here" \
        >"$scratch/nats-server"
fi
chmod 755 "$scratch/nats-server"
export PATH="$scratch:$PATH" PYTHONDONTWRITEBYTECODE=1
# Tests that find uvloop use it, and its clock counts milliseconds: too coarse for some of them.
# No suite asks for it; where it is there, it is the server's.
mkdir "$scratch/without"
echo 'raise ImportError("of the server, not of the tests")' >"$scratch/without/uvloop.py"
cd "$suite"
roots=("$PWD")
if [ -f ../pyproject.toml ]; then # a sub-project, whose tests import its neighbours too
    roots+=("$(dirname "$PWD")")
fi
PYTHONPATH=$(find "${roots[@]}" -maxdepth 2 -type d -name src -printf '%p:')$PWD:$scratch/without
export PYTHONPATH
run=("${COMPAT_PYTHON:-$here/.venv/bin/python}" -m pytest -p no:cacheprovider --timeout=120 "$@")
if unshare -rn ip link set lo up 2>/dev/null; then
    unshare -rn sh -c 'ip link set lo up && exec "$@"' sh "${run[@]}"
else
    "${run[@]}"
fi
