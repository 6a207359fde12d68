#!/usr/bin/env bash
# Fine-tune a pre-trained checkpoint on a task of GLUE and evaluate it; see usage below.
set -euo pipefail

usage() {
    cat <<'USAGE'
usage: examples/finetune/glue/train.sh --task NAME --checkpoint PATH --data FOLDER --seed N [options] [-- OPTION...]

Prepares the task's official files, fine-tunes with fairseq's own task and criterion, keeps the checkpoint that is
best on the development set by the task's metric, evaluates it there, and predicts the test set for GLUE's server if
there is one.
The commands are printed before they run. One run takes one GPU: give several seeds to several GPUs.

  --task NAME          CoLA, SST-2, MRPC, STS-B, QQP, MNLI, QNLI, RTE or WNLI
  --checkpoint PATH    a checkpoint of pre-training, a folder of Hugging Face (which is converted into OUTPUT/models,
                       with --dry-run too), or what "fairseq-tn convert from-hf" made
  --data FOLDER        the task's official files
  --tokenizer PATH     what the text is encoded with (default: hf/ beside the checkpoint)
  --dict FILE          dict.txt of the model (default: the one beside the checkpoint)
  --seed N             of fine-tuning (default: 1)
  --method NAME        what tables call the method (default: the name of the checkpoint's folder)
  --recipe NAME        tacl      rate 2e-5, 3 epochs, no warm-up, Adam (default of tn_bert and roberta)
                       electra   rate by size, 3 epochs (RTE and STS-B: 10), 10 % warm-up, layer-wise decay (default
                                 of tn_electra)
  --lr RATE            another learning rate
  --epochs N           another number of epochs
  --max-length N       tokens of an example (default: 128)
  --gpus N             0: train on the CPU, 1: on a GPU (default: 1 if there is one)
  --precision NAME     fp16 or fp32 (default: fp16; on the CPU it is fp32)
  --output FOLDER      everything that is made (default: outputs/glue)
  --small              two cores, a few minutes: at most 150 updates, 64 tokens; its figures say little
  --dry-run            print the commands only; their numbers of updates are not known yet, and shown as 1
  -- OPTION...         further options of fairseq-train; they win over the recipe's

Results: OUTPUT/results/TASK-METHOD-SEED.json, for "fairseq-tn report --results OUTPUT/results/*.json --baseline NAME".
USAGE
}

# shellcheck source=examples/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/../../common.sh"
# shellcheck source=examples/finetune/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/../common.sh"

task='' checkpoint='' data='' tokenizer='' dict='' seed=1 method='' recipe='' lr='' epochs='' max_length='' gpus=''
precision=fp16 output=outputs/glue small=no dry_run=no
valued='task checkpoint data tokenizer dict seed method recipe lr epochs max-length gpus precision output'
switches='small dry-run'
read_options "$@"

# --- what is trained

# classes, rows of the training set, and the metric that the best checkpoint has
case $task in
    CoLA) classes=2 metric=mcc report=(--report-mcc) ;;
    STS-B) classes=1 metric=spearman report=(--report-pearson-and-spearman --regression-target) ;;
    MNLI) classes=3 metric=accuracy report=(--valid-subset 'valid,valid1') ;;
    SST-2 | MRPC | QQP | QNLI | RTE | WNLI) classes=2 metric=accuracy report=() ;;
    '') fail "give --task CoLA, SST-2, MRPC, STS-B, QQP, MNLI, QNLI, RTE or WNLI" ;;
    *) fail "--task $task: give CoLA, SST-2, MRPC, STS-B, QQP, MNLI, QNLI, RTE or WNLI" ;;
esac
[[ $checkpoint ]] || fail "give --checkpoint PATH, a pre-trained model"
[[ $data ]] || fail "give --data FOLDER, the official files of $task"
[[ $seed =~ ^[0-9]+$ ]] || fail "--seed $seed: give a number"
need "$data" "give --data the folder of $task's official files"
[[ $gpus ]] || gpus=$(python -c "import torch; print(min(1, torch.cuda.device_count()))")
[[ $gpus == [01] ]] || fail "--gpus $gpus: give 0 or 1; other GPUs can train other seeds"

find_model
: "${recipe:=$([[ $arch == tn_electra* ]] && echo electra || echo tacl)}"
case $recipe in
    tacl)
        : "${lr:=2e-5}" "${epochs:=3}"
        warmup=0
        optimizer=(--optimizer adam --adam-betas '(0.9,0.999)' --adam-eps 1e-8 --weight-decay 0 --clip-norm 1)
        ;;
    electra)
        case $arch in
            tn_electra_small) rate=3e-4 decay=0.8 ;;
            tn_electra_large) rate=5e-5 decay=0.9 ;;
            *) rate=1e-4 decay=0.8 ;;
        esac
        [[ $arch == tn_* ]] || fail "--recipe electra: layer-wise rates need tn_bert or tn_electra, not $arch"
        case $task in RTE | STS-B) : "${epochs:=10}" ;; *) : "${epochs:=3}" ;; esac
        : "${lr:=$rate}"
        warmup=10 # per cent
        optimizer+=(--weight-decay 0 --layer-lr-decay "$decay")
        ;;
    *) fail "--recipe $recipe: give tacl or electra" ;;
esac
[[ $epochs =~ ^[1-9][0-9]*$ ]] || fail "--epochs $epochs: give a number, 1 or more"
if [[ $small == yes ]]; then : "${max_length:=64}"; else : "${max_length:=128}"; fi
# fairseq's roberta has two separators between sentences and no segments
separator=()
if [[ $arch != tn_* ]]; then separator=(--separator-token 2); fi
# fairseq 0.12.2 knows no correlations: the best checkpoint is that of the highest accuracy or the lowest error
criterion=$(python -c 'from importlib.util import find_spec
print(find_spec("fairseq").submodule_search_locations[0])')/criterions/sentence_prediction.py
if ! grep -q report_mcc "$criterion"; then
    case $task in
        CoLA) metric=accuracy report=() ;;
        STS-B) metric=loss report=(--regression-target) ;;
    esac
fi
best=(--best-checkpoint-metric "$metric")
if [[ $metric != loss ]]; then best+=(--maximize-best-checkpoint-metric); fi

# --- the commands

prepared=$output/data/$task-$method-$max_length
run=$output/runs/$task-$method-$seed
share_out 32 "$gpus" 32 "$precision"
prepare=(
    fairseq-tn prepare glue --task "$task" --data "$data" --tokenizer "$tokenizer" ${dict:+--dict "$dict"}
    --max-length "$max_length" --output "$prepared"
)
show_command "${prepare[@]}"
rows=0
if [[ $dry_run == no ]]; then
    "${prepare[@]}"
    rows=$(wc -l <"$prepared/index/train.txt")
fi
batches=$(((rows + 31) / 32))
updates=$((batches * epochs))
if [[ $small == yes ]] && ((updates > 150)); then updates=150; fi
if ((updates == 0)); then updates=1; fi
if [[ $dry_run == yes ]]; then
    echo "train.sh: the number of updates is not known before the examples are prepared; 1 stands in its place" >&2
fi
train=(
    fairseq-train "$prepared" --user-dir "$(here fairseq_tn)" --task sentence_prediction
    --criterion sentence_prediction --num-classes "$classes" --init-token 0 "${separator[@]}" "${report[@]}"
    "${model[@]}" --finetune-from-model "$checkpoint" --seed "$seed"
    "${hardware[@]}" --required-batch-size-multiple 1 --num-workers 1
    "${optimizer[@]}" --lr "$lr" --lr-scheduler polynomial_decay --warmup-updates "$((updates * warmup / 100))"
    --total-num-update "$updates" --max-update "$updates"
    "${best[@]}" --no-epoch-checkpoints --no-last-checkpoints --no-save-optimizer-state --save-dir "$run"
    --log-file "$run/train.log" --log-format json --log-interval 50 "${further[@]}"
)
evaluate=(fairseq-tn evaluate glue --task "$task" --data "$prepared" --checkpoint "$run/checkpoint_best.pt")
if ((gpus == 0)); then evaluate+=(--cpu); fi
valid=(--split valid --json "$output/results/$task-$method-$seed.json" --name "$method" --seed "$seed")
show_command "${train[@]}"
show_command "${evaluate[@]}" "${valid[@]}"
[[ $dry_run == no ]] || exit 0
# an earlier run's checkpoint must not be taken for this one's
rm -rf "$run"
mkdir -p "$run"
"${train[@]}"
"${evaluate[@]}" "${valid[@]}"
if [[ -e $prepared/input0/test.bin ]]; then
    test=(--split test --predictions "$output/submissions/$method-$seed")
    show_command "${evaluate[@]}" "${test[@]}"
    "${evaluate[@]}" "${test[@]}"
fi
