"""The columns of each table: those of the result, and those of its parts."""

import pyarrow as pa

STRING = pa.string()

LISTING = pa.schema(
    [
        ("volume", pa.int32()),
        ("address", STRING),
        ("path", STRING),
        ("name", STRING),
        ("kind", STRING),
        ("name_kind", STRING),
        ("deleted", pa.bool_()),
        ("orphan", pa.bool_()),
        ("allocated", pa.bool_()),
        ("size", pa.int64()),
        ("mtime", pa.int64()),
        ("atime", pa.int64()),
        ("ctime", pa.int64()),
        ("crtime", pa.int64()),
        ("mode", STRING),
        ("uid", pa.int64()),
        ("gid", pa.int64()),
        ("inode", pa.uint64()),
        ("attr_type", pa.int32()),
        ("attr_id", pa.int32()),
        ("extension", STRING),
        ("named", STRING),
        ("why", STRING),
        ("line", pa.binary()),
        ("start", pa.int64()),
    ]
)
"""One row for each line of the bodyfile. `line` is the line without its end; `named` is the alphabetically first
keyword in its name; `why` says what is wrong with the row if its metadata could not be read; `start` is where its content
begins, in bytes of the image, if that is known and asked for. files.parquet has no line, inode or start."""

CONTENT = pa.schema(
    [
        ("row", pa.int64()),
        ("read_state", STRING),
        ("why", STRING),
        ("md5", STRING),
        ("sha1", STRING),
        ("sha256", STRING),
        ("type", STRING),
        ("mime", STRING),
        ("type_mismatch", pa.bool_()),
        ("known", pa.bool_()),
        ("wanted", STRING),
        ("hits", pa.int32()),
        ("bytes_read", pa.int64()),
    ]
)
"""One row for each file to be read; `row` is its line in the bodyfile, from 0. Fields as in `task.Content`."""

FILES = pa.schema(
    [
        *[
            LISTING.field(name)
            for name in (
                "volume",
                "address",
                "path",
                "name",
                "kind",
                "name_kind",
                "deleted",
                "orphan",
                "allocated",
                "size",
                "mtime",
                "atime",
                "ctime",
                "crtime",
                "mode",
                "uid",
                "gid",
                "attr_type",
                "attr_id",
            )
        ],
        *[CONTENT.field(name) for name in ("md5", "sha1", "sha256", "type", "mime")],
        LISTING.field("extension"),
        LISTING.field("named"),
        *[CONTENT.field(name) for name in ("type_mismatch", "known", "wanted", "hits")],
        ("score", pa.int32()),
        *[CONTENT.field(name) for name in ("read_state", "why")],
    ]
)
"""files.parquet, in the order of the bodyfile."""

FINDINGS = pa.schema(
    [
        ("score", pa.int32()),
        ("volume", pa.int32()),
        ("address", STRING),
        ("path", STRING),
        ("offset", pa.int64()),
        ("kind", STRING),
        ("rule", STRING),
        ("detail", STRING),
        ("excerpt", STRING),
    ]
)
"""findings.parquet: the highest score first, then by volume, path, offset, kind and rule."""

TIMELINE = pa.schema(
    [
        ("time", pa.int64()),
        ("volume", pa.int32()),
        ("address", STRING),
        ("path", STRING),
        ("what", STRING),
        ("size", pa.int64()),
    ]
)
"""timeline.parquet: seconds since 1970; `what` are MACB letters, merged as mactime does ("m.cb")."""
