"""`python -m cheetah.triage`."""

import sys

from cheetah import streams
from cheetah.triage.cli import main

if __name__ == "__main__":
    streams.guard()
    sys.exit(main())
