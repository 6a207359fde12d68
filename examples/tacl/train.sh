#!/usr/bin/env bash
# Continue the pre-training of BERT with TaCL's published settings; see usage below.
set -euo pipefail

usage() {
    cat <<'USAGE'
usage: examples/tacl/train.sh --model base|large|chinese --data FOLDER --init FILE [options] [-- OPTION...]
       examples/tacl/train.sh --small [options] [-- OPTION...]

Trains with fairseq-train: sequences of 256 tokens, 256 of them an update whatever the number of GPUs and their
memory, 150,000 updates. The command is printed before it runs. Called again, an interrupted run goes on.

  --model NAME             base (bert-base-uncased), large (bert-large-uncased) or chinese (bert-base-chinese)
  --data FOLDER            made by fairseq-preprocess
  --init FILE              model.pt made by "fairseq-tn convert from-hf"; with TaCL it is the teacher too
  --criterion tacl|mt      TaCL, or the baseline: BERT's own pre-training for as long (default: tacl)
  --gpus N                 GPUs in all (default: those of this machine; 0: train on the CPU)
  --sequences-per-gpu N    most sequences that fit into a GPU's memory at once (default: 32; large: 16)
  --precision NAME         fp16 or fp32 (default: fp16; on the CPU it is fp32; for bf16 see the README)
  --as-script              compute the loss as the authors' script does, where it differs from their paper
  --output FOLDER          checkpoints and logs (default: outputs/tacl/CRITERION-MODEL)
  --small                  two cores, some minutes: the quickstart's small model and data (outputs/quickstart),
                           128 tokens, 32 sequences, 160 updates
  --dry-run                print the command only
  -- OPTION...             further options of fairseq-train; they win over the recipe's
USAGE
}

fail() {
    printf 'train.sh: error: %s\n' "$*" >&2
    exit 2
}

model='' data='' init='' criterion=tacl gpus='' fits='' precision=fp16 output='' small=no script=no dry=no
while (($#)); do
    case $1 in
        --model | --data | --init | --criterion | --gpus | --sequences-per-gpu | --precision | --output)
            [[ $# -ge 2 ]] || fail "$1 needs a value; see --help"
            case $1 in
                --model) model=$2 ;;
                --data) data=$2 ;;
                --init) init=$2 ;;
                --criterion) criterion=$2 ;;
                --gpus) gpus=$2 ;;
                --sequences-per-gpu) fits=$2 ;;
                --precision) precision=$2 ;;
                --output) output=$2 ;;
            esac
            shift
            ;;
        --as-script) script=yes ;;
        --small) small=yes ;;
        --dry-run) dry=yes ;;
        -h | --help) usage; exit ;;
        --) shift; break ;;
        *) fail "unknown argument $1; see --help" ;;
    esac
    shift
done

# --- what is trained

root=$(dirname "${BASH_SOURCE[0]}")/../..
length=256 batch=256 updates=150000 interval=1875 workers=4
if [[ $small == yes ]]; then
    [[ -z $model ]] || fail "--small has a model of its own: leave --model out"
    quickstart=$(realpath -m --relative-to="$PWD" "$root/outputs/quickstart")
    model=small architecture=tn_bert_tiny length=128 batch=32 updates=160 interval=10 workers=1
    : "${data:=$quickstart/data}" "${init:=$quickstart/runs/warm_up/checkpoint_last.pt}" "${fits:=32}"
    [[ -e $data && -e $init ]] || fail "$data or $init is missing: run scripts/quickstart.sh first, or give --data and --init"
fi
case $model in
    small) ;;
    base | chinese) architecture=tn_bert_base ;;
    large) architecture=tn_bert_large ;;
    '') fail "give --model base, large or chinese, or --small" ;;
    *) fail "--model $model: give base, large or chinese" ;;
esac
[[ $data ]] || fail "give --data FOLDER, made by fairseq-preprocess"
[[ $init ]] || fail "give --init FILE, made by fairseq-tn convert from-hf"
case $criterion in
    tacl) method=(--task teacher_student --criterion tacl_contrastive --temperature 0.01) ;;
    mt) method=(--task bert_pretraining --criterion bert_pretraining) ;;
    *) fail "--criterion $criterion: give tacl or mt" ;;
esac
decay=0.01
if [[ $script == yes ]]; then
    decay=0
    [[ $criterion == mt ]] || method+=(--tacl-padding --teacher-dropout)
fi
: "${output:=outputs/tacl/$criterion-$model}"

# --- how it is spread over the hardware

: "${gpus:=$(python -c 'import torch; print(torch.cuda.device_count())')}"
: "${fits:=$([[ $model == large ]] && echo 16 || echo 32)}"
[[ $gpus =~ ^[0-9]+$ ]] || fail "--gpus $gpus: give a number"
[[ $fits =~ ^[1-9][0-9]*$ ]] || fail "--sequences-per-gpu $fits: give a number, 1 or more"
gpus=$((10#$gpus))
processes=$((gpus ? gpus : 1))
((batch % processes == 0)) || fail "$batch sequences cannot be shared equally by $gpus GPUs: give --gpus 1, 2, 4, 8, ..."
share=$((batch / processes)) # of one process in an update
sequences=$((fits < share ? fits : share))
while ((share % sequences)); do sequences=$((sequences - 1)); done
if ((gpus == 0)); then
    device=(--cpu)
else
    case $precision in
        fp16) device=(--fp16) ;;
        fp32) device=() ;;
        *) fail "--precision $precision: give fp16 or fp32; fairseq-train takes bf16 for a TPU" ;;
    esac
fi

# --- the command

kept=0.0625,0.125,0.25,0.5,0.8,1
command=(
    fairseq-train "$data" --user-dir "$(realpath --relative-to="$PWD" "$root/fairseq_tn")"
    "${method[@]}" --arch "$architecture" --finetune-from-model "$init"
    --tokens-per-sample "$length" --batch-size "$sequences" --update-freq "$((share / sequences))"
    --distributed-world-size "$processes" "${device[@]}" --num-workers "$workers" --seed 1
    --optimizer adam --adam-betas '(0.9,0.999)' --adam-eps 1e-6 --weight-decay "$decay" --clip-norm 1
    --lr 1e-4 --lr-scheduler polynomial_decay --warmup-updates "$((updates / 10))"
    --total-num-update "$updates" --max-update "$updates"
    --save-interval-updates "$interval" --keep-interval-updates 1 --no-epoch-checkpoints
    --keep-checkpoints-at "$kept"
    --save-dir "$output" --tensorboard-logdir "$output/tensorboard" --log-file "$output/train.log"
    --log-format json --log-interval "$((interval < 100 ? interval : 100))"
)
[[ $small == no ]] || command+=(--max-valid-steps 10)
command+=("$@")

# an option with its values a line, so that it can be read and pasted
line=''
for word in "${command[@]}"; do
    if [[ ! $word =~ ^[A-Za-z0-9_./=:,@%+-]+$ ]]; then word="'${word//"'"/"'\\''"}'"; fi
    if ((${#line} + ${#word} > 100)) && [[ $word == --* ]]; then
        printf '%s \\\n' "$line"
        line='   '
    fi
    line+="${line:+ }$word"
done
printf '%s\n' "$line"
[[ $dry == no ]] || exit 0
mkdir -p "$output"
exec "${command[@]}"
