# Sourced by the train.sh of the folders here, after examples/common.sh: the model that is fine-tuned.
# shellcheck shell=bash

# find_model: makes of --checkpoint, a file or a folder, the checkpoint itself. A folder of Hugging Face is converted
# into OUTPUT/models first. Sets "tokenizer" and "dict" to those beside the checkpoint and "method" to the name of its
# folder, unless they are given, and "model" (an array) and "arch" to the options of fairseq-train that build the model.
# shellcheck disable=SC2154,SC2034 # the script has the others
find_model() {
    local beside model_line
    need "$checkpoint" "give --checkpoint a pre-trained model"
    if [[ -d $checkpoint ]]; then
        : "${method:=$(basename "$(realpath "$checkpoint")")}"
        if [[ ! -e $checkpoint/model.pt ]]; then convert_folder; fi
        checkpoint=$checkpoint/model.pt
    fi
    beside=$(dirname "$checkpoint")
    if [[ -e $beside/config.json ]]; then
        fail "$checkpoint is a file of a Hugging Face folder: give --checkpoint the folder $beside"
    fi
    : "${tokenizer:=$beside/hf}" "${method:=$(basename "$(realpath "$beside")")}"
    if [[ $tokenizer == "$beside/hf" ]]; then
        need "$tokenizer" "give --tokenizer, what the model's text was encoded with"
    fi
    if [[ ! $dict && -e $beside/dict.txt ]]; then dict=$beside/dict.txt; fi
    model_line=$(python "$root/examples/finetune/model_options.py" "$checkpoint") || exit 2
    read -ra model <<<"$model_line"
    arch=${model[1]}
}

# convert_folder: "checkpoint" becomes the folder that "fairseq-tn convert" makes of it, which later runs find again.
convert_folder() {
    local source converted
    [[ -e $checkpoint/config.json ]] ||
        fail "$checkpoint has neither model.pt nor config.json: give --checkpoint a checkpoint or a Hugging Face folder"
    source=$(realpath "$checkpoint")
    converted=$output/models/$(basename "$source")
    if [[ -e $converted/source.txt && $(<"$converted/source.txt") != "$source" ]]; then
        fail "$converted was made from $(<"$converted/source.txt"), not from $source: give another --output"
    fi
    if [[ ! -e $converted/source.txt || $(find -L "$source" -maxdepth 1 -newer "$converted/source.txt") ]]; then
        fairseq-tn convert from-hf "$checkpoint" --output "$converted" >&2 || exit 2
        printf '%s\n' "$source" >"$converted/source.txt"
    fi
    checkpoint=$converted
}
