"""TaCL's switches: the loss of the paper's script and of the paper's equation, each restated over whole matrices."""

import pytest
import torch
from fairseq.data import Dictionary
from omegaconf import OmegaConf

import fairseq_tn
from fairseq_tn.criterions.tacl_contrastive import TaclContrastiveConfig, TaclContrastiveCriterion
from fairseq_tn.models.bert import TnBertConfig, TnBertModel
from fairseq_tn.tasks.teacher_student import TeacherStudentConfig, TeacherStudentTask

fairseq_tn.register()

PAD = 1
LENGTHS = (12, 7, 10)


@pytest.fixture
def dictionary() -> Dictionary:
    dictionary = Dictionary()
    for n in range(30):
        dictionary.add_symbol(f"w{n}")
    return dictionary


@pytest.fixture
def task(dictionary) -> TeacherStudentTask:
    cfg = TeacherStudentConfig(data="unused", tokens_per_sample=16, no_nsp=True)
    return TeacherStudentTask(OmegaConf.structured(cfg), dictionary)


def make_model(task, seed: int, dropout: float = 0.0) -> TnBertModel:
    torch.manual_seed(seed)
    cfg = TnBertConfig(
        encoder_layers=2,
        encoder_embed_dim=16,
        encoder_attention_heads=2,
        dropout=dropout,
        attention_dropout=0.0,
    )
    model = TnBertModel.build_model(cfg, task).double()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.4)
    return model


def make_batch(task) -> dict:
    torch.manual_seed(3)
    source = torch.randint(4, 30, (len(LENGTHS), max(LENGTHS)))
    for row, length in enumerate(LENGTHS):
        source[row, length:] = PAD
        source[row, 0], source[row, length - 1] = 0, 2
    masked = (torch.rand(source.shape) < 0.4) & (source > 3)
    selected = masked.reshape(-1).nonzero().squeeze(1)
    return {
        "net_input": {"src_tokens": source.masked_fill(masked, task.masker.mask_index)},
        "source": source,
        "target": source.masked_fill(~masked, PAD),
        "selected": selected,
        "max_selected": int(masked.sum(1).max()),
        "ntokens": sum(LENGTHS),
        "nsentences": len(LENGTHS),
    }


def scores(student, teacher, similarity: str, temperature: float):
    """All T x T scores of each sequence."""
    if similarity == "dot":
        return torch.einsum("bid,bjd->bij", student, teacher)
    norms = student.norm(dim=2)[:, :, None] * teacher.norm(dim=2)[:, None, :]
    return torch.einsum("bid,bjd->bij", student, teacher) / norms / temperature


def script_loss(student, teacher, masked, similarity, temperature):
    """The published script: padding is part of the softmax; the mean over all masked positions of the batch."""
    own = torch.diagonal(scores(student, teacher, similarity, temperature).log_softmax(2), dim1=1, dim2=2)
    return -(own * masked).sum() / masked.sum()


def equation_loss(student, teacher, masked, real, temperature):
    """Eq. 1 as printed: for each sequence the sum over its masked positions; averaged over sequences."""
    total = 0.0
    for row, length in enumerate(LENGTHS):
        assert int(real[row].sum()) == length
        matrix = scores(
            student[row : row + 1, :length], teacher[row : row + 1, :length], "cosine", temperature
        )
        own = torch.diagonal(matrix[0].log_softmax(1))
        total = total - own[masked[row, :length]].sum()
    return total / len(LENGTHS)


def loss_of(task, model, batch, **options):
    cfg = TaclContrastiveConfig(mlm_weight=0.0, nsp_weight=0.0, **options)
    criterion = TaclContrastiveCriterion(OmegaConf.structured(cfg), task)
    loss, sample_size, _ = criterion(model, batch)
    return loss / sample_size


def set_up(task):
    model, teacher, batch = make_model(task, 1), make_model(task, 2), make_batch(task)
    states = model(batch["net_input"]["src_tokens"], features_only=True)[0]
    batch["teacher_states"] = teacher.encoder(batch["source"])[0].detach()
    return model, batch, states, batch["target"].ne(PAD)


@pytest.mark.parametrize(("similarity", "temperature"), [("cosine", 0.01), ("cosine", 0.3), ("dot", 0.01)])
def test_the_script_s_loss(task, similarity, temperature):
    model, batch, states, masked = set_up(task)
    options = {"similarity": similarity, "temperature": temperature, "tacl_padding": True}
    actual = loss_of(task, model, batch, **options)
    expected = script_loss(states, batch["teacher_states"], masked, similarity, temperature)
    torch.testing.assert_close(actual, expected, rtol=1e-9, atol=0)
    gradients = [torch.autograd.grad(x, model.encoder.embed_tokens.weight)[0] for x in (actual, expected)]
    torch.testing.assert_close(*gradients, rtol=1e-7, atol=1e-10)
    # padding matters here, so leaving it out is another number
    without = loss_of(task, model, batch, **options | {"tacl_padding": False})
    assert without < actual * (1 - 1e-6)


def test_the_equation_s_sum(task):
    model, batch, states, masked = set_up(task)
    actual = loss_of(task, model, batch, tacl_reduction="sum", temperature=0.1)
    expected = equation_loss(states, batch["teacher_states"], masked, batch["source"].ne(PAD), 0.1)
    torch.testing.assert_close(actual, expected, rtol=1e-9, atol=0)


def test_teacher_dropout_is_on_only_when_asked_for_and_only_in_training(task):
    student, batch = make_model(task, 1), make_batch(task)
    task._teacher = make_model(task, 2, dropout=0.5)

    def differs() -> bool:
        first, second = (task.add_teacher_states(batch, student)["teacher_states"] for _ in range(2))
        return not torch.equal(first, second)

    student.train()
    assert not differs()
    task.cfg.teacher_dropout = True
    assert differs()
    student.eval()
    assert not differs()
