"""Print the options of fairseq-train that build the model of a checkpoint, with the values of the checkpoint."""

import argparse
import shlex
import sys
import zipfile

import torch

from fairseq_tn.checkpoints import check_checkpoint
from fairseq_tn.compat import allow_checkpoint_files
from fairseq_tn.errors import UserError

SIZES = (
    "encoder_layers",
    "encoder_embed_dim",
    "encoder_ffn_embed_dim",
    "encoder_attention_heads",
    "embedding_dim",
    "generator_layers",
    "generator_embed_dim",
    "generator_ffn_embed_dim",
    "generator_attention_heads",
    "layer_norm_eps",
    "activation_fn",
    "num_segments",
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "checkpoint", help="model.pt of `fairseq-tn convert`, or a checkpoint of fairseq-train"
    )
    args = parser.parse_args()
    check_checkpoint(args.checkpoint, "--checkpoint")
    allow_checkpoint_files()
    state = torch.load(args.checkpoint, map_location="cpu", mmap=zipfile.is_zipfile(args.checkpoint))
    model = state["cfg"]["model"] if state.get("cfg") else state["args"]
    model = vars(model) if isinstance(model, argparse.Namespace) else model
    name = model.get("arch") or model.get("_name")
    if not str(name).startswith(("tn_bert", "tn_electra", "roberta", "xlmr")):
        raise UserError(f"{args.checkpoint} is a model {name}; give one of tn_bert, tn_electra or roberta")
    options = ["--arch", str(name)]
    # roberta names its architecture; what else it has is the architecture's or the checkpoint's, which is the same
    for size in SIZES if str(name).startswith("tn_") else SIZES[:4]:
        if (value := model.get(size)) is not None:
            options += [
                f"--{size.replace('_', '-')}",
                f"{value:g}" if isinstance(value, float) else str(value),
            ]
    print(shlex.join(options))


if __name__ == "__main__":
    try:
        main()
    except UserError as error:
        sys.exit(f"error: {error}")
