#!/usr/bin/env bash
# Pre-train ELECTRA-small, or continue ELECTRA-base, on true negatives; see usage below.
set -euo pipefail

usage() {
    cat <<'USAGE'
usage: examples/electra/train.sh --model small --method NAME --data FOLDER [options] [-- OPTION...]
       examples/electra/train.sh --model base --method NAME --data FOLDER --init FILE [options] [-- OPTION...]
       examples/electra/train.sh --small --method NAME [options] [-- OPTION...]

Trains with fairseq-train, 128 sequences an update whatever the number of GPUs and their memory. The command is
printed before it runs. Called again, an interrupted run goes on.

  --model small            ELECTRA-small from scratch: 128 tokens, 1,000,000 updates
  --model base             ELECTRA-base continued: 512 tokens, 200,000 updates
  --method NAME            baseline     ELECTRA as it is
                           hc           hard correction; needs --synonyms
                           sr_word      soft regularisation of word embeddings
                           sr_sentence  soft regularisation of whole sequences
                           hc_sr        hard correction and soft regularisation of word embeddings
  --data FOLDER            made by fairseq-preprocess
  --init FILE              model.pt made by "fairseq-tn convert from-hf", to continue from
  --synonyms FILE          made by "fairseq-tn synonyms build"
  --gpus N                 GPUs in all (default: those of this machine; 0: train on the CPU)
  --sequences-per-gpu N    most sequences that fit into a GPU's memory at once (default: 128; base: 16)
  --precision NAME         fp16 or fp32 (default: fp16; on the CPU it is fp32; for bf16 see the README)
  --output FOLDER          checkpoints and logs (default: outputs/electra/METHOD-MODEL)
  --small                  two cores, ten minutes: a tiny ELECTRA of letters from scratch, on the text and vocabulary
                           of examples/electra/prepare_small.sh, and at the end what it has learned; checkpoints
                           go to outputs/electra/two_cores/METHOD
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

loss=(--criterion electra)
case $method in
    baseline | hc) ;;
    sr_word | hc_sr) loss+=(--soft-reg-weight 1) ;;
    sr_sentence) loss+=(--soft-reg-weight 1 --soft-reg-level sentence) ;;
    '') fail "give --method baseline, hc, sr_word, sr_sentence or hc_sr" ;;
    *) fail "--method $method: give baseline, hc, sr_word, sr_sentence or hc_sr" ;;
esac
batch=128 warmup=10000 interval=5000 workers=4 masking=()
if [[ $small == yes ]]; then
    [[ -z $model ]] || fail "--small has a model of its own: leave --model out"
    prepared=$(here outputs/electra/two_cores)
    size=(
        --arch tn_electra_small --encoder-layers 2 --encoder-embed-dim 128 --encoder-attention-heads 8
        --embedding-dim 128 --generator-size 0.25 --generator-attention-heads 4 --max-positions 16
        --dropout 0 --attention-dropout 0 --initializer-range 0.05
    )
    # positions are learned one by one: in short sequences attention finds the neighbours soonest
    length=16 batch=128 updates=2500 warmup=100 rate=1e-3 interval=200 workers=1
    optimizer=("${corrected[@]}" --adam-betas '(0.9,0.98)') masking=(--mask-prob 0.25) # as ELECTRA-large
    : "${data:=$prepared/data}" "${sequences_per_gpu:=$batch}" "${output:=outputs/electra/two_cores/$method}"
    if [[ $method == hc* ]]; then : "${synonyms:=$prepared/synonyms.txt}"; fi
    for file in "$data" ${synonyms:+"$synonyms"}; do
        need "$file" "run examples/electra/prepare_small.sh first, or give --data and --synonyms"
    done
else
    case $model in
        small) length=128 updates=1000000 rate=5e-4 ;;
        base) length=512 updates=200000 rate=5e-5 ;;
        '') fail "give --model small or base, or --small" ;;
        *) fail "--model $model: give small or base" ;;
    esac
    size=(--arch "tn_electra_$model")
    [[ $model != base || $init ]] || fail "give --init FILE, made by fairseq-tn convert from-hf"
fi
[[ $data ]] || fail "give --data FOLDER, made by fairseq-preprocess"
add_synonyms
: "${output:=outputs/electra/$method-$model}"

# --- the command

: "${sequences_per_gpu:=$([[ $model == base ]] && echo 16 || echo 128)}"
share_out "$batch" "$gpus" "$sequences_per_gpu" "$precision"
decay_linearly "$rate" "$warmup" "$updates"
write_to "$output" "$interval"
command=(
    fairseq-train "$data" --user-dir "$(here fairseq_tn)" --task bert_pretraining --no-nsp "${loss[@]}" "${size[@]}"
    ${init:+--finetune-from-model "$init"}
    --tokens-per-sample "$length" "${masking[@]}" "${hardware[@]}" --num-workers "$workers" --seed 1
    "${optimizer[@]}" "${schedule[@]}" "${writing[@]}" "${further[@]}"
)

prepare_run
[[ $small == yes ]] || exec "${command[@]}"
"${command[@]}"
exec python "$(dirname "${BASH_SOURCE[0]}")/learned.py" "$data" "$output"
