#!/usr/bin/env bash
# Rows of the papers' tables by name: pre-train, fine-tune, evaluate, report. scripts/reproduce.sh --help tells the rest.
# --no-install uses the Python environment that is active instead of .venv, as a process of torchrun or SLURM does.
set -euo pipefail

scripts=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
install=yes
arguments=()
for word in "$@"; do
    if [[ $word == --no-install ]]; then install=no; else arguments+=("$word"); fi
done
if [[ ${LOCAL_RANK-} || ${SLURM_STEP_NUM_TASKS:-1} -gt 1 ]]; then
    install=no # several at once
fi
if [[ $install == yes ]]; then
    here=$PWD
    cd "$scripts/.."
    # shellcheck source=scripts/common.sh
    source scripts/common.sh
    setup_environment hf,analysis,crf >&2
    cd "$here"
fi
export PYTHONPATH=$scripts${PYTHONPATH:+:$PYTHONPATH}
exec python -m reproduction "${arguments[@]}"
