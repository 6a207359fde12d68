"""Task ``teacher_student``: a frozen teacher without dropout, outside of model, optimiser and first batch."""

import pytest
import torch
from corpus import make_corpus
from fairseq.criterions import CRITERION_DATACLASS_REGISTRY
from fairseq.dataclass.configs import CheckpointConfig
from omegaconf import OmegaConf

import fairseq_tn

fairseq_tn.register()

from fairseq_tn.errors import UserError  # noqa: E402
from fairseq_tn.models.bert import TnBertConfig, TnBertModel  # noqa: E402
from fairseq_tn.tasks.teacher_student import TeacherStudentConfig, TeacherStudentTask  # noqa: E402

MODEL = {
    "_name": "tn_bert",
    "encoder_layers": 2,
    "encoder_embed_dim": 32,
    "encoder_attention_heads": 2,
    "max_positions": 48,
    "dropout": 0.5,
    "attention_dropout": 0.5,
}


@pytest.fixture
def task(tmp_path):
    """A task whose teacher was saved by a model with much dropout."""
    make_corpus(tmp_path / "data")
    config = OmegaConf.structured(
        TeacherStudentConfig(
            data=str(tmp_path / "data"),
            tokens_per_sample=48,
            teacher_checkpoint=str(tmp_path / "teacher.pt"),
            finetune_from_model=None,
        )
    )
    task = TeacherStudentTask.setup_task(config)
    torch.manual_seed(1)
    teacher = TnBertModel(TnBertConfig(**MODEL), task.source_dictionary)
    torch.save(
        {
            "args": None,
            "cfg": {
                "_name": None,
                "model": MODEL,
                "checkpoint": OmegaConf.to_container(OmegaConf.structured(CheckpointConfig())),
            },
            "model": teacher.state_dict(),
            "optimizer_history": [{"optimizer_name": "", "lr_scheduler_state": {}, "num_updates": 0}],
            "last_optimizer_state": None,
            "extra_state": {"train_iterator": {"epoch": 1}},
        },
        tmp_path / "teacher.pt",
    )
    task.saved_teacher = teacher.eval()
    return task


def tacl():
    config = OmegaConf.structured(CRITERION_DATACLASS_REGISTRY["tacl_contrastive"]())
    config._name = "tacl_contrastive"
    return config


def student_of(task) -> TnBertModel:
    torch.manual_seed(2)
    return task.build_model(OmegaConf.create(MODEL)).train()


def test_teacher_states_are_those_of_the_frozen_teacher_in_eval_mode(task):
    student = student_of(task)
    task.build_criterion(tacl())
    task.load_dataset("train")
    batch = task.dataset("train").collater([task.dataset("train")[n] for n in range(4)])
    before = set(batch)
    given = task.add_teacher_states(batch, student)
    assert set(batch) == before  # fairseq keeps the first batch of a run
    states = given["teacher_states"]
    with torch.no_grad():
        expected = task.saved_teacher(batch["source"], features_only=True)[0]
    torch.testing.assert_close(states, expected)
    assert not states.requires_grad
    assert torch.equal(states, task.add_teacher_states(batch, student)["teacher_states"])
    assert not any("teacher" in name for name, _ in student.named_modules())
    # in the precision of the student
    assert task.add_teacher_states(batch, student.half())["teacher_states"].dtype == torch.float16


def test_the_teacher_is_not_loaded_before_training_starts(task, tmp_path):
    (tmp_path / "teacher.pt").unlink()
    student_of(task)
    with pytest.raises(SystemExit, match="teacher"):
        task.build_criterion(tacl())


def test_a_teacher_with_too_few_positions_is_refused(task):
    """A student may be resized to more positions than the checkpoint has; its teacher is not."""
    task.cfg.tokens_per_sample = 49
    with pytest.raises(UserError, match=r"teacher\.pt has 48 positions, and --tokens-per-sample is 49"):
        task.build_criterion(tacl())


def test_an_empty_batch_stays_empty(task):
    """What a worker without data of its own gets."""
    assert task.add_teacher_states({}, student_of(task)) == {}
