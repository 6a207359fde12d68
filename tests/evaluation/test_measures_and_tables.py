import math

from fairseq_tn.evaluation.measures import MEASURES, best, present, value_of
from fairseq_tn.evaluation.tables import examples_text, scores_text

BY_KEY = {measure.key: measure for measure in MEASURES}


def test_best_follows_the_direction():
    models = {"a": {"mlm_loss": 3.0, "mlm_acc": 30.0}, "b": {"mlm_loss": 2.0, "mlm_acc": 20.0}, "c": {}}
    assert best(models, BY_KEY["mlm_loss"]) == {"b"}
    assert best(models, BY_KEY["mlm_acc"]) == {"a"}


def test_what_prints_alike_is_marked_alike():
    models = {"a": {"mlm_acc": 30.001}, "b": {"mlm_acc": 30.004}, "c": {"mlm_acc": 29.0}}
    assert best(models, BY_KEY["mlm_acc"]) == {"a", "b"}
    del models["c"]
    assert best(models, BY_KEY["mlm_acc"]) == set()


def test_no_best_where_no_direction_is_good():
    assert best({"a": {"hc_pred": 1.0}, "b": {"hc_pred": 2.0}}, BY_KEY["hc_pred"]) == set()


def test_values_that_are_not_there():
    assert value_of({"self_similarity": [0.1, 0.4]}, BY_KEY["self_similarity"]) == 0.4
    assert value_of({"self_similarity": []}, BY_KEY["self_similarity"]) is None
    assert value_of({"mlm_loss": math.nan}, BY_KEY["mlm_loss"]) is None
    assert value_of({"mlm_loss": 0}, BY_KEY["mlm_loss"]) == 0
    assert [m.key for m in present({"a": {"mlm_loss": None}, "b": {"nsp_acc": 50.0}})] == ["nsp_acc"]


def test_the_table_is_aligned():
    text = scores_text({"a": {"mlm_loss": 3.0, "hc_pred": 10.0}, "longer": {"mlm_loss": 12.25}})
    assert text.splitlines() == [
        "model   MLM loss (bits)  HC predictions (%)",
        "a                3.000*              10.00",
        "longer          12.250                   –",
    ]


def test_examples_show_the_change_in_its_place():
    change = {"before": "he", "gold": "began", "predicted": "started", "probability": 0.4, "after": "to run"}
    text = examples_text({"a": [change], "b": []})
    assert text == "a:\n  he [began -> started, 0.40] to run\nb: none"
