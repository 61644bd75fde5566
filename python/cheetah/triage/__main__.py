"""`python -m cheetah.triage`."""

import os
import sys

from cheetah import streams
from cheetah.triage.cli import main

if __name__ == "__main__":
    # Results and caches are evidence: their owner's alone, whatever the umask of the shell is.
    os.umask(0o077)
    # NumPy's library for matrices, which triage does not use, would start a thread for each processor in each process.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    streams.guard()
    sys.exit(main())
