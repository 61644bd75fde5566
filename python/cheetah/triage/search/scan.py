"""Searches keywords and YARA rules in one pass of one engine (yara-x).

Keywords become rules: each is found in any case, as UTF-8 and as UTF-16 (little-endian). Content larger than a window
is scanned in overlapping windows, so that matches across their borders are found, and only once.
"""

import collections
import collections.abc
import dataclasses
import os
import re
import time
import unicodedata
from typing import Any

import yara_x

from cheetah.triage.search import list_text

# A file up to this size is scanned as a whole, so that a rule's condition sees all of it.
WINDOW_BYTES = 32 << 20
# The overlap of two windows; longer matches may be missed across a border.
OVERLAP_BYTES = 64 << 10
# The bytes beside a word that decide whether it is a full word: a character of UTF-16. A window has them of the one before.
BESIDE_BYTES = 2
# Matches of one keyword or rule that are listed.
MATCHES_MAX = 1000
# Matches of one string of a rule in one window that its condition sees: it may count them, or ask for one at some place.
SEEN_MATCHES_MAX = 100_000
# For one window; slower rules are unsuitable for triage. Four of these between two reads are less than a worker's
# time-out.
TIMEOUT_S = 60
# For one file, or one range of unallocated space; what is left of it then is not searched, and the report says so.
FILE_S = 180.0
# Matches of one rule in one file that are kept with the strings that they are of.
STRING_MATCHES_MAX = 10_000
# Matches of all keywords in one window, at most: lists can be made so that each is found at each byte.
MATCHES_TOTAL_MAX = 2_000_000

KEYWORD_BYTES_MIN = 3
KEYWORD_CHARS_MAX = 256
KEYWORDS_MAX = 200_000
# The compiler's time grows more than proportionally beyond this many patterns.
_PATTERNS_A_RULE = 2000
_NAMESPACE = "cheetah keywords"
_FILE = "file "
"""What the namespace of the rules of a file begins with."""
_GLOBALS = ("filename", "filepath", "extension", "filetype", "owner")
# The external variables with a value here.
_NAMES_ASKED = re.compile(r"\b(?:filename|filepath|extension)\b")
_EXCERPT_BYTES = 32
_MATCH_BYTES = 256
"""The first bytes of a match of a string that are kept."""
# The blanks that `str.strip` removes.
_BLANKS = "".join(one for one in map(chr, range(0x3001)) if one.isspace())
_CONTROL = re.compile("[\\x00-\\x08\\x0e-\\x1f\\x7f-\\x9f]")


# Offset and length in bytes, and whether it is UTF-16.
Match = tuple[int, int, bool]


@dataclasses.dataclass(frozen=True)
class StringMatch:
    """A match of a string of a rule: its identifier, offset and length in bytes, its first bytes, and whether it is UTF-16."""

    string: str
    offset: int
    length: int
    content: bytes
    wide: bool


@dataclasses.dataclass
class Hit:
    """A keyword or a rule with its matches. `offsets` are in bytes and ascending; there are none if a rule's condition
    holds without its strings."""

    kind: str
    """"keyword" or "yara"."""
    rule: str
    about: str = ""
    """The rule's own description."""
    offsets: list[int] = dataclasses.field(default_factory=list)
    excerpts: list[str] = dataclasses.field(default_factory=list)
    more: bool = False
    """Whether there are more matches than were counted."""
    file: str = ""
    """The name of the file of the rule."""
    tags: tuple[str, ...] = ()
    matches: list[StringMatch] = dataclasses.field(default_factory=list)
    """The matches of the rule's strings, by offset, if the engine keeps them."""
    more_matches: bool = False
    """Whether there are more of these than are kept."""

    def detail(self, in_pieces: bool) -> str:
        """Returns how often and where, in a sentence."""
        said = [self.about] if self.about else []
        count = len(self.offsets)
        if count:
            where = ", ".join(f"{offset}" for offset in self.offsets[:8]) + (", …" if count > 8 else "")
            at_least = " or more" if self.more else ""
            said.append(f"1 match at byte {where}" if count == 1 else f"{count}{at_least} matches at bytes {where}")
        if self.kind == "yara" and in_pieces:
            said.append(f"the file is large: the rule was tried on pieces of {WINDOW_BYTES >> 20} MiB")
        return "; ".join(said)


class TooLong(Exception):
    """A scan exceeded TIMEOUT_S. `hits` are those found nevertheless, if `has_keywords` those of all keywords."""

    def __init__(self, sentence: str, hits: list[Hit], has_keywords: bool = False):
        super().__init__(sentence)
        self.hits = hits
        self.has_keywords = has_keywords


class Engine:
    """Compiled keywords and rules; one per process, since it does not pickle."""

    def __init__(
        self,
        keywords: collections.abc.Sequence[str],
        rules: collections.abc.Sequence[tuple[str, str]] = (),
        keeps_matches: bool = False,
    ):
        """Compiles. `rules` are pairs of a file's name and its text; `keeps_matches` says whether hits of rules have the matches of
        their strings. Raises ValueError that names the file that does not compile, and why."""
        self._keeps_matches = keeps_matches
        self._keywords = list(dict.fromkeys(keywords))
        # For each pattern: its keyword, and whether it is UTF-16; None if both.
        self._meant: list[tuple[int, bool | None]] = []
        compiler = yara_x.Compiler(includes_enabled=False)
        for name in _GLOBALS:
            compiler.define_global(name, "")
        for name, text in rules:
            compiler.new_namespace(f"{_FILE}{name}")
            try:
                compiler.add_source(text, origin=name)
            except yara_x.CompileError as error:
                raise ValueError(f"{name}: these YARA rules do not compile: {_colourless(str(error))}") from error
        compiler.new_namespace(_NAMESPACE)
        self.has_rules = bool(rules)
        """Whether there are more than keywords."""
        self.asks_for_names = any(_NAMES_ASKED.search(text) for _, text in rules)
        """Whether the result may depend on the file's name."""
        for source in self._keyword_rules():
            compiler.add_source(source)
        matches_max = SEEN_MATCHES_MAX if rules else MATCHES_MAX
        self._matches_max = max(1, min(matches_max, MATCHES_TOTAL_MAX // max(1, len(self._meant))))
        built = compiler.build()
        named = [(one.namespace, one.identifier) for one in built]
        self.rules = [(space.removeprefix(_FILE), rule) for space, rule in named if space != _NAMESPACE]
        """The rules: the name of the file of each, and its own."""
        self._scanner = _scanner(built, self._matches_max)
        self._keywords_only: Any = None

    def _keyword_rules(self) -> collections.abc.Iterator[str]:
        lines: list[str] = []
        for index, keyword in enumerate(self._keywords):
            for pattern, wide in _patterns(keyword):
                lines.append(f"$p{len(self._meant)} = {pattern}")
                self._meant.append((index, wide))
                if len(lines) == _PATTERNS_A_RULE:
                    yield _rule(len(self._meant), lines)
                    lines = []
        if lines:
            yield _rule(len(self._meant), lines)

    def name(self, path: str) -> None:
        """Sets the rules' variables `filename`, `filepath` and `extension` for the next file."""
        folder, _, name = path.rpartition("/")
        stem, dot, extension = name.rpartition(".")
        for variable, value in (
            ("filename", name),
            ("filepath", folder),
            ("extension", dot + extension if stem else ""),
        ):
            self._scanner.set_global(variable, value.encode("utf-8", "replace").decode("utf-8"))

    def scan(
        self, data: bytes, base: int = 0, accept: int | None = None, rules: bool = True, begin: int = 0
    ) -> list[Hit]:
        """Returns the hits in `data`, whose first byte is at `base`; those of keywords alone, without `rules`. Matches in `data` that
        begin before `begin` belong to the window before, and those at `accept` or later to the next one. Raises TooLong, with the hits of
        keywords alone, if it takes too long."""
        where = f"bytes {base + begin} to {base + len(data)}"
        try:
            return self._hits(self._scanner if rules else self._keywords_alone(), data, base, (begin, accept))
        except yara_x.TimeoutError as error:
            if not (self._keywords and self.has_rules and rules):
                raise TooLong(f"{where} were not searched: it took more than {TIMEOUT_S} s", []) from error
        try:
            hits = self._hits(self._keywords_alone(), data, base, (begin, accept))
        except yara_x.TimeoutError as error:
            raise TooLong(f"{where} were not searched: it took more than {TIMEOUT_S} s", []) from error
        raise TooLong(
            f"the YARA rules were not tried to the end on {where}, which took more than {TIMEOUT_S} s; "
            "keywords were searched for",
            hits,
            has_keywords=True,
        )

    def _keywords_alone(self) -> Any:
        """Returns a scanner without rules, for content on which these take too long."""
        if self._keywords_only is None:
            compiler = yara_x.Compiler(includes_enabled=False)
            compiler.new_namespace(_NAMESPACE)
            self._meant.clear()
            for source in self._keyword_rules():
                compiler.add_source(source)
            self._keywords_only = _scanner(compiler.build(), self._matches_max)
        return self._keywords_only

    def _hits(self, scanner: Any, data: bytes, base: int, own: tuple[int, int | None]) -> list[Hit]:
        """Returns the hits of one scanner, whose window owns the matches that begin in `own`."""
        matching = scanner.scan(data).matching_rules
        begin, accept = own[0], len(data) if own[1] is None else own[1]
        hits: dict[tuple[str, str], Hit] = {}
        found: dict[int, list[Match]] = {}
        for rule in matching:
            if rule.namespace == _NAMESPACE:
                for pattern in rule.patterns:
                    if pattern.matches:
                        index, wide = self._meant[int(pattern.identifier[2:])]
                        matches = [one for one in self._keyword_matches(index, wide, pattern) if one[0] >= begin]
                        found.setdefault(index, []).extend(matches)
                continue
            matches = [
                (match.offset, match.length, _looks_wide(data, match.offset, match.length))
                for pattern in rule.patterns
                for match in pattern.matches
            ]
            has_matches = bool(matches)
            matches = [match for match in matches if _is_decided(match[0], match[1], (begin, accept), len(data))]
            if has_matches and not matches:
                # The windows beside know what is beside them.
                continue
            file, tags = rule.namespace.removeprefix(_FILE), tuple(rule.tags)
            hit = Hit("yara", rule.identifier, _about(rule), file=file, tags=tags)
            if self._keeps_matches:
                self._keep_matches(hit, rule, data, base, (begin, accept))
            _fill(hit, matches, data, base, accept)
            if not hit.offsets and matches:
                # It is entirely in the next window, which may lack the context for the condition.
                _fill(hit, [min(matches)], data, base, len(data))
            hits["yara", f"{rule.namespace}:{rule.identifier}"] = hit
        for index, matches in found.items():
            hit = Hit("keyword", self._keywords[index])
            _fill(hit, matches, data, base, accept)
            hit.more |= len(matches) >= self._matches_max
            if hit.offsets:
                hits["keyword", hit.rule] = hit
        return [hits[key] for key in sorted(hits)]

    def _keep_matches(self, hit: Hit, rule: Any, data: bytes, base: int, own_range: tuple[int, int]) -> None:
        """Keeps the matches of the strings of a rule in a window."""
        found = [(pattern.identifier, match) for pattern in rule.patterns for match in pattern.matches]
        matches = sorted(
            (match.offset, identifier, match.length)
            for identifier, match in found
            if _is_decided(match.offset, match.length, own_range, len(data))
        )
        # If all are in the next window, that may lack the context for the condition.
        own = [match for match in matches if match[0] < own_range[1]] or matches[:1]
        hit.matches = [
            StringMatch(
                identifier,
                base + offset,
                length,
                data[offset : offset + min(length, _MATCH_BYTES)],
                _looks_wide(data, offset, length),
            )
            for offset, identifier, length in own[:STRING_MATCHES_MAX]
        ]
        is_cut = any(len(pattern.matches) >= self._matches_max for pattern in rule.patterns)
        hit.more_matches = is_cut or len(own) > STRING_MATCHES_MAX

    def _keyword_matches(self, index: int, wide: bool | None, pattern: Any) -> list[Match]:
        letters = len(self._keywords[index])
        return [
            (match.offset, match.length, match.length > letters if wide is None else wide) for match in pattern.matches
        ]


def _is_decided(offset: int, length: int, own: tuple[int, int], size: int) -> bool:
    """Returns whether the window that owns the matches that begin in `own` has all of its `size` bytes that decide about a match: the
    bytes beside it, too, which may make it a part of a longer word."""
    begin, accept = own
    return begin <= offset and (offset < accept or offset + length + BESIDE_BYTES <= size)


def _scanner(rules: Any, matches_max: int) -> Any:
    scanner = yara_x.Scanner(rules)
    scanner.max_matches_per_pattern(matches_max)
    scanner.set_timeout(TIMEOUT_S)
    return scanner


def _fill(hit: Hit, matches: list[Match], data: bytes, base: int, accept: int) -> None:
    """Fills in offsets and first excerpts; a match of two patterns counts once."""
    starts: list[int] = []
    for offset, length, wide in sorted({match for match in matches if match[0] < accept}):
        if len(starts) == MATCHES_MAX:
            break
        if not starts or starts[-1] != offset:
            starts.append(offset)
            hit.excerpts.append(excerpt(data, offset, length, wide))
    hit.offsets = [base + offset for offset in starts]
    hit.more = len(matches) >= MATCHES_MAX


class Stream:
    """Scans pieces in order. `hits` and `trouble` are complete after `finish`.

    Rules that took too long once are not tried on the rest, nor is anything searched after FILE_S, so that no content
    holds a run up for long, however it was made."""

    def __init__(self, engine: Engine, end: int | None = None):
        """Ignores matches that begin at `end` or later."""
        self._engine = engine
        self._end = end
        self._buffer = bytearray()
        self._base = 0
        self._before = b""
        """The last bytes before the buffer; none at the beginning, or after a gap."""
        # Rules of two files may have the same name.
        self._hits: dict[tuple[str, str, str], Hit] = {}
        self._rules = True
        self._spent_s = 0.0
        self.ended = False
        """Whether nothing of the rest is searched, which took too long."""
        self.in_pieces = False
        self.trouble: str | None = None

    def feed(self, piece: bytes, offset: int) -> None:
        """Scans the next bytes. No match crosses a gap before them."""
        if offset != self._base + len(self._buffer):
            self._flush()
            self._base, self._before = offset, b""
        self._buffer += piece
        while len(self._buffer) > WINDOW_BYTES + OVERLAP_BYTES:
            self.in_pieces = True
            self._window(WINDOW_BYTES + OVERLAP_BYTES, WINDOW_BYTES)

    def finish(self, is_empty: bool = False) -> list[Hit]:
        """Returns the hits, keywords first. Of what `is_empty`, nothing was fed, and conditions of rules may hold nevertheless."""
        self._flush()
        if is_empty and self._engine.has_rules:
            self._window(0, 0)
        return [self._hits[key] for key in sorted(self._hits)]

    def _flush(self) -> None:
        if self._buffer:
            length = len(self._buffer)
            self._window(length, length if self._end is None else max(0, min(length, self._end - self._base)))
            self._base += len(self._buffer)
            self._buffer.clear()

    def _window(self, length: int, accept: int) -> None:
        for hit in self._scan(length, accept):
            kept = self._hits.setdefault((hit.kind, hit.rule, hit.file), hit)
            if kept is not hit:
                known = set(kept.offsets)
                new = [place for place, offset in enumerate(hit.offsets) if offset not in known]
                room = MATCHES_MAX - len(kept.offsets)
                kept.offsets += [hit.offsets[place] for place in new[:room]]
                kept.excerpts += [hit.excerpts[place] for place in new[:room]]
                kept.more |= hit.more or len(new) > room
                _add_matches(kept, hit)
        self._base += accept
        self._before = (self._before + self._buffer[max(0, accept - BESIDE_BYTES) : accept])[-BESIDE_BYTES:]
        del self._buffer[:accept]

    def _scan(self, length: int, accept: int) -> list[Hit]:
        """Returns the hits in a window, as far as it is still to be searched."""
        if self.ended:
            return []
        if self._spent_s > FILE_S:
            self.ended = True
            self._say(f"nothing was searched from byte {self._base} on, since that had taken {FILE_S:.0f} s already")
            return []
        began_s = time.monotonic()
        try:
            begin = len(self._before)
            data = self._before + self._buffer[:length]
            return self._engine.scan(data, self._base - begin, begin + accept, self._rules, begin)
        except TooLong as error:
            self._rules = False
            self.ended = not error.has_keywords
            rest = "nor was what follows" if self.ended else "what follows was searched for keywords alone"
            self._say(f"{error}; {rest}")
            return error.hits
        finally:
            self._spent_s += time.monotonic() - began_s

    def _say(self, sentence: str) -> None:
        self.trouble = f"{self.trouble}; {sentence}" if self.trouble else sentence


def read_keywords(path: str) -> list[str]:
    """Reads keywords, one per line in UTF-8, or in the encoding of the byte order mark, without blank lines and
    surrounding blanks. Raises ValueError that names the file and the invalid line."""
    keywords = []
    with list_text.open_list(path) as file:
        for number, line in enumerate(file, 1):
            try:
                # Lists that were joined have a mark in the middle.
                keyword = line.decode("utf-8").strip("\ufeff" + _BLANKS)
            except UnicodeDecodeError as error:
                raise ValueError(f"{path}, line {number}: this is not UTF-8. Save the list as UTF-8.") from error
            if not keyword:
                continue
            if odd := _CONTROL.search(keyword):
                raise ValueError(
                    f"{path}, line {number}: this has the control character U+{ord(odd[0]):04X}. Save the list as plain "
                    "text in UTF-8."
                )
            if len(keyword.encode()) < KEYWORD_BYTES_MIN:
                raise ValueError(f"{path}, line {number}: “{keyword}” is too short; it would be found everywhere.")
            if len(keyword) > KEYWORD_CHARS_MAX:
                raise ValueError(f"{path}, line {number}: a keyword has at most {KEYWORD_CHARS_MAX} characters.")
            keywords.append(keyword)
            if len(keywords) > KEYWORDS_MAX:
                raise ValueError(f"{path}: more than {KEYWORDS_MAX} keywords; use fewer, or several runs.")
    return keywords


def read_rules(rule_files: collections.abc.Iterable[str]) -> list[tuple[str, str]]:
    """Reads files with rules, and returns the name and the text of each. The name is the path if another file has the same one. Bytes that
    are not UTF-8 become escapes, which in a string mean these bytes. Raises OSError if one cannot be read."""
    paths = list(rule_files)
    names = collections.Counter(os.path.basename(path) for path in paths)
    rules = []
    for path in paths:
        name = os.path.basename(path)
        with open(path, encoding="utf-8-sig", errors="backslashreplace") as file:
            text = file.read()
        name = name if names[name] == 1 else path
        rules.append((name.encode("utf-8", "replace").decode("utf-8"), text))
    return rules


def load(keyword_files: collections.abc.Iterable[str], rule_files: collections.abc.Iterable[str]) -> Engine | None:
    """Returns an engine with all keywords and rules, or None without any. Raises ValueError or OSError for an invalid
    file."""
    keywords = [keyword for path in keyword_files for keyword in read_keywords(path)]
    rules = read_rules(rule_files)
    return Engine(keywords, rules) if keywords or rules else None


def _add_matches(kept: Hit, hit: Hit) -> None:
    """Adds the matches of a rule's strings in the next window."""
    if hit.matches:
        known = set(kept.matches)
        new = [match for match in hit.matches if match not in known]
        room = STRING_MATCHES_MAX - len(kept.matches)
        kept.matches += new[:room]
        kept.more_matches |= hit.more_matches or len(new) > room


def _looks_wide(data: bytes, offset: int, length: int) -> bool:
    return length >= 4 and not any(data[offset + 1 : offset + min(length, 64) : 2])


def excerpt(data: bytes, offset: int, length: int, wide: bool) -> str:
    """Returns the match (UTF-16 if `wide`) with a little context, on one line; unprintable characters become middle
    dots."""
    length = min(length, 4 * _EXCERPT_BYTES)
    if wide:
        text = _wide_around(data, offset, length).decode("utf-16-le", "replace")
    else:
        start, end = max(0, offset - _EXCERPT_BYTES), offset + length + _EXCERPT_BYTES
        text = data[start:end].decode("utf-8", "replace")
    shown = "".join(character if character.isprintable() and character != "\ufffd" else "·" for character in text)
    return re.sub("·+", "·", shown)


def _wide_around(data: bytes, offset: int, length: int) -> bytes:
    """Returns the match with adjacent characters, as far as they are two bytes each as well."""
    start, end = offset, offset + length
    while start >= 2 and offset - start < 2 * _EXCERPT_BYTES and data[start - 1] == 0 and data[start - 2] >= 0x20:
        start -= 2
    while (
        end + 1 < len(data) and end - offset - length < 2 * _EXCERPT_BYTES and data[end + 1] == 0 and data[end] >= 0x20
    ):
        end += 2
    return data[start:end]


def _rule(number: int, patterns: list[str]) -> str:
    return f"rule k{number} {{ strings:\n" + "\n".join(patterns) + "\ncondition: any of them }"


def _patterns(keyword: str) -> list[tuple[str, bool | None]]:
    """Returns the keyword's YARA patterns, and whether each is UTF-16; None for one that is both. YARA's "wide" and
    "nocase" know ASCII only; other letters are spelt out."""
    if keyword.isascii():
        quoted = "".join(
            character if character.isalnum() or character == " " else f"\\x{ord(character):02x}"
            for character in keyword
        )
        return [(f'"{quoted}" ascii wide nocase', None)]
    forms = dict.fromkeys(unicodedata.normalize(form, keyword) for form in ("NFC", "NFD"))
    return [(f"/{_regex(form, code)}/", code != "utf-8") for form in forms for code in ("utf-8", "utf-16-le")]


def _regex(keyword: str, encoding: str) -> str:
    spelt = []
    for character in keyword:
        forms = sorted({one.encode(encoding) for one in (character, character.lower(), character.upper())})
        forms_hex = ["".join(f"\\x{byte:02x}" for byte in form) for form in forms]
        spelt.append(forms_hex[0] if len(forms_hex) == 1 else f"({'|'.join(forms_hex)})")
    return "".join(spelt)


def _about(rule: Any) -> str:
    for name, value in rule.metadata:
        if name.lower() in ("description", "desc"):
            return str(value)
    return ""


def _colourless(text: str) -> str:
    return re.sub(r"\x1b\[[0-9;]*m", "", text).strip()
