"""Print the folder to give to ``--user-dir``."""

import argparse
from pathlib import Path

import fairseq_tn


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """No options."""


def run(args: argparse.Namespace) -> None:
    print(Path(fairseq_tn.__file__).parent)
