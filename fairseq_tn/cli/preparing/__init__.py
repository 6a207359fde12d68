"""``fairseq-tn prepare``, one file a kind of data; see :mod:`fairseq_tn.cli.prepare`."""
