"""`python -m cheetah.run`."""

import os
import sys

from cheetah import streams
from cheetah.run.cli import main

if __name__ == "__main__":
    # Results are evidence: their owner's alone, whatever the umask of the shell is.
    os.umask(0o077)
    streams.guard()
    sys.exit(main())
