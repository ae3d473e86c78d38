#!/bin/bash
# Runs the tests of a client library's checkout against millstream: they start `nats-server`,
# and the first one in PATH is a script that starts millstream instead. Nothing is written
# into the checkout.
#   compat.sh <checkout> [pytest arguments]
set -euo pipefail

suite=${1:-}
if [ ! -d "$suite" ]; then
    echo "millstream: name a checkout, e.g. make compat SUITE=../nats.py/nats" >&2
    exit 2
fi
shift
here=$(cd "$(dirname "$0")/.." && pwd)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

printf '#!/bin/sh\nexec "%s/.venv/bin/millstream" nats-server "$@"\n' "$here" >"$scratch/nats-server"
chmod 755 "$scratch/nats-server"
cd "$suite"
PATH="$scratch:$PATH" PYTHONPATH="$PWD/src:$PWD" PYTHONDONTWRITEBYTECODE=1 \
    "$here/.venv/bin/python" -m pytest -p no:cacheprovider --timeout=120 "$@"
