#!/usr/bin/env python3
"""Scans a file with YARA-X on one thread, and prints the number of matches: `yara_count.py RULES FILE`. It runs in a process of its
own, whose start, rules and scan are measured as those of every other program are."""

from __future__ import annotations

import sys

import yara_x

MATCHES_MAX = 10_000_000
TIMEOUT_S = 3600


def main() -> int:
    """Entry point."""
    rules, path = sys.argv[1:]
    with open(rules, encoding="utf-8") as file:
        scanner = yara_x.Scanner(yara_x.compile(file.read()))
    scanner.max_matches_per_pattern(MATCHES_MAX)
    scanner.set_timeout(TIMEOUT_S)
    found = scanner.scan_file(path)
    print(sum(len(pattern.matches) for rule in found.matching_rules for pattern in rule.patterns))
    return 0


if __name__ == "__main__":
    sys.exit(main())
