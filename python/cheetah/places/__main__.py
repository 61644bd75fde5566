"""Lists the files of a source, which is read through standard input and output, with their runs; or tries YARA rules on them."""

import json
import os
import signal
import sys
from typing import Any

from cheetah.places import listing
from cheetah.places.pipe import Pipe
from cheetah.triage.workers.pool import end_with_parent


def main() -> None:
    """Takes the order, and says what is found."""
    end_with_parent()
    # The program that started this one handles Ctrl-C.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # What a library prints must not come between the messages.
    said = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    order: dict[str, Any] = json.loads(sys.stdin.buffer.readline())
    pipe = Pipe(sys.stdin.buffer, said, order.get("size", 0), order.get("sector_size"))
    if "split" in order or order.get("rules") is not None:
        # The packages for rules are not needed otherwise.
        from cheetah.places import rules

        rules.say_all(pipe, order)
    else:
        listing.say_all(pipe, order)
    # Nothing is left to clean up, and The Sleuth Kit takes a while for it.
    os._exit(0)


if __name__ == "__main__":
    main()
