"""Criterion ``bert_pretraining``: masked LM and next-sentence prediction, the "+MT" (more training) baseline."""

from dataclasses import dataclass

from fairseq.criterions import register_criterion

from fairseq_tn.criterions.pretraining import PretrainingCriterion, PretrainingCriterionConfig


@dataclass
class BertPretrainingCriterionConfig(PretrainingCriterionConfig):
    """The shared options with their defaults."""


@register_criterion("bert_pretraining", dataclass=BertPretrainingCriterionConfig)
class BertPretrainingCriterion(PretrainingCriterion):
    """MLM + NSP (Devlin et al., 2019); hard correction and soft regularisation by options."""
