"""Made-up results of a triage, always the same: an office computer, and a stick that was plugged into it."""

import dataclasses
import hashlib
import pathlib
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from cheetah.triage.report.summary import RunFacts, UnallocatedCoverage
from cheetah.triage.tables.schemas import FILES, FINDINGS
from cheetah.triage.task import Problem, Volume

CHUNK_ROWS = 20_000
DAY_S = 86400
INSTALLED_S = 1_615_680_000  # 2021-03-14
SEIZED_S = 1_718_928_000  # 2024-06-21

VOLUMES = (
    Volume(0, 1 << 20, 100 << 20, "fat32", "EFI system partition"),
    Volume(1, 101 << 20, 230 << 30, "ntfs", "Basic data partition"),
    Volume(2, 231 << 30, 7 << 30, "", "Basic data partition (BitLocker)"),
)

# Folder, its share of the files, and the kinds of its files.
_FOLDERS = (
    ("/Windows/System32", 30, ("dll", "exe", "sys", "mui")),
    ("/Windows/WinSxS/amd64_{n:04x}", 22, ("dll", "manifest", "mui")),
    ("/Program Files/Office/root", 8, ("dll", "exe", "png", "xml")),
    ("/Users/m.keller/AppData/Local/Cache/f_{n:05x}", 20, ("", "js", "jpg", "png", "html")),
    ("/Users/m.keller/Documents/2024/{n:02d}", 8, ("docx", "xlsx", "pdf", "txt")),
    ("/Users/m.keller/Pictures/{n:03d}", 7, ("jpg", "heic", "mp4")),
    ("/Users/m.keller/Downloads", 3, ("zip", "exe", "pdf", "iso")),
    ("/$Recycle.Bin/S-1-5-21-1001", 2, ("docx", "zip", "jpg")),
)
_TYPES = {
    "dll": "pe", "exe": "pe", "sys": "pe", "mui": "pe", "manifest": "xml", "xml": "xml", "png": "png", "js": "text",
    "html": "html", "jpg": "jpeg", "heic": "heif", "mp4": "mp4", "docx": "docx", "xlsx": "xlsx", "pdf": "pdf",
    "txt": "text", "zip": "zip", "iso": "iso9660", "": "data",
}  # fmt: skip


def write_files(path: pathlib.Path, rows: int, seed: int = 1) -> None:
    """A files.parquet with that number of rows, written in chunks."""
    random = np.random.default_rng(seed)
    with pq.ParquetWriter(path, FILES) as writer:
        for start in range(0, rows, CHUNK_ROWS):
            writer.write_table(_chunk(random, start, min(CHUNK_ROWS, rows - start)))


def _chunk(random: np.random.Generator, start: int, rows: int) -> pa.Table:
    weights = np.array([weight for _, weight, _ in _FOLDERS], float)
    folders = random.choice(len(_FOLDERS), rows, p=weights / weights.sum())
    picks = random.integers(0, 1 << 30, rows)
    sizes = np.where(random.random(rows) < 0.03, 0, np.exp(random.normal(9.5, 2.6, rows)).astype(np.int64) + 1)
    lived = _times(random, folders, rows)
    deleted = (random.random(rows) < 0.04) | (folders == 7)
    chance = random.random(rows)
    records = []
    for row in range(rows):
        number = start + row
        folder, _, kinds = _FOLDERS[folders[row]]
        extension = kinds[picks[row] % len(kinds)]
        name = f"{_NAMES[picks[row] // 7 % len(_NAMES)]}{number % 977}" + (f".{extension}" if extension else "")
        # In steps of the listing: a stamp before every fifth file, a stream behind every fiftieth.
        stamp, stream = number % 5 == 0, number % 50 == 1
        files = dict.fromkeys(FILES.names)
        files.update(
            volume=0 if number % 400 == 0 else 1,
            address=f"{number}-{48 if stamp else 128}-{2 if stamp else 1}",
            path=f"{folder.format(n=int(picks[row] // 131 % 40))}/{name}" + (":Zone.Identifier" if stream else ""),
            name=name, kind="r", name_kind="r", deleted=bool(deleted[row]), orphan=bool(deleted[row] and chance[row] < 0.1),
            allocated=not deleted[row], size=82 if stamp else 26 if stream else int(sizes[row]),
            mode="rrwxrwxrwx", uid=0, gid=0, attr_type=48 if stamp else 128, attr_id=2 if stamp else 1,
            extension=extension, type_mismatch=False, known=False, hits=0, score=0,
        )  # fmt: skip
        files.update(zip(("mtime", "atime", "ctime", "crtime"), (int(one) for one in lived[row]), strict=True))
        if number % 37 == 0 and not stream:
            files.update(kind="d", name_kind="d", size=56, extension="")
        elif not stamp:
            files.update(_content(number, _TYPES[extension], float(chance[row]), files["size"]))
        records.append(files)
    return pa.Table.from_pylist(records, FILES)


_NAMES = (
    "report",
    "invoice_",
    "IMG_",
    "setup",
    "kernel",
    "msvcp",
    "notes-",
    "contract ",
    "d3d",
    "Bericht ",
    "データ",
    "scan",
)


def _content(number: int, kind: str, chance: float, size: int) -> dict[str, Any]:
    if chance > 0.995:
        return {"read_state": "unreadable", "why": "bytes 4096 to 8191 of the file cannot be read: Input/output error"}
    if chance > 0.98:
        return {"read_state": "skipped", "why": "larger than what --max-file allows"}
    state = (
        {"read_state": "partial", "why": "only the beginning was read"} if chance > 0.978 else {"read_state": "whole"}
    )
    odd = chance < 0.004 and size > 0
    return {
        **state,
        "md5": hashlib.md5(str(number).encode(), usedforsecurity=False).hexdigest(),
        "sha256": hashlib.sha256(str(number).encode()).hexdigest(),
        "type": ("zip" if odd else kind) if size else None,
        "type_mismatch": odd,
        "known": kind == "pe" and chance < 0.9,
        "hits": 2 if chance < 0.001 else 0,
    }


def _times(random: np.random.Generator, folders: np.ndarray, rows: int) -> np.ndarray:
    """Four times for each file: the system's from the day it was set up, the user's in office hours of three years."""
    span = (SEIZED_S - INSTALLED_S) // DAY_S
    days = np.where(folders < 3, random.exponential(3, rows).astype(int), (span * random.power(1.8, rows)).astype(int))
    # Updates, once a month.
    days = np.where((folders == 1) & (random.random(rows) < 0.6), random.integers(1, span // 28, rows) * 28 + 9, days)
    weekday = (INSTALLED_S // DAY_S + 3 + days) % 7
    days = np.clip(np.where((weekday > 4) & (random.random(rows) < 0.8), days - 2, days), 0, span - 1)
    clock = np.clip(random.normal(13.2, 3.1, rows), 0, 23.99) * 3600
    born = INSTALLED_S + days * DAY_S + clock.astype(int)
    latest = SEIZED_S - 1 - born
    later = born + (latest * random.power(0.12, rows)).astype(int)
    times = np.stack([later, later + random.integers(0, 600, rows), later, born], axis=1)
    times[random.random(rows) < 0.002] = 0
    times[random.random(rows) < 0.0006, 0] = 1_000_000_000
    times[random.random(rows) < 0.0003, 3] = -11_644_473_600
    times[random.random(rows) < 0.0003, 3] = 4_102_444_800
    return times


_CASE: tuple[tuple[int, str, str, str, str, str, str | None], ...] = (
    (100, "wanted-hash", "/Users/m.keller/Downloads/scan12.pdf", "heron-documents", "its SHA-256 is on the list heron-documents", "91", None),
    (100, "wanted-hash", "/$Recycle.Bin/S-1-5-21-1001/$R7K2QX1.docx", "heron-documents", "its SHA-256 is on the list heron-documents", "92", None),
    (90, "yara", "/Users/m.keller/AppData/Local/Temp/svch0st.exe", "Loader_Generic", "the rule Loader_Generic of lab.yar matches at 3 places", "93", "MZ\x90\x00…UPX0\x00\x00UPX1"),
    (70, "keyword", "/Users/m.keller/AppData/Local/Temp/svch0st.exe", "heron", "“heron” stands in it 4 times, in UTF-16", "93", "https://drop.example/heron/up"),
    (80, "mismatch", "/Users/m.keller/Pictures/017/IMG_2214.jpg", "zip", "it is a ZIP archive, and is called .jpg", "94", "PK\x03\x04"),
    (70, "keyword", "/Users/m.keller/Pictures/017/IMG_2214.jpg", "heron", "“heron” stands in it 2 times", "94", "tender/heron-prices-2024.xlsx"),
    (60, "deleted", "/$Recycle.Bin/S-1-5-21-1001/$R7K2QX1.docx", "deleted", "it was deleted, and all of it is still there", "92", None),
    (55, "keyword", "/Users/m.keller/Documents/2024/05/offer \u202egpj.exe", "tender", "“tender” stands in it 11 times", "95", "the <b>tender</b> closes on 14 June; keep prices \x1b[31mbelow"),
)  # fmt: skip


def write_findings(path: pathlib.Path, rows: int = 200, seed: int = 1) -> None:
    """A findings.parquet with that number of rows: a case, then minor findings, then hits outside all files."""
    random = np.random.default_rng(seed)
    records: list[dict[str, Any]] = [
        {"score": score, "volume": 1, "address": f"{address}-128-1", "path": place, "offset": 4096 if kind == "keyword" else None,
         "kind": kind, "rule": rule, "detail": detail, "excerpt": excerpt}
        for score, kind, place, rule, detail, address, excerpt in _CASE
    ]  # fmt: skip
    for number in range(len(records), rows):
        outside = number % 9 == 0
        records.append({
            "score": 50 - min(45, number // 8), "volume": 1, "address": None if outside else f"{number * 13}-128-1",
            "path": None if outside else f"/Users/m.keller/Documents/2024/03/notes-{number}.txt",
            "offset": int(random.integers(1 << 30, 1 << 37)), "kind": "keyword", "rule": "tender",
            "detail": "“tender” stands in unallocated space" if outside else "“tender” stands in it",
            "excerpt": "… before the tender is opened, the prices …",
        })  # fmt: skip
    records.sort(key=lambda one: (-one["score"], one["volume"], one["path"] or "", one["offset"] or 0, one["kind"]))
    pq.write_table(pa.Table.from_pylist(records[:rows], FINDINGS), path)


def add_case_files(path: pathlib.Path) -> None:
    """Puts the files of the case into a files.parquet that has been written already."""
    table = pq.read_table(path)
    rows = {}
    for number, (score, kind, place, rule, _, address, _) in enumerate(_CASE):
        row = rows.setdefault(address, dict.fromkeys(FILES.names))
        row.update(
            volume=1, address=f"{address}-128-1", path=place, name=place.rpartition("/")[2], kind="r", name_kind="r",
            deleted="Recycle" in place, orphan=False, allocated="Recycle" not in place, size=48_213 * (number + 3),
            mtime=SEIZED_S - 260_000 - number * 7000, atime=SEIZED_S - 250_000, ctime=SEIZED_S - 260_000, crtime=SEIZED_S - 900_000,
            mode="rrwxrwxrwx", uid=0, gid=0, attr_type=128, attr_id=1, extension=place.rpartition(".")[2], hits=1,
            md5=hashlib.md5(place.encode(), usedforsecurity=False).hexdigest(), sha256=hashlib.sha256(place.encode()).hexdigest(),
            type={"mismatch": "zip", "yara": "pe"}.get(kind, row["type"] or "docx"), type_mismatch=kind == "mismatch" or bool(row["type_mismatch"]),
            known=False, wanted=rule if kind == "wanted-hash" else row["wanted"], score=max(score, row["score"] or 0), read_state="whole",
        )  # fmt: skip
    with pq.ParquetWriter(path, FILES) as writer:
        writer.write_table(table)
        writer.write_table(pa.Table.from_pylist(list(rows.values()), FILES))


def facts(**changes: Any) -> RunFacts:
    """The facts about its run."""
    made = RunFacts(
        source={
            "name": "case42.E01", "size_bytes": 256_060_514_304, "uri": "nbd://lab1.example/case42",
            "hashes": {"md5": "9e107d9d372bb6826bd81d3542a419d6", "sha1": "2fd4e1c67a2d28fced849ee1bb76e7391b93eb12"},
        },
        volumes=VOLUMES,
        started="2024-07-02T08:14:05+00:00",
        ended="2024-07-02T08:41:52+00:00",
        complete=True,
        settings={"quick": False, "hashes": ["md5", "sha256"], "max_file": 1 << 30, "unallocated": True,
                  "known": [{"name": "nsrl-modern.bin", "size_bytes": 912_334_848, "sha256": "7d" * 32}],
                  "wanted": [{"name": "heron-documents.txt", "size_bytes": 4_183, "sha256": "0c" * 32}],
                  "keywords": [{"name": "heron.txt", "size_bytes": 61, "sha256": "5e" * 32}],
                  "yara": [{"name": "lab.yar", "size_bytes": 18_220, "sha256": "a9" * 32}]},
        tool_versions={"cheetah": "0.4.0", "sleuthkit": "4.15.0", "yara-x": "1.4.0", "python": "3.11.7"},
        command=("cheetah", "triage", "nbd://lab1.example/case42", "--out", "case 42/triage", "--known", "nsrl-modern.bin",
                 "--wanted", "heron-documents.txt", "--keywords", "heron.txt", "--yara", "lab.yar", "--hash", "md5,sha256"),
        problems=(
            Problem("volumes", "volume 2 holds no supported file system (BitLocker)", 2),
            Problem("listing", "the index of /Users/m.keller/AppData/Local/Packages is damaged; what it names is not listed", 1,
                    "/Users/m.keller/AppData/Local/Packages"),
        ),
        stages={"volumes": (1, 1), "listing": (412, 412), "content": (1630, 1630), "unallocated": (288, 288)},
        bytes_read=8_218_334_720,
        link={"source_bytes": 9_874_203_136, "source_requests": 181_220, "hits": 1_220_412},
        unallocated=UnallocatedCoverage(True, 118_111_600_640, 118_111_588_352, 12_288),
    )  # fmt: skip
    return dataclasses.replace(made, **changes)


def write(folder: pathlib.Path, rows: int = 30_000, **changes: Any) -> RunFacts:
    """All of it: both tables in `folder`, and the facts."""
    write_files(folder / "files.parquet", rows)
    add_case_files(folder / "files.parquet")
    write_findings(folder / "findings.parquet")
    return facts(**changes)
