"""The process that workers are forked from: it imports their modules once for all of them.

Importing this module turns a process into that one, so only the fork server of `pool` imports it.
"""

import signal

from cheetah.triage.workers.pool import end_with_parent

# The hub handles Ctrl-C.
signal.signal(signal.SIGINT, signal.SIG_IGN)
end_with_parent()

from cheetah.triage.content import analysis, unallocated  # noqa: E402, F401
from cheetah.triage.filesystem import volumes  # noqa: E402, F401
from cheetah.triage.listing import mft_preview, walk  # noqa: E402, F401
from cheetah.triage.reading import worker  # noqa: E402, F401
