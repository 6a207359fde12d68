"""The runner of examples/reproduce: ``scripts/reproduce.sh`` sets up the environment and calls it."""
