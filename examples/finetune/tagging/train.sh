#!/usr/bin/env bash
# Fine-tune a pre-trained checkpoint on tagged text and evaluate it; see usage below.
# shellcheck disable=SC2128,SC2178 # examples/common.sh has an array "loss" for pre-training
set -euo pipefail

usage() {
    cat <<'USAGE'
usage: examples/finetune/tagging/train.sh --checkpoint PATH --train FILE [--valid FILE] [--test FILE] --task NAME
                                          [options] [-- OPTION...]
       examples/finetune/tagging/train.sh --small --train FILE [--valid FILE] [--test FILE] [options] [-- OPTION...]

Prepares CoNLL or SIGHAN files, fine-tunes with the settings of TaCL's Chinese benchmark, keeps the checkpoint that has the
best F1 on the development set, and evaluates it there and on the test set. The commands are printed before they run.
One run takes one GPU: give several seeds to several GPUs.

  --checkpoint PATH    a checkpoint of pre-training, a folder of Hugging Face (which is converted into OUTPUT/models,
                       with --dry-run too), or what "fairseq-tn convert from-hf" made
  --train FILE         training text; without --valid a tenth of its sentences is split off for development
  --valid FILE         development text
  --test FILE          test text
  --task NAME          what tables call the data set (default: the name of the training file)
  --tokenizer PATH     what the text is encoded with (default: hf/ beside the checkpoint; --small: words)
  --dict FILE          dict.txt of the model (default: the one beside the checkpoint)
  --loss NAME          crf or softmax (default: crf)
  --seed N             of fine-tuning (default: 1)
  --method NAME        what tables call the method (default: the name of the checkpoint's folder; --small: scratch)
  --lr RATE            learning rate, constant (default: 2e-5)
  --batch N            sentences an update (default: 128)
  --epochs N           epochs (default: 100)
  --max-length N       pieces of a sequence; longer sentences are cut and joined again (default: 130)
  --sequences-per-gpu N  most sequences that fit into a GPU's memory at once (default: 64)
  --gpus N             0: train on the CPU, 1: on a GPU (default: 1 if there is one)
  --precision NAME     fp16 or fp32 (default: fp16; on the CPU it is fp32)
  --output FOLDER      everything that is made (default: outputs/tagging)
  --small              two cores, a few minutes: without --checkpoint a model of two layers that starts from nothing,
                       16 sentences an update, at most 400 updates, rate 1e-3; its figures say little
  --dry-run            print the commands only
  -- OPTION...         further options of fairseq-train; they win over the recipe's

Results: OUTPUT/results/TASK-METHOD-SEED-SPLIT.json, for "fairseq-tn report --results ... --baseline NAME".
USAGE
}

# shellcheck source=examples/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/../../common.sh"
# shellcheck source=examples/finetune/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/../common.sh"

checkpoint='' train='' valid='' test='' task='' tokenizer='' dict='' loss=crf seed=1 method='' lr='' batch='' epochs=''
max_length=130 sequences_per_gpu=64 gpus='' precision=fp16 output=outputs/tagging small=no dry_run=no
valued='checkpoint train valid test task tokenizer dict loss seed method lr batch epochs max-length sequences-per-gpu'
valued+=' gpus precision output'
switches='small dry-run'
read_options "$@"

# --- what is trained

[[ $train ]] || fail "give --train FILE, text with tags (CoNLL) or with blanks between words (SIGHAN)"
for file in "$train" "$valid" "$test"; do
    if [[ $file ]]; then need "$file" "give files of tagged text"; fi
done
[[ $seed =~ ^[0-9]+$ ]] || fail "--seed $seed: give a number"
[[ $loss == crf || $loss == softmax ]] || fail "--loss $loss: give crf or softmax"
[[ $gpus ]] || gpus=$(python -c "import torch; print(min(1, torch.cuda.device_count()))")
[[ $gpus == [01] ]] || fail "--gpus $gpus: give 0 or 1; other GPUs can train other seeds"
if [[ $small == yes ]]; then
    : "${lr:=1e-3}" "${batch:=16}" "${epochs:=100}"
    limit=(--max-update 400)
else
    : "${lr:=2e-5}" "${batch:=128}" "${epochs:=100}"
    limit=()
    [[ $checkpoint ]] || fail "give --checkpoint PATH, a pre-trained model, or --small"
fi
for value in "$epochs" "$batch" "$max_length"; do
    [[ $value =~ ^[1-9][0-9]*$ ]] || fail "$value: --epochs, --batch and --max-length are numbers, 1 or more"
done
if [[ $checkpoint ]]; then
    find_model
    model+=(--finetune-from-model "$checkpoint")
else
    : "${tokenizer:=words}" "${method:=scratch}"
    model=(--arch tn_bert_tiny --max-positions "$max_length")
fi
: "${task:=$(basename "$train")}"
name=${task// /_}

# --- the commands

prepared=$output/data/$name-$method-$max_length
run=$output/runs/$name-$method-$loss-$seed
share_out "$batch" "$gpus" "$sequences_per_gpu" "$precision"
prepare=(
    fairseq-tn prepare tagging --train "$train" ${valid:+--valid "$valid"} ${test:+--test "$test"}
    --tokenizer "$tokenizer" ${dict:+--dict "$dict"} --max-tokens "$max_length" --output "$prepared"
)
command=(
    fairseq-train "$prepared" --user-dir "$(here fairseq_tn)" --task token_tagging
    --criterion token_tagging --tagging-loss "$loss" --head-dropout 0
    "${model[@]}" --seed "$seed" "${hardware[@]}" --required-batch-size-multiple 1 --num-workers 1
    --optimizer adam --adam-betas '(0.9,0.999)' --adam-eps 1e-8 --weight-decay 0 --clip-norm 1
    --lr "$lr" --lr-scheduler fixed --max-epoch "$epochs" "${limit[@]}"
    --best-checkpoint-metric f1 --maximize-best-checkpoint-metric
    --no-epoch-checkpoints --no-last-checkpoints --no-save-optimizer-state --save-dir "$run"
    --log-file "$run/train.log" --log-format json --log-interval 50 "${further[@]}"
)
show_command "${prepare[@]}"
show_command "${command[@]}"
evaluate() { # evaluate SPLIT: sets the array "evaluation"
    evaluation=(
        fairseq-tn evaluate tagging --checkpoint "$run/checkpoint_best.pt" --data "$prepared" --split "$1"
        --predictions "$run/$1.txt" --task "$task" --name "$method" --seed "$seed"
        --json "$output/results/$name-$method-$seed-$1.json"
    )
    if ((gpus == 0)); then evaluation+=(--cpu); fi
}
splits=(valid ${test:+test})
for split in "${splits[@]}"; do
    evaluate "$split"
    show_command "${evaluation[@]}"
done
[[ $dry_run == no ]] || exit 0
"${prepare[@]}"
# an earlier run's checkpoint must not be taken for this one's
rm -rf "$run"
mkdir -p "$run"
"${command[@]}"
for split in "${splits[@]}"; do
    evaluate "$split"
    "${evaluation[@]}"
done
