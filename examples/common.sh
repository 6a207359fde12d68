# Sourced by the recipes' train.sh: their options, how an update is shared out to the hardware, the command.
# shellcheck shell=bash

root=$(dirname "${BASH_SOURCE[0]}")/..

fail() {
    printf 'train.sh: error: %s\n' "$*" >&2
    exit 2
}

# read_options ARGUMENT...: --some-name VALUE sets some_name if "some-name" is in $valued, --some-name sets it to
# yes if it is in $switches; what follows -- goes to the array "further". Variables are initialised by the script.
read_options() {
    local name
    further=()
    while (($#)); do
        name=${1#--}
        case $1 in
            -h | --help) usage; exit ;;
            --) shift; further=("$@"); return ;;
        esac
        if [[ $1 == --* && " $valued " == *" $name "* ]]; then
            [[ $# -ge 2 ]] || fail "$1 needs a value; see --help"
            printf -v "${name//-/_}" %s "$2"
            shift
        elif [[ $1 == --* && " $switches " == *" $name "* ]]; then
            printf -v "${name//-/_}" yes
        else
            fail "unknown argument $1; see --help"
        fi
        shift
    done
}

# share_out BATCH GPUS FITS PRECISION: sets the array "hardware", options with which BATCH sequences make an update
# whatever the number of GPUs ('': those of this machine, 0: the CPU) and the sequences that fit into one at once.
share_out() {
    local batch=$1 gpus=$2 fits=$3 precision=$4 processes share sequences
    : "${gpus:=$(python -c 'import torch; print(torch.cuda.device_count())')}"
    [[ $gpus =~ ^[0-9]+$ ]] || fail "--gpus $gpus: give a number"
    [[ $fits =~ ^[1-9][0-9]*$ ]] || fail "--sequences-per-gpu $fits: give a number, 1 or more"
    gpus=$((10#$gpus))
    processes=$((gpus ? gpus : 1))
    ((batch % processes == 0)) ||
        fail "$batch sequences cannot be shared equally by $gpus GPUs: give --gpus 1, 2, 4, 8, ..."
    share=$((batch / processes)) # of one process in an update
    sequences=$((fits < share ? fits : share))
    while ((share % sequences)); do sequences=$((sequences - 1)); done
    hardware=(--batch-size "$sequences" --update-freq "$((share / sequences))" --distributed-world-size "$processes")
    if ((gpus == 0)); then
        hardware+=(--cpu)
    else
        case $precision in
            fp16) hardware+=(--fp16) ;;
            fp32) ;;
            *) fail "--precision $precision: give fp16 or fp32; fairseq-train takes bf16 for a TPU" ;;
        esac
    fi
}

# write_to OUTPUT INTERVAL: sets the array "writing", options for checkpoints every INTERVAL updates and for logs.
write_to() {
    local output=$1 interval=$2
    writing=(
        --save-interval-updates "$interval" --keep-interval-updates 1 --no-epoch-checkpoints --save-dir "$output"
        --tensorboard-logdir "$output/tensorboard" --log-file "$output/train.log"
        --log-format json --log-interval "$((interval < 100 ? interval : 100))"
    )
}

# decay_linearly RATE WARMUP UPDATES: sets the array "schedule", a learning rate that rises for WARMUP of UPDATES updates
# to RATE and then falls to 0.
decay_linearly() {
    schedule=(
        --lr "$1" --lr-scheduler polynomial_decay --warmup-updates "$2" --total-num-update "$3" --max-update "$3"
    )
}

# The optimiser of BERT's and ELECTRA's own training code: no weight decay of biases and LayerNorm parameters, which
# have to stay apart for it under fp16, and no bias correction. Without the correction the first updates are several
# times as large, which takes a long warm-up: the short runs of --small have it ("corrected").
# shellcheck disable=SC2034
corrected=(
    --optimizer tn_adam --adam-betas '(0.9,0.999)' --adam-eps 1e-6 --weight-decay 0.01 --decay-matrices-only
    --fp16-no-flatten-grads --clip-norm 1
)
# shellcheck disable=SC2034
optimizer=("${corrected[@]}" --no-bias-correction)

# here PATH: PATH of this repository as seen from the working folder.
here() {
    realpath -m --relative-to="$PWD" "$root/$1"
}

# show_command WORD...: an option with its values a line, so that it can be read and pasted.
show_command() {
    local line='' word
    for word in "$@"; do
        if [[ ! $word =~ ^[A-Za-z0-9_./=:,@%+-]+$ ]]; then word="'${word//"'"/"'\\''"}'"; fi
        if ((${#line} + ${#word} > 100)) && [[ $word == --* ]]; then
            printf '%s \\\n' "$line"
            line='   '
        fi
        line+="${line:+ }$word"
    done
    printf '%s\n' "$line"
}

# add_synonyms: adds the table that "synonyms" names to the array "loss" if "method" is one with hard correction, and
# ends if there is none, or one for another method.
add_synonyms() {
    if [[ $method == hc* ]]; then
        [[ $synonyms ]] || fail "--method $method needs --synonyms FILE, made by fairseq-tn synonyms build"
        loss+=(--synonyms "$synonyms")
    else
        [[ -z $synonyms ]] || fail "--method $method has no use for --synonyms; give --method hc or hc_sr"
    fi
}

# prepare_run: shows the array "command", ends there with --dry-run, and sees that inputs and output are there.
prepare_run() {
    show_command "${command[@]}"
    [[ $dry_run == no ]] || exit 0
    need_inputs
    mkdir -p "$output"
}

# need FILE MESSAGE...: end if FILE is missing.
need() {
    [[ -e $1 ]] || fail "$1 is missing: ${*:2}"
}

# need_inputs: before training starts, end if a file that "data", "init" or "synonyms" names is missing.
need_inputs() {
    local folder=${data%%:*} # of several folders, one an epoch, the first
    need "$folder/dict.txt" "give --data the folder that fairseq-preprocess made"
    if [[ ${init-} ]]; then need "$init" "give --init the model.pt that \"fairseq-tn convert from-hf\" made"; fi
    if [[ ${synonyms-} ]]; then need "$synonyms" "give --synonyms a table of \"fairseq-tn synonyms build\""; fi
}
