#!/usr/bin/env bash
# What "train.sh --small" reads: 107 Wikipedia articles, their letters as vocabulary, and its synonyms. Some two
# minutes on two cores; needs the extra "hf".
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/../.."
[[ ${1-} != -h && ${1-} != --help ]] || { sed -n '2,3s/^# //p' "${BASH_SOURCE[0]}"; exit; }
(($# == 0)) || { printf 'prepare_small.sh: error: unknown argument %s; it takes none\n' "$1" >&2; exit 2; }
to=outputs/electra/two_cores
dump=$(python scripts/fetch.py wikipedia)
wordnet=$(python scripts/fetch.py wordnet)

set -x
mkdir -p $to/text
fairseq-tn wikipedia "$dump" --output $to/text/all.txt --workers 2
awk -v RS= -v ORS='\n\n' -v to=$to/text '{ print > (to (NR % 8 ? "/train.txt" : "/valid.txt")) }' $to/text/all.txt
python examples/electra/train_vocabulary.py $to/text/train.txt --size 145 --characters 70 --output $to/vocab.txt
for split in train valid; do
    fairseq-tn encode --tokenizer $to/vocab.txt $to/text/$split.txt --output $to/encoded/$split --workers 2
done
fairseq-preprocess --only-source --srcdict $to/encoded/dict.txt --trainpref $to/encoded/train \
    --validpref $to/encoded/valid --destdir $to/data --workers 2
fairseq-tn synonyms build --source wordnet --wordnet "$wordnet" --vocab $to/data/dict.txt --output $to/synonyms.txt
