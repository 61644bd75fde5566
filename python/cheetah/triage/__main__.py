"""`python -m cheetah.triage`."""

import sys

from cheetah.triage.cli import main

if __name__ == "__main__":
    sys.exit(main())
