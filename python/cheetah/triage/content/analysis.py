"""Analyses the content of files: one pass over the bytes of each yields hashes, type and hits.

The files of a batch are read in their order on disk, so that reads go forward, and a file with several names (hard
links) is read once; rows stay in the order of the batch. A file that was not read whole has no hash. A deleted file
is read while its clusters are free: their content is then probably its own, and its row says so. Slack is not read.
"""

import collections.abc
import dataclasses
import hashlib
import itertools
from typing import Any

import pyarrow as pa
import pytsk3

from cheetah.triage.content import stored
from cheetah.triage.filesystem import allocation, allocation_maps, distrust, opening
from cheetah.triage.filesystem import runs as block_runs
from cheetah.triage.kinds import extensions, types
from cheetah.triage.kinds.signatures import HEAD_BYTES, Type
from cheetah.triage.ranking import folder_kinds, score
from cheetah.triage.reading.reader import OpenStream, Reader, reason
from cheetah.triage.reading.worker import Worker
from cheetah.triage.search import atom_map, hashset, name_search, scan
from cheetah.triage.settings import Settings
from cheetah.triage.tables.schemas import CONTENT
from cheetah.triage.task import Content, Entry, Finding, Problem, Result

_STREAMS = frozenset(
    int(kind) for kind in (
        pytsk3.TSK_FS_ATTR_TYPE_DEFAULT, pytsk3.TSK_FS_ATTR_TYPE_NTFS_DATA, pytsk3.TSK_FS_ATTR_TYPE_HFS_DATA,
    )
)  # fmt: skip
_SEARCHED = "its bytes were searched where they lie, and only its beginning was read: no atom of the rules is in it"
# The number of runs of a file that are checked for other owners.
_RUNS_MAX = 1 << 20


class Tools:
    """The rules, lists and allocation maps that a worker compiles and opens once."""

    def __init__(self, worker: Worker, engine: scan.Engine | None = None, atoms: atom_map.AtomMap | None = None):
        """Opens the lists. `engine` is one that is compiled already; without it, that of the settings is."""
        settings = worker.settings
        if engine is None:
            engine = scan.load(settings.keywords, settings.yara) if settings.yara else name_search.engine(worker)
        self.engine = engine
        self.known = hashset.open_lists(settings.known)
        self.wanted = hashset.open_lists(settings.wanted)
        self.asks_for_names = self.engine is not None and self.engine.asks_for_names
        """Whether a file with several names must be searched under each, because rules ask for names."""
        needed = hashset.algorithms([*self.known, *self.wanted]) | set(settings.hashes)
        self.algorithms = tuple(name for name in ("md5", "sha1", "sha256") if name in needed)
        self.maps = allocation_maps.AllocationMaps(worker)
        self.atoms = atoms
        """Where atoms of the rules are, once these were searched where the bytes lie; None if every file is read."""

    @classmethod
    def of(cls, worker: Worker) -> "Tools":
        """Returns the worker's tools, made at its first task. Call it once in each task."""
        if "tools" not in worker.keep:
            worker.keep["tools"] = cls(worker)
        found = worker.keep["tools"]
        assert isinstance(found, cls)
        found.maps.begin()
        if worker.settings.at_nodes and found.atoms is None:
            # A worker of a cluster is handed it: what lies at this path of another machine may be of another run.
            handed = worker.settings.scheduler is not None
            path = atom_map.path_in(worker.settings.out)
            found.atoms = worker.keep.get("atoms") if handed else atom_map.AtomMap.load(path)
        return found


def prepare(settings: Settings, progress: hashset.Progress | None = None) -> None:
    """Compiles all rules and opens all lists, converting text lists into the form that workers search. Called once,
    before there are workers. Raises ValueError that names the file and line at fault."""
    try:
        scan.load(settings.keywords, settings.yara)
        hashset.open_lists([*settings.known, *settings.wanted], progress)
    except OSError as error:
        raise ValueError(f"{error.filename or 'a list'} cannot be used: {error.strerror or error}") from error


def analyse(worker: Worker, entries: list[Entry]) -> Result:
    """Analyses a batch of files."""
    tools = Tools.of(worker)
    result = Result()
    contents: dict[int, Content] = {}
    opened = []
    for entry in entries:
        one = open_stream(worker, tools, entry, result)
        if isinstance(one, Content):
            contents[entry.row] = one
        else:
            opened.append(one)
    read: Read | None = None
    for one in sorted(opened, key=lambda one: (one.entry.volume, one.first, one.entry.stream, one.entry.row)):
        if read is None or read.stream != one.entry.stream or tools.asks_for_names:
            read = read_stream(tools, one, worker)
            result.bytes_read += read.reader.bytes_read
        contents[one.entry.row], found = _judge(tools, one, read)
        result.findings.extend(found)
        _problems(one.entry, read.reader.unreadable, result)
        if read.unsearched:
            # With an offset, so that it is tried again when the run resumes.
            place = worker.volumes[one.entry.volume].start + one.first
            sentence = f"the file was not searched completely: {read.unsearched}"
            result.problems.append(Problem("content", sentence, one.entry.volume, one.entry.path, place))
    rows = [vars(contents[entry.row]) for entry in entries]
    result.rows = pa.Table.from_pylist(rows, schema=CONTENT)
    return result


def _problems(entry: Entry, unreadable: list[tuple[int, int, str]], result: Result) -> None:
    for offset, length, why in unreadable:
        sentence = f"a part of the file could not be read: {why}"
        result.problems.append(Problem("content", sentence, entry.volume, entry.path, offset, length))


def open_stream(worker: Worker, tools: Tools, entry: Entry, result: Result) -> OpenStream | Content:
    """Opens the stream of an entry, or returns why there is nothing to read."""
    if entry.deleted and entry.allocated:
        return Content(entry.row, "skipped", "deleted, and its place among the metadata belongs to another file now")
    failed: OSError | None = None
    attribute, size, runs = None, 0, []
    try:
        system = opening.file_system(worker, entry.volume)
        # Failed reads while opening the file system are not this file's, and were reported with the volumes.
        worker.take_unreadable()
        file = system.open_meta(inode=entry.inode)
        attribute = _attribute(file, entry)
        size = int(attribute.info.size) if attribute is not None else 0
        runs = _runs(attribute, worker.volumes[entry.volume].block_size)
    except OSError as error:
        failed = error
    # The Sleuth Kit may silently omit unreadable data.
    unreadable = worker.take_unreadable()
    if failed is not None or unreadable:
        _problems(entry, unreadable, result)
        why = f"its metadata could not be read: {reason(unreadable, failed)}"
        return Content(entry.row, "unreadable", why)
    if attribute is None:
        return Content(entry.row, "skipped", "its metadata names no content")
    flags = int(attribute.info.flags)
    one = OpenStream(entry, file, size, runs[0][0] if runs else 0, bool(flags & int(pytsk3.TSK_FS_ATTR_ENC)))
    if entry.deleted or not entry.allocated:
        try:
            _judge_deleted(tools, one, runs)
        except allocation_maps.Unreadable as error:
            # It may be another file's content, so it is not hashed before that is known.
            why = f"the record of its clusters' owners could not be read: {error}"
            result.problems.append(Problem("content", why, entry.volume, entry.path, error.offset, error.length))
            return Content(entry.row, "unreadable", why)
    if one.skip:
        return Content(entry.row, "skipped", one.skip)
    one.without_atoms = _is_without_atoms(worker, tools, one, attribute)
    return _with_doubts(worker, one, attribute, bool(runs), result)


def _is_without_atoms(worker: Worker, tools: Tools, one: OpenStream, attribute: Any) -> bool:
    """Returns whether the search for atoms, where the bytes lie, covers all of a stream and has found none in it, and none lies over a
    seam of two of its runs."""
    atoms = tools.atoms
    if atoms is None:
        return False
    try:
        places = stored.places(worker, one.entry, attribute)
        is_without = bool(places) and all(atoms.has_none(*place) for place in places)
        seams = itertools.accumulate(length for _, length in places[:-1])
        is_without = is_without and not any(atoms.is_over(one.read, seam, one.size) for seam in seams)
    except OSError:
        is_without = False
    # Reading the file tells of failures.
    return is_without and not worker.take_unreadable()


def _with_doubts(
    worker: Worker, one: OpenStream, attribute: Any, has_runs: bool, result: Result
) -> OpenStream | Content:
    """Sets what The Sleuth Kit does not know of a stream's content; content that would be wrong is not read."""
    entry = one.entry
    volume = worker.volumes[entry.volume]
    why = None
    try:
        if volume.fs == "exfat" and one.size:
            one.valid = distrust.valid_length(worker, entry.volume, entry.inode, one.size)
            why = None if one.valid is not None else "its valid length is unknown, as its directory entry was not found"
        elif volume.fs == "ntfs" and one.size and not has_runs and not attribute.info.name:
            if block_runs.are_stored(attribute):
                place = distrust.elsewhere(one.file)
                why = None if place is None else f"its content is {place}"
        elif volume.fs == "ext4" and distrust.is_encrypted(worker, entry.volume, entry.inode):
            one.encrypted = True
            one.note = "; ".join(filter(None, (one.note, "encrypted by the file system (fscrypt)")))
    except OSError as error:
        why = f"what The Sleuth Kit does not know of it could not be read: {error.strerror or error}"
        result.problems.append(Problem("content", why, entry.volume, entry.path, volume.start + one.first))
    worker.take_unreadable()
    return one if why is None else Content(entry.row, "unreadable", f"not trusted, so not read: {why}")


def _attribute(file: pytsk3.File, entry: Entry) -> Any:
    """Returns the stream that an entry means; without a number, the only one that file systems other than NTFS
    have."""
    for attribute in file:
        kind, number = int(attribute.info.type), int(attribute.info.id)
        if (kind, number) == (entry.attr_type, entry.attr_id) or (entry.attr_type is None and kind in _STREAMS):
            return attribute
    return None


def _runs(attribute: Any, block_size: int) -> list[tuple[int, int]]:
    """Returns start and length of stored runs in bytes of the volume, without holes and placeholders."""
    if attribute is None or not block_runs.are_stored(attribute):
        return []
    stored_runs = (run for run in block_runs.of(attribute) if not run.is_hole)
    return [(run.block * block_size, run.blocks * block_size) for run in itertools.islice(stored_runs, _RUNS_MAX)]


def _judge_deleted(tools: Tools, one: OpenStream, runs: list[tuple[int, int]]) -> None:
    """Judges whether a deleted file's clusters can still hold its content. Raises allocation_maps.Unreadable if that
    could not be read."""
    if one.size and not runs and one.entry.attr_type is None:
        one.skip = "deleted, and the place of its content is unknown, or belongs to another file now"
        return
    if not runs:
        one.note = "deleted; its content is kept in its metadata" if one.size else None
        return
    try:
        found = tools.maps.of(one.entry.volume)
    except allocation.Unknown as error:
        one.note = f"deleted; its content may be another file's now: {error}"
        return
    taken = sum(found.in_use(start, length) for start, length in runs)
    total = sum(-(-length // found.unit) for _, length in runs)
    if taken:
        one.skip = f"deleted, and {min(taken, total)} of its {total} clusters belong to other files now"
    else:
        one.note = "deleted; its clusters are free, but other files may have used them meanwhile"


@dataclasses.dataclass
class Read:
    """The analysis of a stream, independent of its name."""

    stream: tuple[int, ...]
    reader: Reader
    head: bytes
    hashes: dict[str, bytes]
    known: bool
    hits: list[scan.Hit]
    unsearched: str | None
    """The files that were not searched, and why."""
    in_pieces: bool


def read_stream(tools: Tools, one: OpenStream, worker: Worker, gives_up: bool = False) -> Read:
    """Reads a whole stream; with `gives_up`, only as long as it is searched, which then is all that the result is of."""
    reader = Reader(one, worker, worker.settings.max_file)
    digests: dict[str, Any] = {name: hashlib.new(name, usedforsecurity=False) for name in tools.algorithms}
    searched = scan.Stream(tools.engine) if tools.engine is not None and not one.without_atoms else None
    if searched is not None and tools.engine is not None:
        tools.engine.name(one.entry.path)
    head = b""
    for offset, piece in reader.head_and_rest(HEAD_BYTES) if one.without_atoms else reader.pieces():
        # Holes are read without the source.
        worker.beat()
        if len(head) == offset < HEAD_BYTES:
            head += piece[: HEAD_BYTES - offset]
        if reader.complete:
            for digest in digests.values():
                digest.update(piece)
        if searched is not None:
            searched.feed(piece, offset)
            if gives_up and searched.ended:
                # A file with holes may be larger than any disk.
                break
    hashes: dict[str, bytes] = {name: digest.digest() for name, digest in digests.items()} if reader.complete else {}
    known = any(one_list.contains([hashes.get(one_list.algorithm)])[0] for one_list in tools.known)
    if searched is None or known:
        return Read(one.entry.stream, reader, head, hashes, known, [], None, in_pieces=False)
    hits = searched.finish(is_empty=not one.size)
    return Read(one.entry.stream, reader, head, hashes, known, hits, searched.trouble, searched.in_pieces)


def _judge(tools: Tools, one: OpenStream, read: Read) -> tuple[Content, list[Finding]]:
    """Returns the row and the findings of a stream under one of its names."""
    reader, head, hashes = read.reader, read.head, read.hashes
    wanted = next((found.name for found in tools.wanted if found.contains([hashes.get(found.algorithm)])[0]), None)
    searched = _SEARCHED if reader.is_rest_searched else None
    whys = [why for why in (reader.why(), read.unsearched, one.note, searched) if why]
    found = None if one.size and not head else types.EFS if one.encrypted else types.recognise(head, one.size)
    trusted = not one.entry.deleted and reader.complete
    odd = None if read.known or one.encrypted else extensions.mismatch(one.entry.extension, found, head, trusted)
    content = Content(
        one.entry.row,
        reader.state(),
        "; ".join(whys) or None,
        md5=_hex(hashes, "md5"),
        sha1=_hex(hashes, "sha1"),
        sha256=_hex(hashes, "sha256"),
        type=found.name if found else None,
        mime=found.mime if found else None,
        type_mismatch=odd is not None,
        known=read.known,
        wanted=wanted,
        hits=sum(max(1, len(hit.offsets)) for hit in read.hits),
        bytes_read=reader.bytes_read,
    )
    return content, list(_findings(one.entry, content, found, odd, read.hits, read.in_pieces))


def _findings(
    entry: Entry, content: Content, found: Type | None, odd: str | None, hits: list[scan.Hit], in_pieces: bool
) -> collections.abc.Iterator[Finding]:
    """Yields the findings about a file."""

    def finding(kind: str, rule: str, detail: str, offset: int | None = None, excerpt: str | None = None) -> Finding:
        points = score.of_finding(kind, entry.path, entry.deleted)
        return Finding(points, entry.volume, kind, rule, detail, entry.address, entry.path, offset, excerpt)

    if content.wanted is not None:
        digest = content.sha256 or content.sha1 or content.md5
        yield finding("wanted-hash", content.wanted, f"its hash is in the list {content.wanted}: {digest}")
    for hit in hits:
        offset = hit.offsets[0] if hit.offsets else None
        yield finding(hit.kind, hit.rule, hit.detail(in_pieces), offset, hit.excerpts[0] if hit.excerpts else None)
    if odd is not None:
        yield finding("mismatch", f".{entry.extension}", odd)
    if found is None or content.known:
        return
    if found.family == "encrypted":
        yield finding("encrypted", found.name, _ENCRYPTED.get(found.name, f"its content is encrypted ({found.name})"))
    place = folder_kinds.misplaced(entry.path, found)
    if place is not None:
        yield finding("misplaced", found.name, place)


_ENCRYPTED = {
    "random": "its type is unknown, and its bytes look random: perhaps an encrypted container",
    "efs": "it is encrypted by the file system (EFS, fscrypt); its hashes are of the bytes as they are stored",
}


def _hex(hashes: dict[str, bytes], name: str) -> str | None:
    return hashes[name].hex() if name in hashes else None
