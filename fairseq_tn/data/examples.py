"""Which examples a data set consists of."""

import hashlib
from collections.abc import Iterable


def digest_of_examples(examples: Iterable[str]) -> str:
    """A digest of the examples in their order; each is text that holds its input (or its id) and its right answer."""
    digest = hashlib.sha256()
    for example in examples:
        text = example.encode("utf-8", errors="surrogatepass")
        digest.update(len(text).to_bytes(8, "big") + text)
    return digest.hexdigest()[:32]
