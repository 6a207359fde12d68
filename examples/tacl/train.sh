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
  --words                  mask whole words; Chinese ones are those that "fairseq-tn prepare words" has put beside the
                           data, see the README
  --as-script              compute the loss as the authors' script does, where it differs from their paper
  --output FOLDER          checkpoints and logs (default: outputs/tacl/CRITERION-MODEL)
  --small                  two cores, some minutes: the quickstart's small model and data (outputs/quickstart),
                           128 tokens, 32 sequences, 160 updates
  --dry-run                print the command only
  -- OPTION...             further options of fairseq-train; they win over the recipe's
USAGE
}

# shellcheck source=examples/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/../common.sh"

model='' data='' init='' criterion=tacl gpus='' sequences_per_gpu='' precision=fp16 output=''
words=no as_script=no small=no dry_run=no
valued='model data init criterion gpus sequences-per-gpu precision output' switches='words as-script small dry-run'
read_options "$@"

# --- what is trained

length=256 batch=256 updates=150000 interval=1875 workers=4
if [[ $small == yes ]]; then
    [[ -z $model ]] || fail "--small has a model of its own: leave --model out"
    quickstart=$(here outputs/quickstart)
    model=small architecture=tn_bert_tiny length=128 batch=32 updates=160 interval=10 workers=1
    : "${data:=$quickstart/data}" "${init:=$quickstart/runs/warm_up/checkpoint_last.pt}" "${sequences_per_gpu:=32}"
    [[ -e $data && -e $init ]] || fail "$data or $init is missing: run scripts/quickstart.sh first, or give --data and --init"
else
    case $model in
        base | chinese) architecture=tn_bert_base ;;
        large) architecture=tn_bert_large ;;
        '') fail "give --model base, large or chinese, or --small" ;;
        *) fail "--model $model: give base, large or chinese" ;;
    esac
fi
[[ $data ]] || fail "give --data FOLDER, made by fairseq-preprocess"
[[ $init ]] || fail "give --init FILE, made by fairseq-tn convert from-hf"
case $criterion in
    tacl) method=(--task teacher_student --criterion tacl_contrastive --temperature 0.01) ;;
    mt) method=(--task bert_pretraining --criterion bert_pretraining) ;;
    *) fail "--criterion $criterion: give tacl or mt" ;;
esac
decay=0.01
if [[ $as_script == yes ]]; then
    decay=0
    [[ $criterion == mt ]] || method+=(--tacl-padding --teacher-dropout)
fi
masking=() suffix=''
if [[ $words == yes ]]; then
    masking=(--mask-whole-words) suffix=-words
    [[ $model != chinese ]] || masking+=(--word-boundaries data)
fi
: "${output:=outputs/tacl/$criterion-$model$suffix}"

# --- the command

: "${sequences_per_gpu:=$([[ $model == large ]] && echo 16 || echo 32)}"
share_out "$batch" "$gpus" "$sequences_per_gpu" "$precision"
decay_linearly 1e-4 "$((updates / 10))" "$updates"
write_to "$output" "$interval"
kept=0.0625,0.125,0.25,0.5,0.8,1
command=(
    fairseq-train "$data" --user-dir "$(here fairseq_tn)"
    "${method[@]}" --arch "$architecture" --finetune-from-model "$init"
    --tokens-per-sample "$length" "${masking[@]}" "${hardware[@]}" --num-workers "$workers" --seed 1
    --optimizer adam --adam-betas '(0.9,0.999)' --adam-eps 1e-6 --weight-decay "$decay" --clip-norm 1
    "${schedule[@]}" "${writing[@]}" --keep-checkpoints-at "$kept"
)
[[ $small == no ]] || command+=(--max-valid-steps 10)
command+=("${further[@]}")

prepare_run
exec "${command[@]}"
