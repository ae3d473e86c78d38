#!/bin/sh
# Runs millstream from this clone, wherever it is called from.
export MILLSTREAM_COMMAND="$0"
exec "$(dirname "$(readlink -f "$0")")/.venv/bin/millstream" "$@"
