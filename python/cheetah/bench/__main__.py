"""`python -m cheetah.bench`."""

import sys

from cheetah import streams
from cheetah.bench.cli import main

if __name__ == "__main__":
    streams.guard()
    sys.exit(main())
