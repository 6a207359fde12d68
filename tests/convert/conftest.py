"""Fixtures of the tests of conversion."""

import logging

import pytest
from small_bert import write_bert

import fairseq_tn

fairseq_tn.register()


@pytest.fixture
def hf_folder(tmp_path):
    """A BertForPreTraining with shuffled ids."""
    write_bert(tmp_path / "original", shuffle=3)
    return tmp_path / "original"


@pytest.fixture
def transformers_messages():
    """What transformers logs from here on, at the level it shows to users."""
    messages = []

    class Keep(logging.Handler):
        def emit(self, record):
            messages.append(record.getMessage())

    handler = Keep(level=logging.WARNING)
    logger = logging.getLogger("transformers")
    logger.addHandler(handler)
    yield messages
    logger.removeHandler(handler)
