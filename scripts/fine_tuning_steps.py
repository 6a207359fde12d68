"""Steps of fine-tuning: those of the recipes here, and those of transformers' example scripts as they come.

run_glue.py and run_qa.py pad every example to the longest that is allowed. Their Trainer keeps fp32 weights (half
precision is autocast) and takes torch's fused AdamW without weight decay. Both sides read the same examples in the
same batches.
"""

import argparse
import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from contestants import PRECISIONS, VOCABULARY, Contestant, common_arguments, fairseq_contestant
from pretraining_steps import Maker
from synthetic import write_glue, write_squad
from torch import Tensor, nn

from fairseq_tn.data.squad_windows import WindowSettings

BATCHES = 40


class PaddedExamples:
    """The examples of a data set of ours as run_glue.py and run_qa.py tokenise them.

    Args:
        dataset: of ``sentence_prediction`` or ``squad``; sequences are ``<s> A </s> B </s>``
        length: of all examples
        pad, eos: ids of ``<pad>`` and ``</s>``
    """

    def __init__(self, dataset: Any, length: int, pad: int, eos: int):
        self._features = [self._feature(dataset[index], length, pad, eos) for index in range(len(dataset))]

    @staticmethod
    def _feature(item: dict[str, Any], length: int, pad: int, eos: int) -> dict[str, Any]:
        squad = "tokens" in item
        tokens = item["tokens" if squad else "net_input.src_tokens"].tolist()
        first, rest = tokens.index(eos) + 1, length - len(tokens)
        feature = {
            "input_ids": tokens + [pad] * rest,
            "token_type_ids": [0] * first + [1] * (len(tokens) - first) + [0] * rest,
            "attention_mask": [1] * len(tokens) + [0] * rest,
        }
        if squad:
            return feature | {"start_positions": item["start"], "end_positions": item["end"]}
        return feature | {"label": int(item["target"])}

    def __len__(self) -> int:
        return len(self._features)

    def __getitem__(self, index: int) -> dict[str, Any]:
        return self._features[index]

    @staticmethod
    def collater(features: Sequence[dict[str, Any]]) -> dict[str, Tensor]:
        """Lists to tensors, B x length."""
        from transformers import default_data_collator

        return default_data_collator(list(features))


class TrainerOptimizer:
    """What transformers' Trainer does after the forward pass, by the names of fairseq's optimisers."""

    def __init__(self, model: nn.Module, cfg: Any):
        self._parameters = list(model.parameters())
        self.optimizer = torch.optim.AdamW(
            self._parameters, lr=cfg.optimization.lr[0], eps=1e-8, weight_decay=0.0, fused=True
        )
        self._scaler = torch.amp.GradScaler("cuda", enabled=cfg.common.fp16)

    def backward(self, loss: Tensor) -> None:
        """Compute the gradients."""
        self._scaler.scale(loss).backward()

    def multiply_grads(self, factor: float) -> None:
        """The loss is a mean already: there is nothing to divide by."""

    def clip_grad_norm(self, norm: float) -> None:
        """Clip the gradients."""
        self._scaler.unscale_(self.optimizer)
        torch.nn.utils.clip_grad_norm_(self._parameters, norm)

    def step(self) -> None:
        """Apply the gradients."""
        self._scaler.step(self.optimizer)
        self._scaler.update()

    def zero_grad(self) -> None:
        """Forget the gradients."""
        self.optimizer.zero_grad()


def transformers_contestant(name: str, label: str, args: argparse.Namespace, like: Contestant) -> Contestant:
    """The step of run_glue.py or run_qa.py on the examples and batches of ``like``."""
    from transformers import AutoModelForQuestionAnswering, AutoModelForSequenceClassification, BertConfig

    config = BertConfig(
        vocab_size=VOCABULARY,
        hidden_size=args.width,
        num_hidden_layers=args.layers,
        num_attention_heads=max(1, args.width // 64),
        intermediate_size=4 * args.width,
        max_position_embeddings=args.length,
    )
    auto = AutoModelForQuestionAnswering if name == "hf-squad" else AutoModelForSequenceClassification
    torch.manual_seed(1)
    model = auto.from_config(config, dtype=torch.float32).to(args.device)
    half = args.precision != "fp32"

    def forward(batch: Any) -> tuple[Tensor, Any]:
        with torch.autocast(args.device, PRECISIONS[args.precision], enabled=half):
            return model(**batch).loss, 1

    return Contestant(
        name,
        label,
        like.cfg,
        model,
        PaddedExamples(like.dataset, args.length, pad=1, eos=2),
        forward,
        optimizer=TrainerOptimizer(model, like.cfg),
        order=like.order,
    )


def fine_tuning_makers(args: argparse.Namespace, folder: Path) -> dict[str, Maker]:
    """What makes each contestant; their data are written to ``folder``."""
    rows = BATCHES * args.batch

    @functools.cache
    def glue() -> Contestant:
        data = write_glue(folder / "glue", VOCABULARY, rows, args.length)
        arguments = [
            *(*common_arguments(args, data), "--arch", "tn_bert", "--weight-decay", "0"),
            *("--task", "sentence_prediction", "--num-classes", 2, "--init-token", 0),
            *("--criterion", "sentence_prediction"),
        ]
        return fairseq_contestant("glue", "GLUE, sentence pairs", args, arguments, by_epoch=True)

    @functools.cache
    def squad() -> Contestant:
        settings = WindowSettings(args.length, max(1, args.length // 3), max(1, args.length // 6))
        data = write_squad(folder / "squad", VOCABULARY, rows, settings)
        arguments = [
            *(*common_arguments(args, data), "--arch", "tn_bert"),
            *("--optimizer", "tn_adam", "--no-bias-correction", "--decay-matrices-only"),
            *("--task", "squad", "--criterion", "span_extraction"),
        ]
        return fairseq_contestant("squad", "SQuAD", args, arguments, by_epoch=True)

    padded = f"padded to {args.length}"
    return {
        "glue": lambda name: glue(),
        "hf-glue": lambda name: transformers_contestant(
            name, f"transformers, run_glue.py, {padded}", args, glue()
        ),
        "squad": lambda name: squad(),
        "hf-squad": lambda name: transformers_contestant(
            name, f"transformers, run_qa.py, {padded}", args, squad()
        ),
    }
