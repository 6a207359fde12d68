"""What this package registers with fairseq."""

import importlib

MODULES = (
    "models.bert",
    "models.electra",
    "tasks.bert_pretraining",
    "tasks.teacher_student",
    "tasks.sentence_contrastive",
    "tasks.squad",
    "tasks.token_tagging",
    "criterions.bert_pretraining",
    "criterions.mlm_hard_correction",
    "criterions.mlm_soft_reg",
    "criterions.tacl_contrastive",
    "criterions.sentence_contrastive",
    "criterions.electra",
    "criterions.span_extraction",
    "criterions.token_tagging",
    "optim.adam",
)


def register_all() -> None:
    """Import every module that registers a task, a model, a criterion or an optimiser; repeated calls do nothing."""
    # fairseq's own registries must be complete before ours refer to them
    importlib.import_module("fairseq.tasks")
    compat = importlib.import_module("fairseq_tn.compat")
    compat.allow_checkpoints()
    compat.tell_tasks_of_checkpoints()
    compat.let_hydra_pass_errors()
    for module in MODULES:
        importlib.import_module(f"fairseq_tn.{module}")
