"""Puts the parent of the benchmark's package, and the helpers of the package's tests, on the path."""

from __future__ import annotations

import os
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
sys.path[:0] = [os.path.join(ROOT, "workshop"), os.path.join(ROOT, "python/tests")]
