"""``fairseq-tn evaluate``, one file a kind of evaluation; see :mod:`fairseq_tn.cli.evaluate`."""
