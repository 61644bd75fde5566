"""The parts that repeat the experiments of the documents. Each takes hours, and is measured only when named."""

from bench.part import Part
from bench.report import documents

DOCUMENTS = (
    Part(
        "disk-models",
        "The models of disks beside their data sheets",
        "Each model behind a loop device, read by fio: how far it is from the middle of what its data sheet allows (5 % to each side; at depth "
        "32, which no data sheet states, 1.4 to 3 times the rate alone), as a share of that. Then the model without delays: what the "
        "program itself takes. No row is of a real disk.",
        module="bench.documents.models",
        long=True,
        has_cases=True,
    ),
    Part(
        "thesis-table",
        "The thesis's table 5.1 over links, beside models of disks",
        "ext4 on a drive over six nodes as in the thesis, one of them on the examiner's machine and the others behind its one link "
        "with 0.2 ms of round trip, on a loop device over the mounted file; beside ext4 on models of the thesis's IDE disk and of "
        "a 7,200 rpm disk (workshop/lab/README.md), and on this machine's disk. The first case is the thesis's; each further one differs from it in "
        "one thing. The bar beside the IDE disk is the thesis's ratio. Its last row is what passes the link.",
        documents.thesis_table,
        "bench.documents.table51",
        long=True,
        has_cases=True,
    ),
    Part(
        "thesis-table-guest",
        "The thesis's table 5.1 on a block device of the kernel",
        "ext4 on `cheetah attach --writable` of a drive over two nodes, in an emulated machine (QEMU without hardware virtualisation, one "
        "processor, Debian's kernel) whose network ends at the nodes, beside ext4 on models of disks there. No bar: each request costs an emulated "
        "processor more than the link does.",
        module="bench.documents.guest_table",
        long=True,
        has_cases=True,
    ),
    Part(
        "thesis-tools",
        "The thesis's applications over links, beside models of disks",
        "tar, sorter, Scalpel and md5sum on two NTFS images with deleted files, on the drive of the part before and on the same disks; "
        "results are written beside the image. The bar of Scalpel is the thesis's ratio.",
        documents.thesis_tools,
        "bench.documents.applications",
        long=True,
        has_cases=True,
    ),
    Part(
        "read-ahead",
        "Read-ahead, taken apart",
        "One reader of records of 4 KiB over one link of 1 Gbit/s, by policy: none, the kernel's alone, fixed sizes, the thesis's, which "
        "doubles from 4 to 128 KiB, and ours. Fixed sizes and the thesis's are a server on the examiner's machine (Python), under nbdfuse.",
        documents.read_ahead,
        "bench.documents.policies",
        long=True,
        has_cases=True,
    ),
    Part(
        "arrays",
        "Arrays of disks",
        "The five steps of 2009 with an image of 4 GiB, on one disk, on a faster one, and on drives over four disks by our own stripe "
        "and parity. All disks are models (workshop/lab/README.md), each of an array behind an NBD server.",
        documents.arrays,
        "bench.documents.arrays",
        long=True,
        has_cases=True,
    ),
    Part(
        "arrays-md",
        "Arrays of disks under the kernel's RAID",
        "The check of the part before: four models of 7,200 rpm disks under md (RAID 0 and RAID 5, 64 KiB) in an emulated machine, and under a "
        "drive's stripe and parity with the same unit on this machine, each as a multiple of one such disk on the same way.",
        module="bench.documents.md",
        long=True,
    ),
    Part(
        "iozone",
        "The matrix of iozone",
        "Files and records of the sizes of 2009 by fio: on this machine's disk, on the model of a 7,200 rpm disk, on a drive over three "
        "nodes on this machine, and on one over three nodes with a link of 1 Gbit/s each; `cached` is read from the page cache. Then 4 KiB by other engines of fio.",
        documents.iozone,
        "bench.documents.iozone",
        long=True,
        has_cases=True,
    ),
    Part(
        "filesystems",
        "File systems on the same disk",
        "Seven steps of an examination on each file system, on the model of a 7,200 rpm disk, and on a drive over three nodes on this "
        "machine. A write that is cut off leaves data and parity of RAID 5 apart (the write hole), whatever the file system; "
        "Cheetah's map says which regions are being written, and its parity is compared with digests (docs/guide/layouts.md).",
        more=documents.filesystems,
        module="bench.documents.filesystems",
        long=True,
        has_cases=True,
    ),
    Part(
        "filesystems-guest",
        "File systems that this machine's kernel lacks",
        "The seven steps on jfs and reiserfs, beside ext4, on the model of a 7,200 rpm disk in an emulated machine with Debian's kernel 6.12, whose "
        "processor is slow: compare file systems with each other only. Linux 6.13 has no reiserfs any more; reiser4 was never part of Linux.",
        module="bench.documents.guest_filesystems",
        long=True,
    ),
    Part(
        "large",
        "Large drives",
        "A drive grows from one node to eight, each behind a link of 1 Gbit/s and lending 600 MiB: nodes added one by one, nodes that join as they "
        "start (as the thesis's cache servers do), and a drive created over all at once. Then the largest drive that this machine "
        "holds, written and read back, every byte compared.",
        module="bench.documents.large",
        long=True,
        has_cases=True,
    ),
    Part(
        "analysts",
        "Several analysts at once",
        "Each reads its own part of the evidence, from a machine behind a link of 1 Gbit/s with 0.2 ms of round trip: from a drive over "
        "four nodes with such links, and from one server with such a link, whose disk is a model of a 7,200 rpm disk, or this machine's.",
        documents.analysts,
        "bench.documents.analysts",
        long=True,
        has_cases=True,
    ),
)
