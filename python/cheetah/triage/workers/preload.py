"""The process that worker processes are forked from: it has imported what they need, once for all of them.

Importing this module makes a process that one, so the fork server of `pool` imports it and nobody else does.
"""

import signal

from cheetah.triage.workers.pool import end_with_parent

# Ctrl-C is the hub's matter.
signal.signal(signal.SIGINT, signal.SIG_IGN)
end_with_parent()

from cheetah.triage.content import analysis, unallocated  # noqa: E402, F401
from cheetah.triage.filesystem import volumes  # noqa: E402, F401
from cheetah.triage.listing import mft_preview, walk  # noqa: E402, F401
from cheetah.triage.workers import worker  # noqa: E402, F401
