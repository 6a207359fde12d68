"""``python -m fairseq_tn`` is ``fairseq-tn``."""

import sys

from fairseq_tn.cli import main

sys.exit(main())
