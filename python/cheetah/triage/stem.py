"""The process that worker processes are forked from: it has imported what they need, once for all of them.

Importing this module makes a process that one, so the fork server of `pool` imports it and nobody else does.
"""

import signal

from cheetah.triage.pool import end_with_parent

# Ctrl-C is the hub's matter.
signal.signal(signal.SIGINT, signal.SIG_IGN)
end_with_parent()

from cheetah.triage import content, glimpse, unallocated, volumes, walk, worker  # noqa: E402, F401
