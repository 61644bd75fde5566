"""The NSRL's RDS 3: an SQLite database, whose table or view FILE has a column for each kind of hash.

Minimal sets have a table FILE; of full ones, FILE is a view of the table METADATA, which has the same hashes once. The
database is opened without writing a byte or a file beside it. It may be hostile: what it may have SQLite do is limited.
"""

import collections.abc
import contextlib
import os
import sqlite3
import urllib.parse

from cheetah.triage.search import hashtext
from cheetah.triage.search.fault import Kind, ListFault
from cheetah.triage.search.hashtext import Hashes, Progress

START = b"SQLite format 3\0"
"""The bytes with which a database begins."""
# The strongest first.
_COLUMNS = (("sha256", 64), ("sha1", 40), ("md5", 32))
_ROWS = 100_000
# No name of a table, no hash and no definition of a view is longer.
_VALUE_BYTES_MAX = 1 << 20
_TABLES_MAX = 1000
# The most characters of a value that are taken, which is more than any hash has: a view may make long ones of short ones.
_DIGITS_MAX = 64
# The steps of SQLite's machine after which it asks whether to go on, and those that each byte of a database may cost.
_STEPS = 1_000_000
_STEPS_PER_BYTE = 64
_FUNCTIONS = frozenset(("max", "upper", "lower", "trim", "substr", "coalesce", "ifnull"))
# Changes that are not in the database yet, or are to be taken back, are in files with these ends.
_BESIDE = ("-wal", "-journal")


def check_alone(path: str) -> None:
    """Raises ListFault if changes to a database lie in a file beside it: hashes could be missing. SQLite keeps them beside
    the file itself, and not beside a link to it."""
    for beside in [base + end for base in {path: None, os.path.realpath(path): None} for end in _BESIDE]:
        with contextlib.suppress(FileNotFoundError):
            if os.stat(beside).st_size:
                raise ListFault(
                    Kind.UNFINISHED,
                    path,
                    f"changes to this database lie in {beside}. Open it once with sqlite3 where it "
                    "was written, so that they are in it, or copy it again.",
                )


def read(path: str, progress: Progress) -> collections.abc.Iterator[Hashes]:
    """Yields the hashes of a database in blocks, a row each, of its strongest kind. Raises ListFault."""
    check_alone(path)
    size = os.path.getsize(path)
    try:
        with contextlib.closing(_opened(path)) as database:
            _limit(database, size)
            table, column, digits = _column(path, database)
            yield from _hashes(path, database, (table, column, digits), size, progress)
    except sqlite3.OperationalError as error:
        if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_INTERRUPT:
            raise _too_large(path) from error
        raise _damaged(path, error) from error
    except sqlite3.Error as error:
        raise _damaged(path, error) from error
    progress(size, size)


def _damaged(path: str, error: sqlite3.Error) -> ListFault:
    return ListFault(Kind.DAMAGED, path, f"this database cannot be read: {error}. Copy it again.")


def _too_large(path: str) -> ListFault:
    return ListFault(
        Kind.TOO_LARGE, path, "this database has more rows than its size explains. Give its hashes as text, one a line."
    )


def _opened(path: str) -> sqlite3.Connection:
    """Opens a database such that SQLite writes nothing, and takes no locks."""
    name = urllib.parse.quote(os.fsencode(os.path.abspath(path)))
    database = sqlite3.connect(f"file:{name}?mode=ro&immutable=1", uri=True, isolation_level=None)
    database.text_factory = bytes
    return database


def _limit(database: sqlite3.Connection, size: int) -> None:
    """Limits what a database, which may define views, can have SQLite do."""
    database.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _VALUE_BYTES_MAX)
    database.execute("PRAGMA trusted_schema = OFF")
    database.execute("PRAGMA query_only = ON")

    def allowed(action: int, first: str | None, second: str | None, _schema: str | None, _by: str | None) -> int:
        is_read = action in (sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ)
        is_pragma = action == sqlite3.SQLITE_PRAGMA and first == "table_info"
        is_function = action == sqlite3.SQLITE_FUNCTION and (second or "").lower() in _FUNCTIONS
        return sqlite3.SQLITE_OK if is_read or is_pragma or is_function else sqlite3.SQLITE_DENY

    steps = 0

    def ends() -> int:
        nonlocal steps
        steps += _STEPS
        return int(steps > _STEPS_PER_BYTE * size + 10 * _STEPS)

    database.set_authorizer(allowed)
    database.set_progress_handler(ends, _STEPS)


def _column(path: str, database: sqlite3.Connection) -> tuple[str, str, int]:
    """Returns the table, and its column of the strongest hash with the number of digits."""
    found = database.execute("SELECT name, type FROM sqlite_master").fetchmany(_TABLES_MAX)
    types = {_text(name).upper(): _text(kind) for name, kind in found}
    # A view joins METADATA with packages, so that the table alone is read in a fraction of the time.
    tables = ("FILE", "METADATA") if types.get("FILE") == "table" else ("METADATA", "FILE")
    for table in tables:
        if types.get(table) not in ("table", "view") or "FILE" not in types:
            continue
        columns = {_text(row[1]).lower() for row in database.execute(f"PRAGMA table_info({table})")}
        for column, digits in _COLUMNS:
            if column not in columns:
                continue
            first = database.execute(f"SELECT {column} FROM {table} LIMIT 1").fetchone()
            if first is None or first[0]:
                return table, column, digits
    raise ListFault(
        Kind.NO_TABLE,
        path,
        "this SQLite database has no table FILE with a column sha256, sha1 or md5, as the NSRL's RDS 3 has. Give its "
        "hashes as text, one a line.",
    )


def _text(value: object) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else ""


def _hashes(
    path: str, database: sqlite3.Connection, source: tuple[str, str, int], size: int, progress: Progress
) -> collections.abc.Iterator[Hashes]:
    table, column, digits = source
    last = _last_row(database, table)
    # One character more shows that a value is too long.
    rows = database.execute(f"SELECT substr({column}, 1, {_DIGITS_MAX + 1}) FROM {table}")
    done = 0
    while fetched := rows.fetchmany(_ROWS):
        values = [value for (value,) in fetched]
        wrong = next((place for place, one in enumerate(values) if type(one) is not bytes or len(one) != digits), None)
        if wrong is not None:
            raise _wrong(path, values[wrong], source, done + wrong + 1)
        hashes, wrong = hashtext.of_digits(b"".join(values), digits)
        if wrong is not None:
            raise _wrong(path, values[wrong], source, done + wrong + 1)
        done += len(values)
        # Each row of a table takes more than a byte, and a view joins tables.
        if done > size:
            raise _too_large(path)
        yield hashes
        progress(int(size * min(1.0, done / last)) if last else 0, size)


def _last_row(database: sqlite3.Connection, table: str) -> int:
    """Returns the number of the last row, for the progress; 0 if it is not known."""
    try:
        (last,) = database.execute(f"SELECT max(rowid) FROM {table}").fetchone()
    except sqlite3.OperationalError:
        # A view, or a table without such numbers.
        return 0
    return last if isinstance(last, int) and last > 0 else 0


def _wrong(path: str, value: object, source: tuple[str, str, int], row: int) -> ListFault:
    table, column, digits = source
    length = len(value) if isinstance(value, bytes) else 0
    kind = Kind.OTHER_LENGTH if length in {known for _, known in _COLUMNS if known != digits} else Kind.NO_HASH
    shown = f"{length} bytes" if length <= _DIGITS_MAX else f"more than {_DIGITS_MAX} bytes"
    sentence = f"column {column} of {table} should be a hash of {digits} digits, and has {shown}."
    return ListFault(kind, path, sentence, row, "row")
