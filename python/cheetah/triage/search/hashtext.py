"""Parses hashes from text: one per line, as `md5sum` prints them, or tables such as the NSRL's.

numpy parses a few megabytes at a time; a line that does not fit is parsed again alone before it becomes an error.
"""

import collections.abc
import csv
import io
import os
import re

import numpy as np
import numpy.typing as npt

from cheetah.triage.search import list_text
from cheetah.triage.search.fault import Kind, ListFault

Hashes = npt.NDArray[np.uint8]
Progress = collections.abc.Callable[[int, int], None]

_CHUNK_BYTES = 4 << 20
_LINE_BYTES_MAX = 1 << 20
_DIGITS = (32, 40, 64)
# The strongest first: of a table with several columns of hashes one is used.
_COLUMNS = (("sha256", 64), ("sha-256", 64), ("sha1", 40), ("sha-1", 40), ("md5", 32))
_CSV_ROWS = 100_000

_NIBBLES = np.full(256, 255, dtype=np.uint8)
_NIBBLES[ord("0") : ord("9") + 1] = np.arange(10)
_NIBBLES[ord("a") : ord("f") + 1] = np.arange(10, 16)
_NIBBLES[ord("A") : ord("F") + 1] = np.arange(10, 16)

# The output of `md5sum --tag` and BSD tools, and lines that md5sum begins with a backslash.
_TAGGED = re.compile(rb"(?:MD5|SHA1|SHA256) \(.*\) ?= ?([0-9a-fA-F]+)\s*$")
_ODD = re.compile(rb"\s*\\?([0-9a-fA-F]{32,64})(?=[\s,;:*|]|$)")
_BLANK = re.compile(rb"\s*(?:[#;%].*)?$", re.DOTALL)
# The first lines of an index of hfind, which give its type and name.
_INDEX_HEAD = re.compile(rb"0{40}[01]\|")


def read(path: str, progress: Progress) -> collections.abc.Iterator[Hashes]:
    """Yields the hashes of a list in blocks, a row of 16, 20 or 32 bytes each, all of one length. Raises ListFault
    that names the file and line at fault."""
    table = _table(path)
    if table is None:
        yield from _lines(path, progress, 0, None)
        return
    column, digits, delimiter, skip = table
    if column == 0 and delimiter == ",":
        yield from _lines(path, progress, skip, digits)
    else:
        yield from _rows(path, progress, column, digits, skip)


def _table(path: str) -> tuple[int, int, str, int] | None:
    """If the file begins with column names, returns the column, its digits, the delimiter, and the lines to skip."""
    with list_text.open_list(path) as file:
        for number in range(16):
            line = file.readline(_LINE_BYTES_MAX).decode("latin-1").lstrip("\xef\xbb\xbf").strip()
            # hashdeep has its columns in the second line: "%%%% size,md5,sha256,filename".
            names = [name.strip().lower() for name in next(csv.reader([line.removeprefix("%%%% ")]), [])]
            for wanted, digits in _COLUMNS:
                if wanted in names and (len(names) > 1 or not _ODD.match(line.encode("latin-1"))):
                    return names.index(wanted), digits, ",", number + 1
            if not _BLANK.match(line.encode("latin-1")):
                return None
    return None


def _lines(path: str, progress: Progress, skip: int, digits: int | None) -> collections.abc.Iterator[Hashes]:
    """Yields hashes at the beginning of lines, perhaps after a quotation mark."""
    total = os.path.getsize(path)
    with list_text.open_list(path) as file:
        number, done, rest = 0, 0, b""
        for _ in range(skip):
            done += len(file.readline(_LINE_BYTES_MAX))
            number += 1
        while True:
            piece = file.read(_CHUNK_BYTES)
            done += len(piece)
            chunk = rest + piece
            end = chunk.rfind(b"\n") + 1 if piece else len(chunk)
            chunk, rest = chunk[:end], chunk[end:]
            if len(rest) > _LINE_BYTES_MAX:
                sentence = f"this line has more than {_LINE_BYTES_MAX} bytes."
                raise ListFault(Kind.LONG_LINE, path, sentence, number + chunk.count(10) + 1)
            if chunk:
                hashes, lines, digits = _chunk(path, chunk, number, digits)
                number += lines
                if len(hashes):
                    yield hashes
            progress(done, total)
            if not piece:
                return


def _chunk(path: str, chunk: bytes, number: int, digits: int | None) -> tuple[Hashes, int, int | None]:
    """Parses whole lines, `number` lines into the file. Returns the hashes, the number of lines, and the digits per
    hash, which the first hash determines."""
    characters = np.frombuffer(chunk + b"\n" * 72, dtype=np.uint8)
    ends = np.flatnonzero(characters[: len(chunk)] == 10)
    starts = np.concatenate(([0], ends + 1))
    lines = len(ends)
    if starts[-1] < len(chunk):
        lines += 1
    starts = starts[:lines]
    if digits is None:
        digits = _first_digits(path, chunk, number)
        if digits is None:
            return np.empty((0, 16), np.uint8), lines, None
    starts = starts + (characters[starts] == ord('"'))
    nibbles = _NIBBLES[characters[starts[:, None] + np.arange(digits + 1)]]
    # A hash of this length has exactly as many digits, then something else.
    good = (nibbles[:, :digits] < 16).all(axis=1) & (nibbles[:, digits] == 255)
    after = characters[starts + digits]
    good &= np.isin(after, np.frombuffer(b' \t\r\n,;:*|"', dtype=np.uint8))
    kept = nibbles[:, :digits] if good.all() else nibbles[good, :digits]
    hashes = kept[:, 0::2] << 4 | kept[:, 1::2]
    odd = [
        bytes.fromhex(found.decode())
        for place in np.flatnonzero(~good).tolist()
        if (found := _odd(path, _line(chunk, int(starts[place])), number + place + 1, digits)) is not None
    ]
    if odd:
        hashes = np.concatenate((hashes, np.frombuffer(b"".join(odd), dtype=np.uint8).reshape(-1, digits // 2)))
    return hashes, lines, digits


def _line(chunk: bytes, start: int) -> bytes:
    end = chunk.find(b"\n", start)
    return chunk[start : end if end >= 0 else len(chunk)]


def _first_digits(path: str, chunk: bytes, number: int) -> int | None:
    for place, line in enumerate(chunk.split(b"\n"), 1):
        found = _odd(path, line.lstrip(b'"').rstrip(b"\r"), number + place, None)
        if found is not None:
            return len(found)
    return None


def _odd(path: str, line: bytes, number: int, digits: int | None) -> bytes | None:
    """Returns the digits of the hash in an unusual line, or None for a line without one."""
    line = line.removeprefix(b"\xef\xbb\xbf")
    if _BLANK.match(line) or _INDEX_HEAD.match(line):
        return None
    match = _TAGGED.match(line) or _ODD.match(line.replace(b'"', b" "))
    found = match.group(1) if match else b""
    if len(found) not in _DIGITS:
        shown = line[:80].decode("utf-8", "replace")
        sentence = f"“{shown}” does not begin with an MD5, SHA-1 or SHA-256 in hexadecimal digits."
        raise ListFault(Kind.NO_HASH, path, sentence, number)
    if digits is not None and len(found) != digits:
        sentence = f"a hash of {len(found)} digits in a list of hashes of {digits} digits. Make it two lists."
        raise ListFault(Kind.OTHER_LENGTH, path, sentence, number)
    return found


def _rows(path: str, progress: Progress, column: int, digits: int, skip: int) -> collections.abc.Iterator[Hashes]:
    """Yields hashes of a column other than the first; slower, since earlier columns may be quoted."""
    total = os.path.getsize(path)
    with io.TextIOWrapper(list_text.open_list(path), encoding="latin-1", newline="") as file:
        done = sum(len(file.readline()) for _ in range(skip))

        def counted() -> collections.abc.Iterator[str]:
            nonlocal done
            for line in file:
                done += len(line)
                yield line

        kept: list[tuple[int, str]] = []
        reader = csv.reader(counted())
        for row in reader:
            if not row or row[0].startswith("#"):
                continue
            found = row[column].strip() if column < len(row) else ""
            if len(found) != digits:
                kind = Kind.OTHER_LENGTH if len(found) in _DIGITS else Kind.NO_HASH
                sentence = f"column {column + 1} should be a hash of {digits} digits."
                raise ListFault(kind, path, sentence, reader.line_num + skip)
            kept.append((reader.line_num + skip, found))
            if len(kept) == _CSV_ROWS:
                yield _of_hex(path, kept, digits)
                kept = []
                progress(done, total)
        if kept:
            yield _of_hex(path, kept, digits)
        progress(total, total)


def _of_hex(path: str, kept: list[tuple[int, str]], digits: int) -> Hashes:
    """Returns the hashes of lines, each with its number."""
    # Other characters are no digits, and stay one byte each.
    text = "".join(found for _, found in kept).encode("latin-1", "replace")
    hashes, wrong = of_digits(text, digits)
    if wrong is not None:
        number, found = kept[wrong]
        raise ListFault(Kind.NO_HASH, path, f"“{found}” is no hash in hexadecimal digits.", number)
    return hashes


def of_digits(text: bytes, digits: int) -> tuple[Hashes, int | None]:
    """Returns the hashes of this many hexadecimal digits each that follow each other in `text`, and the place of the
    first that has another character, or None."""
    nibbles = _NIBBLES[np.frombuffer(text, dtype=np.uint8).reshape(-1, digits)]
    good = (nibbles < 16).all(axis=1)
    wrong = None if good.all() else int(np.argmin(good))
    return (nibbles[:, 0::2] << 4 | nibbles[:, 1::2]).astype(np.uint8, copy=False), wrong
