"""Task ``teacher_student``: the data of ``bert_pretraining`` and a frozen teacher that reads the original text."""

import logging
from dataclasses import dataclass, field
from typing import Any, Optional

import torch
from fairseq.optim.amp_optimizer import AMPOptimizer
from fairseq.tasks import register_task
from torch import nn

from fairseq_tn.errors import UserError
from fairseq_tn.models.access import encode, state_width
from fairseq_tn.models.loading import build_from_checkpoint, read_checkpoint
from fairseq_tn.tasks.bert_pretraining import BertPretrainingConfig, BertPretrainingTask

logger = logging.getLogger(__name__)


@dataclass
class TeacherStudentConfig(BertPretrainingConfig):
    """Options of ``bert_pretraining`` and the teacher."""

    teacher_checkpoint: Optional[str] = field(
        default=None,
        metadata={"help": "checkpoint of the frozen teacher (default: the file of --finetune-from-model)"},
    )
    teacher_dropout: bool = field(
        default=False,
        metadata={"help": "keep the teacher's dropout on while the student trains, as in TaCL's script"},
    )


@register_task("teacher_student", dataclass=TeacherStudentConfig)
class TeacherStudentTask(BertPretrainingTask):
    """Adds ``teacher_states`` (B x T x D) to each batch.

    The teacher is loaded when training starts and not when a checkpoint of this task is opened for something
    else. It belongs to the task, not to the model: it is in no checkpoint, no optimiser and no DDP wrapper.
    """

    cfg: TeacherStudentConfig
    _teacher: nn.Module | None = None

    def build_criterion(self, cfg: Any, *args: Any, **kwargs: Any) -> Any:
        """fairseq calls this when it trains or validates: the time to load the teacher and to refuse a wrong one."""
        if self._teacher is None:
            self._teacher = self._load_teacher()
        if self._model is not None:
            teacher, student = state_width(self._teacher), state_width(self._model)
            if teacher != student:
                raise UserError(
                    f"the teacher {self._teacher_path} is {teacher} wide and the student {student}; "
                    "give a teacher of the same --encoder-embed-dim"
                )
        teacher_model: Any = self._teacher
        positions = teacher_model.max_positions()
        if isinstance(positions, int) and positions < self.cfg.tokens_per_sample:
            raise UserError(
                f"the teacher {self._teacher_path} has {positions} positions, and --tokens-per-sample is "
                f"{self.cfg.tokens_per_sample}; lower it, or give a teacher with more (--resize-positions is for "
                "the student only)"
            )
        return super().build_criterion(cfg, *args, **kwargs)

    @property
    def _teacher_path(self) -> str:
        path = self.cfg.teacher_checkpoint or self.cfg.finetune_from_model
        if not path:
            raise UserError(
                "the task teacher_student needs a teacher: give --teacher-checkpoint FILE, or "
                "--finetune-from-model FILE, which then is the teacher too"
            )
        return path

    def _load_teacher(self) -> nn.Module:
        path = self._teacher_path
        option = "--teacher-checkpoint" if self.cfg.teacher_checkpoint else "--finetune-from-model"
        state = read_checkpoint(path, option)
        teacher = build_from_checkpoint(state, self.source_dictionary, path, "the teacher")
        logger.info("teacher: %s", path)
        return teacher.requires_grad_(False)

    def add_teacher_states(self, sample: dict[str, Any], model: nn.Module) -> dict[str, Any]:
        """A shallow copy of ``sample`` with the teacher's states of the original tokens.

        The teacher follows the student's device and precision. The copy matters: fairseq keeps the first batch
        of a run for later.
        """
        if not sample:  # a worker without data of its own
            return sample
        assert self._teacher is not None, "build_criterion loads the teacher"
        like = next(model.parameters())
        teacher = self._teacher.to(device=like.device, dtype=like.dtype)
        teacher.train(self.cfg.teacher_dropout and model.training)
        with torch.no_grad():
            return {**sample, "teacher_states": encode(teacher, sample["source"])}

    def train_step(
        self,
        sample: Any,
        model: Any,
        criterion: Any,
        optimizer: Any,
        update_num: int,
        ignore_grad: bool = False,
    ) -> Any:
        """fairseq's step on the batch with teacher states, made under the same autocast."""
        with torch.autocast("cuda", enabled=isinstance(optimizer, AMPOptimizer)):
            sample = self.add_teacher_states(sample, model)
        return super().train_step(sample, model, criterion, optimizer, update_num, ignore_grad)

    def valid_step(self, sample: Any, model: Any, criterion: Any) -> Any:
        """fairseq's step on the batch with teacher states."""
        return super().valid_step(self.add_teacher_states(sample, model), model, criterion)
