# Sourced by quickstart.sh, test.sh and compat.sh: the virtual environment. Expects the repository's root as working folder.
# shellcheck shell=bash

fail() {
    printf '\n%s: error: %s\n' "$(basename "$0")" "$*" >&2
    exit 1
}

# The Python to build the environment from: $PYTHON, or the first supported one on the path.
find_python() {
    local candidate
    for candidate in ${PYTHON:+"$PYTHON"} python3.12 python3.11 python3; do
        if "$candidate" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 12))' 2>/dev/null; then
            "$candidate" -c 'import ensurepip, venv' 2>/dev/null ||
                fail "$candidate cannot make virtual environments: apt install python3-venv (or the package" \
                    "python3.X-venv of its version)"
            command -v "$candidate"
            return
        fi
        if [[ $candidate == "${PYTHON:-}" ]]; then
            fail "PYTHON=$PYTHON is not Python 3.11 or 3.12"
        fi
    done
    fail "needs Python 3.11 or 3.12: apt install python3 python3-venv, or name one with PYTHON=/path/to/python3.11"
}

# drop_broken_torchaudio PYTHON: torchaudio from a package index wants CUDA; beside a CPU build of torch it breaks
# `import transformers`, and fairseq needs it for speech only.
drop_broken_torchaudio() {
    if ! "$1" -c 'import torchaudio' 2>/dev/null; then
        "$1" -m pip uninstall --quiet --disable-pip-version-check --yes torchaudio
    fi
}

# setup_environment EXTRAS: make .venv hold this package with these extras in the tested versions, and put it
# first on the path. Does nothing when it does already.
setup_environment() {
    local extras=$1 python stamp
    local -a index=()
    if ! .venv/bin/python -c 'import pip' 2>/dev/null; then
        python=$(find_python)
        printf '\nCreating .venv with %s\n' "$python"
        rm -rf .venv
        "$python" -m venv .venv || fail "cannot create .venv: apt install python3-venv"
    fi
    if [[ -n ${TORCH_INDEX:-} ]]; then
        index=(--extra-index-url "$TORCH_INDEX")
    fi
    stamp=$(cat setup.cfg pyproject.toml constraints.txt | sha256sum)
    stamp="${stamp%% *} $PWD ${TORCH_INDEX:-} [$extras]"
    if grep -qxF "$stamp" .venv/installed 2>/dev/null; then
        printf '\n.venv is up to date [%s]\n' "$extras"
    else
        printf '\nInstalling fairseq_tn[%s] and what it needs into .venv\n' "$extras"
        .venv/bin/python -m pip install --quiet --disable-pip-version-check "${index[@]}" \
            --constraint constraints.txt --editable ".[$extras]" ||
            fail "the installation failed (see above). Without an NVIDIA GPU, TORCH_INDEX=URL names the package" \
                "index of smaller CPU builds of torch"
        drop_broken_torchaudio .venv/bin/python
        printf '%s\n' "$stamp" >>.venv/installed
    fi
    PATH=$PWD/.venv/bin:$PATH
    export PATH
    unset PYTHONHOME PYTHONPATH
}

# The number of cores that this process may use.
cores() {
    nproc 2>/dev/null || getconf _NPROCESSORS_ONLN
}
