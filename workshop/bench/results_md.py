"""The parts of the benchmark, and their tables in the published results."""

import configparser
import os
from typing import Any

from bench.documents.listed import DOCUMENTS
from bench.part import Part
from bench.probe import tables as probe_tables
from bench.report import grid, prefetching, storage_tables
from bench.report.matrix import transfer_table, triage_tables
from cheetah.bench.figure import Figure
from cheetah.bench.sheet import spread

BENCH = os.path.dirname(os.path.abspath(__file__))
NOTES = os.path.join(BENCH, "notes.ini")


PARTS = (
    Part(
        "node",
        "One node",
        "One `cheetah node` beside `nbdkit memory` (default threads) and `qemu-nbd` on tmpfs: loopback TCP, one "
        "connection (nbdcopy also with four), every server holding the same random bytes.",
    ),
    Part(
        "drive",
        "A striped drive over three nodes, exported over NBD",
        "Beside `nbdkit nbd` in front of one `nbdkit memory`; loopback TCP all the way. CPU is that of the process "
        "in front alone.",
    ),
    Part(
        "fuse",
        "A striped drive over three nodes, mounted",
        "Beside `nbdfuse` on one `nbdkit memory`. A fresh mount and an empty page cache before every reading; random "
        "reads touch no block twice.",
    ),
    Part(
        "survive-mirror",
        "A mirror over two nodes",
        "Beside a stripe over two nodes, and beside QEMU's storage daemon with the quorum driver (vote-threshold 1, "
        "read-pattern fifo) over two `nbdkit memory`; exported over NBD, loopback TCP; whole, and with a node lost. "
        "Measured on an Intel Xeon, not on the processor above.",
        module="bench.survive.mirror",
    ),
    Part(
        "survive-parity",
        "Parity over three nodes",
        "Beside a stripe over three nodes, exported over NBD, and beside a file on a GlusterFS volume (disperse 2+1, "
        "bricks in memory); all on this machine; whole, and with a node lost. Measured on an Intel Xeon, not on the processor "
        "above.",
        module="bench.survive.parity",
    ),
    Part(
        "survive-links",
        "Redundant drives behind 1 Gbit/s links, and repair",
        "One pass over the drive through an export, beside what iperf3 carries over as many links as the layout can use at "
        "best; and repair onto an empty node, beside the link of that node.",
        module="bench.survive.links",
    ),
    Part(
        "survive-moves",
        "Nodes that leave and join a drive in use",
        "Parity 4+1 behind 1 Gbit/s links: a member moves to another node (cheetah drain), beside the slower of the two "
        "links; reads meanwhile; and how soon a machine has its memory again from a node with --memory auto. A mirror of two parts "
        "on each of two nodes that is spread over four (cheetah rebalance). Measured on an Intel Xeon, not on the processor above.",
        module="bench.survive.moves",
    ),
    Part(
        "survive-loss",
        "A node lost under load",
        "The longest of all requests of fio while a node is killed or frozen, beside what is allowed; and the speed of "
        "the parity code.\n\n"
        "The two rows of a node that is frozen during reads and writes: three quick runs of the tests' build on a loaded machine; "
        "before, 1.08 s and more: a write waited for other maps that the frozen node was asked to store.",
        module="bench.survive.loss",
    ),
    Part(
        "links",
        "Nodes behind 1 Gbit/s links",
        "One pass over a drive striped over N nodes, each behind a link of its own, beside the sum of what iperf3 "
        "carries over these links, each measured alone.",
    ),
    Part(
        "tls",
        "Encrypted connections between the members of a room",
        "TLS 1.3 with certificates on both sides beside the same connections in clear. On loopback one node, with Cheetah's "
        "own client on one connection; beside it nbdkit with TLS and nbdcopy, with four connections. Measured on an Intel "
        "Xeon, not on the processor above, 1.5 s a run, links in two rounds.\n\n"
        "ring 0.17.14 beside aws-lc-rs 1.19.0 on that processor, one thread, in place, medians of 21 interleaved "
        "rounds, sealing / opening in GB/s: AES-128-GCM 4 KiB 10.7 / 11.1 beside 14.2 / 14.2, 16 KiB 11.4 / 12.7 beside "
        "16.9 / 17.7; AES-256-GCM 4 KiB 8.9 / 9.5 beside 11.9 / 12.1, 16 KiB 9.7 / 10.4 beside 14.6 / 14.9; ChaCha20-Poly1305 "
        "2.2 and 2.5, both alike; each within 8 %. Cheetah uses ring. aws-lc would save 0.2 us of the 14.2 us of a 4 KiB read, "
        "which meets no further bar, and about 0.06 ms of the two sides' work on 1 MiB. It would add 0.7 MB to the program, and CMake to "
        "its build.",
    ),
    Part(
        "seal",
        "Sealed drives",
        "A drive striped over three nodes on this machine, sealed, beside the same drive not sealed, through writable exports; "
        "and beside nbdkit's luks filter over a file in memory, which encrypts without authentication, and has no nodes "
        "behind it. An image is sealed in units of 64 KiB, a scratch drive in units of 4 KiB. In a room, nodes and client are members "
        "of it, so that connections are encrypted, too. Memory and space: beside what is allowed. Reads at depth 1 are many "
        "short runs, because the kernel's choice of processors for threads changes the rate from run to run. "
        "On an Intel Xeon of the same day, the read of an image was 1.44 [1.38 – 1.49] times that of luks, with both processors "
        "97 % busy: 38 % copies between kernel and programs, 13 % AES-GCM, 9 % CRC-64 of pages.",
    ),
    Part(
        "patterns",
        "Patterns of access over 1 Gbit/s links with 0.3 ms of round trip",
        "Read through the mount, cold, by one thread; beside the same bytes read forward with records of the same "
        "size. Strided: see below the table.",
    ),
    Part(
        "thesis",
        "The thesis's table 5.1, and its applications",
        "A striped drive over three nodes on this machine, writable, with ext4 on a loop device over its mounted "
        "file, beside ext4 on the machine's own disk; caches dropped before every reading. Only tar has a bar; the "
        "thesis's ratio, against its disk of 2005, is in brackets.",
    ),
    *DOCUMENTS,
    Part("memory", "Memory", "Peak resident memory (VmHWM) beside what is allowed."),
    Part(
        "acquire",
        "An image to another machine",
        "`cheetah acquire` from an agent beside pipes through nc, until the receiver has written, flushed and hashed "
        "the image (MD5). Our fastest method is compared with the fastest pipe; on links with a rate, its "
        "bytes on the wire with iperf3's throughput. 1 GiB over loopback, 512 MiB over 1 Gbit/s, 128 MiB over "
        "100 Mbit/s and 20 ms; at most 256 MiB for gzip and 64 MiB for bzip2.",
        transfer_table,
    ),
    Part(
        "ewf",
        "E01 images",
        "A real file system of 1 GiB. Written from a local file in memory to the disk and flushed; read through fresh "
        "mounts with an empty page cache, an image that ewfacquire wrote.",
    ),
    Part(
        "unlock",
        "Locked volumes",
        "A real volume of BitLocker with NTFS in it, and a volume of LUKS, read through a mount: beside other programs that decrypt "
        "them, and beside the same volume unlocked, on this machine and over a link with a delay.",
    ),
    Part(
        "iscsi",
        "iSCSI over long links",
        "A logical unit of random bytes, served by tgtd, with 20 ms of round trip. Ours is hashed (MD5) and flushed; "
        "no peer hashes. dd, which waits for each piece, copies 32 MiB only.",
    ),
    Part(
        "lazy",
        "A drive that is used before it is full",
        "Over 100 Mbit/s with 20 ms of round trip: the first byte of files that are not there yet, while the copy in "
        "the background has the link, beside the same bytes read straight from the agent, with nothing else on it.",
    ),
    Part(
        "triage",
        "Triage over a delayed link",
        "`fls -r -m /` and 200 × `icat | sha256sum`, unmodified, on our mount of a remote NBD source, beside nbdfuse "
        "on the same, nbdkit's filters on the examiner's machine, iSCSI, and a full copy first.",
        triage_tables,
        has_cases=True,
    ),
    Part(
        "icat",
        "Files through a mount, after a listing",
        "200 × `icat | sha256sum`, unmodified, on our mount of a remote NBD source (nbdkit) over 1 Gbit/s, delays one way, beside the image "
        "at hand: right after `fls -r -m /`, and the same files once more.",
        has_cases=True,
    ),
    Part(
        "readahead",
        "Read-ahead, read-behind and workers over a delayed link",
        "Makowski's measurements over iSCSI (NFI, 2016), repeated over NBD: every read extended by a fixed size, "
        "and several extracting at once, from cold caches. Listing and extracting an NTFS image over 1 Gbit/s, delays "
        "one way. The peers of ours are the fixed sizes.",
        prefetching.report,
    ),
    Part(
        "remote-readahead",
        "Read-ahead and read-behind over iSCSI, and a second read",
        "The same over iSCSI (tgtd, the initiator of libiscsi) and over NBD, one request at a time. One larger read fetches "
        "the bytes ahead or behind; or, as in the code of 2016, further reads after the first do.",
        grid.report("remote-readahead"),
        "bench.remote.readahead",
        long=True,
    ),
    Part(
        "remote-triage",
        "`cheetah triage` over NBD and iSCSI, by workers, delay, loss, and in the field",
        "`cheetah triage --quick` of NTFS and ext4 images by 1 to 16 workers over delayed links (one way), over links that lose packets in "
        "each direction, over a geostationary satellite and over a mobile link; beside the same triage through the peers' clients and after a full copy. "
        "The emulated links are those of workshop/lab/README.md.",
        grid.report("remote-triage"),
        "bench.remote.triage",
        long=True,
    ),
    Part(
        "remote-loss",
        "Acquiring and listing over links that lose packets",
        "0 to 1 % of packets lost in each direction, at each delay (one way), and two links of the field, over NBD with one connection and eight and over "
        "iSCSI with one session and eight; beside nbdcopy, qemu-img with libiscsi, and nbdfuse.",
        grid.report("remote-loss"),
        "bench.remote.loss",
        long=True,
    ),
    Part(
        "remote-tuning",
        "Tuning: `--tune`, TCP, and the keys of iSCSI",
        "`cheetah acquire` from an agent with `--tune` off, auto and from a file, by congestion control, the greatest window and the number of connections; a mount "
        "that is read from its start; and acquiring from tgtd with one key of the login changed at a time.",
        grid.report("remote-tuning"),
        "bench.remote.tuning",
        long=True,
    ),
    Part(
        "remote-blocks",
        "Short blocks over iSCSI, and sequential writes over a delay",
        "Reads at random of 512 B to 64 KiB of an iSCSI unit through `cheetah export` and through qemu-nbd with libiscsi; and writes of a drive over NBD "
        "beside an iSCSI unit written by qemu-img.",
        grid.report("remote-blocks"),
        "bench.remote.blocks",
        long=True,
    ),
    Part(
        "transfer-contents",
        "An image to another machine: when each end is done",
        "Images of zeros, random bytes and files (ext4) of 1 MiB to 10 GiB: made on a slow disk and on this machine's, and sent between two such disks over "
        "1 Gbit/s. `auto` beside the fixed methods of compression.",
        grid.report("transfer-contents"),
        "bench.remote.contents",
        long=True,
    ),
    Part(
        "transfer-receivers",
        "An image to another machine: what receives it",
        "`cat | nc` into `dd`, `dd bs=1M`, `cat`, and `cheetah acquire`, over 1 Gbit/s, cold and warm, onto a slow disk and this machine's; and an image larger "
        "than the memory of each end.",
        grid.report("transfer-receivers"),
        "bench.remote.receivers",
        long=True,
    ),
    Part(
        "transfer-compressed",
        "An image to another machine: compressed before",
        "gzip, bzip2, xz and zstd: sizes, times and equality of two runs on two disks; the compressed files sent by a pipe that unpacks, and acquired; "
        "compressed in flight; and what the buffers hold meanwhile.",
        grid.report("transfer-compressed"),
        "bench.remote.compressed",
        long=True,
    ),
    Part(
        "findings",
        "`cheetah triage --quick` over a slow link",
        "The large images over 100 Mbit/s and 40 ms of round trip, from cold caches.",
    ),
    Part(
        "probe",
        "Probe: packets on time, and what a path is",
        "`cheetah probe` beside other tools, over a veth pair whose far end's kernel stamps packets on arrival, "
        "and over emulated paths; then the tables of the paper that it follows (Mok et al., PAM 2015).",
        probe_tables.report,
        "bench.probe.measure",
    ),
    Part(
        "probe-rates",
        "Probe: set rates, and cross traffic",
        "`cheetah probe` beside a program that spins, in turns: trains at set rates, and trains beside TCP over the same interface.",
        probe_tables.report_of("probe-rates"),
        "bench.probe.rates",
    ),
    Part(
        "probe-clocks",
        "Probe: clocks, sleeps and the closest packets",
        "The small tables of the paper: differences of clock readings, oversleeping, packets sent as fast as possible, and trains beside "
        "flows of D-ITG.",
        probe_tables.report_of("probe-clocks"),
        "bench.probe.clocks",
    ),
    Part(
        "probe-available",
        "Probe: available bandwidth",
        "`cheetah probe --only available` over spaced links with cross traffic, beside the rate of TCP: right within 15 %, or not known. "
        "An estimate that no round knew is `not measured` in the first table.",
        probe_tables.report_of("probe-available"),
        "bench.probe.available",
    ),
    Part(
        "probe-shapes",
        "Probe: capacity through shaped paths",
        "`cheetah probe --only capacity` without a far end's help: right within 2 %, or not known, never wrong.",
        probe_tables.report_of("probe-shapes"),
        "bench.probe.shapes",
    ),
    Part(
        "probe-simulated",
        "Probe: a simulated machine",
        "Trains of each backend and of plain programs in an emulated machine whose clock counts instructions, idle, with busy loops, and "
        "with cross traffic. All times are simulated.",
        probe_tables.report_of("probe-simulated"),
        "bench.probe.simulated",
    ),
    Part(
        "probe-backends",
        "Probe: the backends that send",
        "The backends of `cheetah probe` beside each other, by gap and load: which is the best where.",
        probe_tables.report_of("probe-backends"),
        "bench.probe.backends",
    ),
    Part(
        "storage",
        "Which storage makes forensic work fast",
        "`cheetah bench storage` on this machine's disk and on drives over 1, 2 and 3 nodes with ext4, linear and striped, "
        "over loopback and behind links of 1 Gbit/s: 256 MiB of ext4, read from memory by the copy; caches cold, three "
        "repetitions in turns. First the overhead of the harness, and its figures "
        "beside those measured by hand (`md5sum` and `strings` with bash's `time`, and fio), on the disk.",
        storage_tables.report,
    ),
    Part(
        "boot",
        "Idle machines that join by themselves",
        "The boot image in emulated machines (QEMU without hardware virtualisation, two processors, 4 GiB) beside what is "
        "allowed. Measured on an Intel Xeon, not on the processor above.",
    ),
    Part(
        "attach",
        "A block device of the kernel",
        "`cheetah attach` of a drive (one node) and of an image, through the kernel's nbd and its ublk, beside `nbd-client` on "
        "`nbdkit memory` (Unix socket), all in one emulated machine (QEMU without hardware virtualisation, one processor, "
        "Debian's kernel); read by fio without the page cache. Between a program and the bytes of a drive there is one process "
        "more, the node, so a drive is also measured beside an `nbdkit nbd` that is in front of `nbdkit memory`.",
    ),
    Part(
        "aoe",
        "A disk of another machine: AoE, NBD and iSCSI",
        "`cheetah acquire` of 8 MiB of random bytes over a link with delay and loss in each direction, by the kernel's `aoe` "
        "from `vblade`, by NBD from `nbdkit` and by iSCSI from `tgtd`. All is in one emulated machine (QEMU without hardware "
        "virtualisation, one processor, Debian's kernel), the servers behind a pair of veth ends with netem and frames of "
        "1500 bytes. `vblade` queues 16 requests, unless a column says otherwise. Then a listing and some files of an ext4 of 32 MiB by The Sleuth Kit.",
    ),
    Part(
        "search",
        "Search where the bytes lie",
        "`cheetah search --at-nodes` of a drive striped over four nodes that lend a thread each, beside the same search at "
        "the examiner, which reads the drive; the hits must be equal. 4 GiB of noise with words planted in it. Then the engine on one "
        "processor beside other programs, an image in memory that is half text; drives that are sealed or that fill; and a "
        "foreground job on a node that searches. The nodes of one machine share its processors, which real ones do not.",
        module="bench.search.measure",
        has_cases=True,
    ),
    Part(
        "workers",
        "Listing and hashing an image at hand",
        "Files a second, from the command to the report, from cold caches, beside The Sleuth Kit's own tools.",
    ),
    Part(
        "plaso",
        "plaso on a mounted drive",
        "plaso's log2timeline on a mounted drive over three nodes of this machine, beside the same image as a file on its disk.",
    ),
    Part(
        "windows",
        "The program for Windows, in Wine",
        "`cheetah.exe` run by Wine, beside the same program on Linux. **Wine is not Windows**: its server and Linux's kernel do the work of "
        "Windows' kernel, so these figures show the cost of the program itself, and not how fast it is on Windows. One node "
        "on loopback TCP; then `cheetah acquire` on Linux from an agent behind a link of 1 Gbit/s, beside what iperf3 carries over it.",
    ),
)


def chosen(key: str) -> list[str]:
    """Returns the parts that a word on the command line names: `all` names those that do not take hours."""
    return [part.key for part in PARTS if not part.long] if key == "all" else [key]


def with_cases() -> list[str]:
    """Returns the parts of which single cases can be measured."""
    return [part.key for part in PARTS if part.has_cases]


def module_of(key: str) -> Any:
    """Returns the name of the module that measures a part."""
    return next(part.module for part in PARTS if part.key == key) or f"bench.parts.{key}"


def reasons() -> Any:
    """Returns why bars were missed, by figure."""
    notes = configparser.ConfigParser(delimiters=("=",), interpolation=None)
    notes.read(NOTES, encoding="utf-8")
    return dict(notes["reasons"]) if notes.has_section("reasons") else {}


def row(figure: Figure, why: Any) -> str:
    """Returns one line of a table; it gives the reason only where a bar was missed, or nothing was measured."""
    if figure.ours not in figure.samples:
        return f"| {figure.what} | not measured | | | | | {why} |"
    ours = spread(figure.samples[figure.ours])
    peer = figure.peer()
    theirs, ratio = "", ""
    if peer:
        # A pipe in a name would end the cell.
        theirs = f"{spread(figure.samples[peer])} {peer}".replace("|", "\\|")
        if figure.ratio() is not None:
            low, high = figure.ratio_spread()
            ratio = f"**{figure.ratio():.2f}** [{low:.2f} – {high:.2f}]"
    sign = "≥" if figure.better == "higher" else "≤"
    bar = "" if figure.bar is None else f"{sign} {figure.bar:g}"
    met = {None: "", True: "yes", False: "**no**"}[figure.met()]
    reason = why if figure.met() is False else ""
    return f"| {figure.what} ({figure.unit}) | {ours} | {theirs} | {ratio} | {bar} | {met} | {reason} |"


def table(figures: list[Figure], why: Any) -> Any:
    """Returns figures as a table."""
    lines = ["| what | ours | best peer | ratio | bar | met | reason |", "|---|---|---|---|---|---|---|"]
    return lines + [row(figure, why.get(figure.id.lower(), "")) for figure in figures]


def candidates(figures: list[Figure]) -> list[str]:
    """Returns figures of equal candidates, none of which is ours, as a table."""
    if not figures:
        return []
    names = list(dict.fromkeys(name for figure in figures for name in figure.samples))
    lines = ["| what | " + " | ".join(names) + " |", "|---" * (len(names) + 1) + "|"]
    for figure in figures:
        cells = (spread(figure.samples[name]) if figure.samples.get(name) else "" for name in names)
        lines.append(f"| {figure.what} ({figure.unit}) | " + " | ".join(cells) + " |")
    return [*lines, ""]


def page(part: Part, content: Any, why: Any) -> list[str]:
    """Returns the page of a part that was measured."""
    lines = [f"# {part.title}", "", part.about, ""]
    when = f"{content['finished']}, {content['rounds']} rounds, {content['machine']['cheetah']}"
    lines += [f"*{when}.*" + (" **A quick run: not to be quoted.**" if content["quick"] else ""), ""]
    barred = [figure for figure in content["figures"] if figure.bar is not None]
    # Equal candidates, none of which is ours, have their own tables.
    others = [figure for figure in content["figures"] if figure.bar is None and figure.ours is not None]
    if barred:
        lines += [*table(barred, why), ""]
    if barred and others:
        lines += ["Measured beside, without a bar:", ""]
    if others:
        lines += [*table(others, why), ""]
    lines += part.more(content["figures"]) or candidates([one for one in content["figures"] if one.ours is None])
    # A table may have the same note.
    notes = sorted({figure.note for figure in content["figures"] if figure.note} - set(lines))
    return lines + [line for note in notes for line in (note, "")]
