#!/usr/bin/env bash
# Continue the pre-training of BERT on true negatives; see usage below.
set -euo pipefail

usage() {
    cat <<'USAGE'
usage: examples/true_negatives/train.sh --model base|large --method NAME --data FOLDER --init FILE [options] [-- OPTION...]
       examples/true_negatives/train.sh --small --method NAME [options] [-- OPTION...]

Trains with fairseq-train: masked LM on blocks of 512 tokens, 128 of them an update whatever the number of GPUs and
their memory, 200,000 updates. The command is printed before it runs. Called again, an interrupted run goes on.

  --model NAME             base (bert-base-uncased) or large (bert-large-uncased)
  --method NAME            baseline     BERT's masked LM for as long
                           hc           hard correction; needs --synonyms
                           sr_word      soft regularisation of word embeddings
                           sr_sentence  soft regularisation of whole sequences
                           hc_sr        hard correction and soft regularisation of word embeddings
  --data FOLDER            made by fairseq-preprocess
  --init FILE              model.pt made by "fairseq-tn convert from-hf"
  --synonyms FILE          made by "fairseq-tn synonyms build"
  --gpus N                 GPUs in all (default: those of this machine; 0: train on the CPU)
  --sequences-per-gpu N    most sequences that fit into a GPU's memory at once (default: 16; large: 8)
  --precision NAME         fp16 or fp32 (default: fp16; on the CPU it is fp32; for bf16 see the README)
  --output FOLDER          checkpoints and logs (default: outputs/true_negatives/METHOD-MODEL)
  --small                  two cores, some minutes: the quickstart's small model, data and synonyms
                           (outputs/quickstart), 128 tokens, 32 sequences, 120 updates
  --dry-run                print the command only
  -- OPTION...             further options of fairseq-train; they win over the recipe's
USAGE
}

# shellcheck source=examples/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/../common.sh"

model='' method='' data='' init='' synonyms='' gpus='' sequences_per_gpu='' precision=fp16 output=''
small=no dry_run=no
valued='model method data init synonyms gpus sequences-per-gpu precision output' switches='small dry-run'
read_options "$@"

# --- what is trained

case $method in
    baseline) loss=(--criterion bert_pretraining) ;;
    hc) loss=(--criterion mlm_hard_correction) ;;
    sr_word | hc_sr) loss=(--criterion mlm_soft_reg --soft-reg-weight 1) ;;
    sr_sentence) loss=(--criterion mlm_soft_reg --soft-reg-weight 1 --soft-reg-level sentence) ;;
    '') fail "give --method baseline, hc, sr_word, sr_sentence or hc_sr" ;;
    *) fail "--method $method: give baseline, hc, sr_word, sr_sentence or hc_sr" ;;
esac
length=512 batch=128 updates=200000 warmup=10000 rate=5e-5 interval=5000 workers=4
if [[ $small == yes ]]; then
    [[ -z $model ]] || fail "--small has a model of its own: leave --model out"
    quickstart=$(here outputs/quickstart)
    model=small architecture=tn_bert_tiny length=128 batch=32 updates=120 warmup=12 rate=5e-4 interval=40 workers=1
    optimizer=("${corrected[@]}")
    : "${data:=$quickstart/data}" "${init:=$quickstart/runs/warm_up/checkpoint_last.pt}" "${sequences_per_gpu:=32}"
    if [[ $method == hc* ]]; then : "${synonyms:=$quickstart/synonyms.txt}"; fi
    for file in "$data" "$init" ${synonyms:+"$synonyms"}; do
        need "$file" "run scripts/quickstart.sh first, or give --data, --init and --synonyms"
    done
else
    case $model in
        base | large) architecture=tn_bert_$model ;;
        '') fail "give --model base or large, or --small" ;;
        *) fail "--model $model: give base or large" ;;
    esac
fi
[[ $data ]] || fail "give --data FOLDER, made by fairseq-preprocess"
[[ $init ]] || fail "give --init FILE, made by fairseq-tn convert from-hf"
add_synonyms
: "${output:=outputs/true_negatives/$method-$model}"

# --- the command

: "${sequences_per_gpu:=$([[ $model == large ]] && echo 8 || echo 16)}"
share_out "$batch" "$gpus" "$sequences_per_gpu" "$precision"
decay_linearly "$rate" "$warmup" "$updates"
write_to "$output" "$interval"
command=(
    fairseq-train "$data" --user-dir "$(here fairseq_tn)" --task bert_pretraining --no-nsp
    "${loss[@]}" --arch "$architecture" --finetune-from-model "$init"
    --tokens-per-sample "$length" "${hardware[@]}" --num-workers "$workers" --seed 1
    "${optimizer[@]}" "${schedule[@]}" "${writing[@]}"
)
[[ $small == no ]] || command+=(--max-valid-steps 10)
command+=("${further[@]}")

prepare_run
exec "${command[@]}"
