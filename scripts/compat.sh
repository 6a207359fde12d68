#!/usr/bin/env bash
# The smoke suite on each supported Python with its fairseq; see usage below.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=scripts/common.sh
source scripts/common.sh

usage() {
    cat <<'USAGE'
usage: scripts/compat.sh [--install-only] [3.10|3.11|3.12 ...]

For each Python (default: all three) make or update .venv-VERSION with this package and the tested versions of what
it needs, then run the unit tests and the training runs that are marked "smoke". Python 3.10 gets the official
fairseq 0.12.2 (constraints-3.10.txt), 3.11 and 3.12 get ve-fairseq 0.12.3 (constraints.txt). The last lines are a
table of versions and results; the exit status is 0 if all passed.

A Python is found as python3.X on the path or in pyenv. For 3.10, a C++ compiler and Python's headers are needed
too: fairseq 0.12.2 is built from source. Without CPU builds of torch, 2 to 3 GB are downloaded for each Python.

  --install-only    stop before the tests

Environment:
  TORCH_INDEX=URL   take torch from this package index (for CPU builds)
USAGE
}

# What the smoke suite consists of, besides the marked tests of tests/integration: everything that imports fairseq
# or torch.
suite=(tests/test_losses.py tests/test_compat.py tests/models tests/criterions tests/tasks tests/data tests/synonyms
    tests/convert tests/optim)

# find_version VERSION: print the command of this Python
find_version() {
    local candidate
    for candidate in "python$1" "${PYENV_ROOT:-$HOME/.pyenv}/versions/$1".*/bin/python; do
        # pyenv's shims exist for versions that are not active, and fail
        if "$candidate" -c "import sys; sys.exit('%d.%d' % sys.version_info[:2] != '$1')" 2>/dev/null; then
            "$candidate" -c 'import sys; print(sys.executable)'
            return
        fi
    done
    return 1
}

# install VERSION: make .venv-VERSION hold the package in the tested versions. Does nothing when it does already.
install() {
    local version=$1 folder=.venv-$1 constraints=constraints.txt python stamp
    local -a index=()
    [[ $version == 3.10 ]] && constraints="constraints-3.10.txt"
    [[ -n ${TORCH_INDEX:-} ]] && index=(--extra-index-url "$TORCH_INDEX")
    stamp="$(cat setup.cfg pyproject.toml "$constraints" | sha256sum) $PWD ${TORCH_INDEX:-}"
    if [[ $(cat "$folder/installed" 2>/dev/null) == "$stamp" ]]; then
        return
    fi
    if ! "$folder/bin/python" -m pip --version >/dev/null 2>&1; then
        python=$(find_version "$version") || {
            printf 'Python %s is neither on the path nor in pyenv\n' "$version" >&2
            return 1
        }
        rm -rf "$folder"
        "$python" -m venv "$folder" || return
    fi
    if [[ $version == 3.10 ]]; then
        # newer ones refuse the metadata of omegaconf 2.0
        "$folder/bin/python" -m pip install --quiet --disable-pip-version-check 'pip<24.1' || return
    fi
    # the variable, unlike the option, reaches the environments in which pip builds packages, fairseq 0.12.2 for one
    PIP_CONSTRAINT=$PWD/$constraints "$folder/bin/python" -m pip install --quiet --disable-pip-version-check \
        "${index[@]}" --editable '.[test]' || return
    drop_broken_torchaudio "$folder/bin/python"
    printf '%s\n' "$stamp" >"$folder/installed"
}

# versions VERSION: what is installed for it, in one line
versions() {
    ".venv-$1/bin/python" - <<'PYTHON'
import platform
from importlib.metadata import PackageNotFoundError, version

def installed(*names):
    for name in names:
        try:
            return f"{name} {version(name)}"
        except PackageNotFoundError:
            continue
    return f"no {names[0]}"

parts = [installed("fairseq", "ve-fairseq"), *map(installed, ("torch", "omegaconf", "numpy", "transformers"))]
print(", ".join([f"Python {platform.python_version()}", *parts]))
PYTHON
}

# smoke VERSION: the tests
smoke() {
    local python=.venv-$1/bin/python
    local -a exceptions=()
    # the kernels of torch 2.4 round a little otherwise: 1.001e-5 off in one of 119,808 values, where 1e-5 is allowed
    [[ $1 == 3.10 ]] && exceptions=(--deselect tests/convert/test_bert_parity.py::test_encoder_of_minilm)
    "$python" -m pytest --quiet --numprocesses 2 "${suite[@]}" "${exceptions[@]}" </dev/null &&
        "$python" -m pytest --quiet --numprocesses 2 -m smoke tests/integration </dev/null
}

wanted=()
tests=yes
for argument in "$@"; do
    case $argument in
        3.10 | 3.11 | 3.12) wanted+=("$argument") ;;
        --install-only) tests=no ;;
        -h | --help) usage; exit ;;
        *)
            usage >&2
            fail "unknown argument: $argument"
            ;;
    esac
done
((${#wanted[@]})) || wanted=(3.10 3.11 3.12)

export OMP_NUM_THREADS=1
unset PYTHONHOME PYTHONPATH
failed=no
table=()
for version in "${wanted[@]}"; do
    begun=$SECONDS
    printf '\n=== Python %s: installing into .venv-%s\n' "$version" "$version"
    if ! install "$version"; then
        table+=("Python $version: the installation failed, see above")
        failed=yes
        continue
    fi
    line="$(versions "$version"); set-up $((SECONDS - begun)) s"
    printf '%s\n' "$line"
    if [[ $tests == yes ]]; then
        begun=$SECONDS
        if smoke "$version"; then
            line+="; passed in $((SECONDS - begun)) s"
        else
            line+="; FAILED"
            failed=yes
        fi
    fi
    table+=("$line")
done

printf '\n'
printf '%s\n' "${table[@]}"
[[ $failed == no ]]
