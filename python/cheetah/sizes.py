"""Parsing of sizes."""

from cheetah import _native


def parse(text: str) -> int:
    """Returns the bytes of a size, as the whole command line takes it: "64KiB", "1.5G", "12GB". K, M, G and T are binary,
    KB, MB, GB and TB decimal. Raises ValueError, whose text is a sentence, for anything else."""
    return _native.parse_size(text)
