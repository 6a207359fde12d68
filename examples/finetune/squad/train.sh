#!/usr/bin/env bash
# Fine-tune a pre-trained checkpoint on SQuAD and evaluate it; see usage below.
set -euo pipefail

usage() {
    cat <<'USAGE'
usage: examples/finetune/squad/train.sh --version 1.1|2.0 --checkpoint PATH --train FILE --valid FILE [options]
                                        [-- OPTION...]

Prepares the official files, fine-tunes, and evaluates the last checkpoint on the development set. The commands are printed
before they run. Called again, an interrupted run goes on; one of other settings is never taken for it.

  --version NAME       1.1 (every question has an answer) or 2.0
  --checkpoint PATH    a checkpoint of pre-training, a folder of Hugging Face (which is converted into OUTPUT/models,
                       with --dry-run too), or what "fairseq-tn convert from-hf" made
  --train FILE         train-v1.1.json or train-v2.0.json
  --valid FILE         dev-v1.1.json or dev-v2.0.json
  --tokenizer PATH     what the text is encoded with (default: hf/ beside the checkpoint)
  --dict FILE          dict.txt of the model (default: the one beside the checkpoint)
  --seed N             of fine-tuning (default: 1)
  --method NAME        what tables call the method (default: the name of the checkpoint's folder)
  --recipe NAME        bert      rate 5e-5; 1.1: 3 epochs of 32 windows an update, 2.0: 2 epochs of 48; 384 tokens
                                 (default of tn_bert and roberta)
                       electra   rate by size, 2 epochs, 32 windows, layer-wise decay, 512 tokens (default of tn_electra)
  --lr RATE            another learning rate
  --epochs N           another number of epochs
  --max-length N       tokens of a window
  --stride N           tokens from the beginning of a window to that of the next (default: 128; --small: 64)
  --gpus N             GPUs in all (default: those of this machine; 0: train on the CPU)
  --windows-per-gpu N  most windows that fit into a GPU's memory at once (default: 32)
  --precision NAME     fp16 or fp32 (default: fp16; on the CPU it is fp32)
  --output FOLDER      everything that is made (default: outputs/squad)
  --small              two cores, some minutes: at most 300 updates of 16 windows of 160 tokens, rate 3e-4
  --dry-run            print the commands only; their numbers of updates are not known yet, and shown as 1
  -- OPTION...         further options of fairseq-train; they win over the recipe's

Results: OUTPUT/results/VERSION-METHOD-SEED.json, for "fairseq-tn report --results OUTPUT/results/*.json --baseline NAME".
USAGE
}

# shellcheck source=examples/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/../../common.sh"
# shellcheck source=examples/finetune/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/../common.sh"

version='' checkpoint='' train='' valid='' tokenizer='' dict='' seed=1 method='' recipe='' lr='' epochs='' max_length=''
stride='' gpus='' windows_per_gpu=32 precision=fp16 output=outputs/squad small=no dry_run=no
valued='version checkpoint train valid tokenizer dict seed method recipe lr epochs max-length stride gpus'
valued+=' windows-per-gpu precision output' switches='small dry-run'
read_options "$@"

# --- what is trained

case $version in
    1.1) versions=() ;;
    2.0) versions=(--version-2) ;;
    '') fail "give --version 1.1 or 2.0" ;;
    *) fail "--version $version: give 1.1 or 2.0" ;;
esac
for name in checkpoint train valid; do
    [[ ${!name} ]] || fail "give --$name PATH"
    need "${!name}" "give --$name another file"
done
[[ $seed =~ ^[0-9]+$ ]] || fail "--seed $seed: give a number"
find_model
: "${recipe:=$([[ $arch == tn_electra* ]] && echo electra || echo bert)}"
batch=32 query=64
# shellcheck disable=SC2154 # both are in common.sh
if [[ $small == yes ]]; then optimizer=("${corrected[@]}"); fi
case $recipe in
    bert)
        : "${lr:=$([[ $small == yes ]] && echo 3e-4 || echo 5e-5)}"
        if [[ $version == 1.1 ]]; then
            : "${epochs:=3}"
        else
            batch=48
            : "${epochs:=2}"
        fi
        [[ $small == yes ]] || : "${max_length:=384}"
        ;;
    electra)
        case $arch in
            tn_electra_small) rate=3e-4 decay=0.8 ;;
            tn_electra_large) rate=5e-5 decay=0.9 ;;
            *) rate=1e-4 decay=0.8 ;;
        esac
        : "${lr:=$rate}" "${epochs:=2}"
        [[ $small == yes ]] || : "${max_length:=512}"
        optimizer+=(--weight-decay 0 --layer-lr-decay "$decay")
        ;;
    *) fail "--recipe $recipe: give bert or electra" ;;
esac
[[ $epochs =~ ^[1-9][0-9]*$ ]] || fail "--epochs $epochs: give a number, 1 or more"
if [[ $small == yes ]]; then
    : "${max_length:=160}" "${stride:=64}"
    batch=16 query=40
fi
: "${stride:=128}"

# --- the commands

prepared=$output/data/$version-$method-$max_length
run=$output/runs/$version-$method-$seed
share_out "$batch" "$gpus" "$windows_per_gpu" "$precision"
prepare=(
    fairseq-tn prepare squad --train "$train" --valid "$valid" "${versions[@]}"
    --tokenizer "$tokenizer" ${dict:+--dict "$dict"}
    --max-length "$max_length" --stride "$stride" --max-query-length "$query" --output "$prepared"
)
# what an interrupted run must have been started with; the hardware may change
settings=$(
    show_command "${prepare[@]}" "${model[@]}" "$checkpoint" "${optimizer[@]}" "$lr" "$epochs" "$batch" "${further[@]}"
)
if [[ -e $run/settings.txt && $(<"$run/settings.txt") != "$settings" ]]; then
    fail "$run holds a run of other settings: remove it, or give another --method, --seed or --output"
fi
show_command "${prepare[@]}"
windows=0
if [[ $dry_run == no ]]; then
    "${prepare[@]}"
    windows=$(python -c 'import json, sys
print(json.load(open(sys.argv[1]))["splits"]["train"]["windows"])' "$prepared/squad.json")
fi
# shellcheck disable=SC2017 # an epoch has whole updates
updates=$(((windows + batch - 1) / batch * epochs))
if [[ $small == yes ]] && ((updates > 300)); then updates=300; fi
if ((updates == 0)); then updates=1; fi
if [[ $dry_run == yes ]]; then
    echo "train.sh: the number of updates is not known before the windows are prepared; 1 stands in its place" >&2
fi
command=(
    fairseq-train "$prepared" --user-dir "$(here fairseq_tn)" --task squad --criterion span_extraction --eval-f1
    "${model[@]}" --finetune-from-model "$checkpoint" --seed "$seed"
    "${hardware[@]}" --required-batch-size-multiple 1 --num-workers 1
    "${optimizer[@]}" --lr "$lr" --lr-scheduler polynomial_decay --warmup-updates "$((updates / 10))"
    --total-num-update "$updates" --max-update "$updates"
    --no-epoch-checkpoints --save-dir "$run" --log-file "$run/train.log" --log-format json --log-interval 50
    "${further[@]}"
)
result=$output/results/$version-$method-$seed
evaluate=(
    fairseq-tn evaluate squad --checkpoint "$run/checkpoint_last.pt" --data "$prepared"
    --json "$result.json" --name "$method" --seed "$seed" --predictions "$run/predictions.json"
)
if [[ " ${hardware[*]} " == *" --cpu "* ]]; then evaluate+=(--cpu); fi
show_command "${command[@]}"
show_command "${evaluate[@]}"
[[ $dry_run == no ]] || exit 0
mkdir -p "$run"
printf '%s\n' "$settings" >"$run/settings.txt"
"${command[@]}"
"${evaluate[@]}"
