"""What an ELECTRA run has learned on held-out text: its validation figures beside the unigram entropy.

python examples/electra/learned.py outputs/electra/two_cores/data outputs/electra/two_cores/baseline

Plots of the same figures: ``fairseq-tn report RUN... --output FOLDER``.
"""

import argparse
import sys
from pathlib import Path

from fairseq_tn.analysis.training_log import Curve, TrainingRun, read_run
from fairseq_tn.errors import UserError

BALANCED_ACCURACY = 60
# share of the predicted tokens that the generator sees unchanged, and learns to copy within a few updates
KEPT = 0.15
COLUMNS = ("gen_loss", "gen_acc", "disc_loss", "disc_bacc", "disc_recall", "disc_specificity")
# columns of runs that have them
METHODS = ("hc_pred", "hc_seq", "sr_loss")


def unigram_entropy(data: Path) -> float:
    """Mean bits that a held-out token costs a model that knows nothing but the words' frequencies in training.

    Frequencies are counts plus one, over the tokens that can be masked: all but the special ones.

    Raises:
        UserError: ``data`` is no folder of ``fairseq-preprocess``
    """
    import numpy as np
    from fairseq.data import Dictionary, data_utils

    from fairseq_tn.data.corpus import Corpus

    if not (data / "dict.txt").is_file():
        raise UserError(f"{data / 'dict.txt'} is missing: give the data folder that fairseq-preprocess made")
    dictionary = Dictionary.load(str(data / "dict.txt"))
    data_utils.logger.setLevel("WARNING")
    counts = []
    for split in ("train", "valid"):
        corpus = Corpus(str(data / split), dictionary)
        tokens = corpus.read((0, 0, corpus.num_tokens))
        counts.append(np.bincount(tokens, minlength=len(dictionary))[dictionary.nspecial :])
    train, valid = counts
    if not valid.sum():
        raise UserError(f"{data / 'valid'} has no known token")
    frequency = (train + 1) / (train + 1).sum()
    return float(-(valid * np.log2(frequency)).sum() / valid.sum())


def table(run: TrainingRun) -> str:
    """The validation figures as Markdown, a line an evaluation."""
    names = [*COLUMNS, *(name for name in METHODS if ("valid", name) in run.curves)]
    curves = [run.curves.get(("valid", name), {}) for name in names]
    lines = [f"| update | {' | '.join(names)} |", "|---:" * (len(names) + 1) + "|"]
    for update in curves[0]:
        values = (f"{curve[update]:.4g}" if update in curve else "" for curve in curves)
        lines.append(f"| {update:,} | {' | '.join(values)} |")
    return "\n".join(lines)


def verdict(name: str, unit: str, curve: Curve, bound: float, falling: bool) -> str:
    """One sentence: how far ``curve`` came and since when it is on the right side of ``bound``."""
    side = "below" if falling else "above"
    wrong = [update for update, value in curve.items() if (value >= bound if falling else value <= bound)]
    last = list(curve)[-1]
    since = [update for update in curve if not wrong or update > wrong[-1]]
    reached = f"{side} it since update {since[0]:,}" if since else f"not {side} it"
    return f"{name}: {curve[last]:.2f} {unit} after {last:,} updates; {reached}"


def main() -> None:
    """Print table and verdicts of one run."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", type=Path, help="folder of fairseq-preprocess")
    parser.add_argument(
        "run", type=Path, help="--save-dir of a run of --criterion electra, with its train.log"
    )
    args = parser.parse_args()
    try:
        run = read_run(args.run)
        generator, discriminator = (run.curves.get(("valid", name)) for name in ("gen_loss", "disc_bacc"))
        if not (generator and discriminator):
            raise UserError(f"{args.run}: its train.log holds no validation of --criterion electra")
        entropy = unigram_entropy(args.data)
    except UserError as error:
        sys.exit(f"learned.py: error: {error}")
    print(f"\n{table(run)}\n")
    print(f"unigram entropy of the held-out text: {entropy:.2f} bits")
    print(verdict("generator, gen_loss", "bits", generator, entropy, falling=True))
    blind = (1 - KEPT) * entropy
    print(f"a generator that copies the {KEPT:.0%} kept tokens and knows frequencies only: {blind:.2f} bits")
    print(verdict("generator, gen_loss", "bits", generator, blind, falling=True))
    print(f"balanced accuracy of a discriminator that guesses: 50 %; aim: {BALANCED_ACCURACY} %")
    print(verdict("discriminator, disc_bacc", "%", discriminator, BALANCED_ACCURACY, falling=False))
    if run.seconds is not None:
        print(f"trained for {run.seconds:,.0f} s")


if __name__ == "__main__":
    main()
