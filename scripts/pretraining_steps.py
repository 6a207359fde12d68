"""Steps of pre-training: ours, fairseq's own, and transformers' with full logits."""

import argparse
import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from contestants import PRECISIONS, VOCABULARY, Contestant, common_arguments, fairseq_contestant
from synthetic import write_checkpoint, write_corpus, write_synonyms
from torch import Tensor

from fairseq_tn.models.bert import TnBertConfig

PAIRS = 60_000
TEMPERATURE = 0.01
Maker = Callable[[str], Contestant]


def transformers_contestant(
    name: str, label: str, args: argparse.Namespace, like: Contestant, with_teacher: bool
) -> Contestant:
    """BertForMaskedLM as it is usually trained: logits at every position, the loss ignores most of them.

    With a teacher, TaCL as its equation reads: all T x T similarities of student and teacher, of which the
    masked rows are used; the teacher's forward pass records a graph, which is not used.
    """
    from transformers import BertConfig, BertForMaskedLM

    config = BertConfig(
        vocab_size=VOCABULARY,
        hidden_size=args.width,
        num_hidden_layers=args.layers,
        num_attention_heads=max(1, args.width // 64),
        intermediate_size=4 * args.width,
        max_position_embeddings=args.length,
        pad_token_id=like.dataset.pad,
    )
    torch.manual_seed(1)
    where = {"device": args.device, "dtype": PRECISIONS[args.precision]}
    model = BertForMaskedLM(config).to(**where)
    teacher = BertForMaskedLM(config).to(**where).eval() if with_teacher else None
    if teacher is not None:
        teacher.load_state_dict(model.state_dict())
    pad = like.dataset.pad

    def forward(batch: Any) -> tuple[Tensor, Any]:
        source, masked = batch["source"], batch["target"].ne(pad)
        real = source.ne(pad)
        output = model(
            batch["net_input"]["src_tokens"], attention_mask=real, output_hidden_states=with_teacher
        )
        labels = batch["target"].masked_fill(~masked, -100)
        loss = F.cross_entropy(output.logits.float().transpose(1, 2), labels, reduction="sum")
        if teacher is not None:
            states = F.normalize(output.hidden_states[-1].float(), dim=-1)
            keys = F.normalize(teacher.bert(source, attention_mask=real)[0].detach().float(), dim=-1)
            scores = states @ keys.transpose(1, 2) / TEMPERATURE
            log_probabilities = scores.masked_fill(~real[:, None], float("-inf")).log_softmax(-1)
            diagonal = log_probabilities.diagonal(dim1=1, dim2=2)
            loss = loss - diagonal.masked_fill(~masked, 0.0).sum()
        return loss, masked.sum()

    return Contestant(name, label, like.cfg, model, like.dataset, forward, frozen=teacher)


def pretraining_makers(args: argparse.Namespace, folder: Path) -> dict[str, Maker]:
    """What makes each contestant; their data are written to ``folder``."""
    data = folder / "data"
    needed = args.batch * args.length * 20
    dictionary = write_corpus(data, VOCABULARY, {"train": needed})
    write_synonyms(folder / "synonyms.txt", dictionary, PAIRS)
    sizes = TnBertConfig(
        _name="tn_bert",
        encoder_layers=args.layers,
        encoder_embed_dim=args.width,
        max_positions=args.length,
    )
    write_checkpoint(folder / "teacher.pt", sizes, dictionary)
    common = [*common_arguments(args, data), "--tokens-per-sample", args.length]
    ours = [*common, "--arch", "tn_bert", "--no-nsp", "--task"]
    synonyms = ("--synonyms", folder / "synonyms.txt")
    teacher = ("--teacher-checkpoint", folder / "teacher.pt", "--temperature", TEMPERATURE)

    @functools.cache
    def mlm() -> Contestant:
        arguments = [*ours, "bert_pretraining", "--criterion", "bert_pretraining"]
        return fairseq_contestant("mlm", "MLM", args, arguments)

    return {
        "mlm": lambda name: mlm(),
        "hc": lambda name: fairseq_contestant(
            name,
            "MLM with HC",
            args,
            [*ours, "bert_pretraining", "--criterion", "mlm_hard_correction", *synonyms],
        ),
        "sr": lambda name: fairseq_contestant(
            name, "MLM with SR", args, [*ours, "bert_pretraining", "--criterion", "mlm_soft_reg"]
        ),
        "sr-sentence": lambda name: fairseq_contestant(
            name,
            "MLM with SR of sentences",
            args,
            [*ours, "bert_pretraining", "--criterion", "mlm_soft_reg", "--soft-reg-level", "sentence"],
        ),
        "electra": lambda name: fairseq_contestant(
            name,
            "ELECTRA, generator 1/4",
            args,
            [
                *(*common, "--arch", "tn_electra_small", "--embedding-dim", args.width, "--no-nsp"),
                *("--task", "bert_pretraining", "--criterion", "electra"),
            ],
        ),
        "tacl": lambda name: fairseq_contestant(
            name, "TaCL", args, [*ours, "teacher_student", "--criterion", "tacl_contrastive", *teacher]
        ),
        "fairseq": lambda name: fairseq_contestant(
            name,
            "fairseq's masked_lm, roberta",
            args,
            [*common, "--arch", "roberta_base", "--task", "masked_lm", "--criterion", "masked_lm"],
        ),
        "hf-mlm": lambda name: transformers_contestant(
            name, "transformers, MLM, full logits", args, mlm(), with_teacher=False
        ),
        "hf-tacl": lambda name: transformers_contestant(
            name, "transformers, TaCL, full logits", args, mlm(), with_teacher=True
        ),
    }
