"""TaCL and pre-training on true negatives for fairseq.

``import fairseq_tn`` is light: it does not import fairseq. The package registers its tasks, models and
criterions when fairseq is already loaded, which is the case under ``--user-dir``, and through
:func:`register`.
"""

import sys

__version__ = "0.1.0"


def register() -> None:
    """Register every task, model and criterion of this package with fairseq; repeated calls do nothing."""
    from fairseq_tn.registration import register_all

    register_all()


if "fairseq" in sys.modules:
    register()
