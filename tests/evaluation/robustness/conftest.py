"""The English model, each text parsed once."""

import pytest

from fairseq_tn.evaluation.robustness.language import parse


@pytest.fixture(scope="session")
def parsed():
    """A function that parses a text, each text once."""
    known: dict = {}

    def parsed_text(text: str):
        if text not in known:
            (known[text],) = parse([text])
        return known[text]

    return parsed_text
