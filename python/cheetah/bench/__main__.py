"""`python -m cheetah.bench`."""

import sys

from cheetah.bench.cli import main

if __name__ == "__main__":
    sys.exit(main())
