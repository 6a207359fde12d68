"""What this package adds to fairseq's optimisers."""
