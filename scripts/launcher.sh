#!/bin/sh
# Runs millstream from this clone, wherever it is called from.
exec "$(dirname "$(readlink -f "$0")")/.venv/bin/millstream" "$@"
