"""Types by content, of real files made by available tools, and misleading extensions."""

import bz2
import gzip
import io
import lzma
import os
import random
import sqlite3
import struct
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from cheetah.triage.kinds import extensions, types
from cheetah.triage.kinds.signatures import HEAD_BYTES
from cheetah.triage.ranking import folder_kinds


def name(data: bytes) -> str | None:
    found = types.recognise(data[:HEAD_BYTES], len(data))
    return found.name if found else None


def zipped(*names: str, first: tuple[str, bytes] | None = None) -> bytes:
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        if first:
            archive.writestr(first[0], first[1], zipfile.ZIP_STORED)
        for one in names:
            archive.writestr(one, b"content " * 100)
    return target.getvalue()


def ole(*streams: str) -> bytes:
    header = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(22) + struct.pack("<H", 9) + bytes(16) + struct.pack("<I", 1)
    entries = b""
    for one in ("Root Entry", *streams):
        text = one.encode("utf-16-le") + b"\0\0"
        entries += text.ljust(64, b"\0") + struct.pack("<H", len(text)) + bytes(62)
    return header.ljust(1024, b"\0") + entries.ljust(1024, b"\0")


def pe() -> bytes:
    return (b"MZ" + bytes(58) + struct.pack("<I", 128)).ljust(128, b"\0") + b"PE\0\0" + bytes(500)


def test_files_of_standard_tools_are_identified(tmp_path: Path) -> None:
    text = b"Dear Ann,\nthe goods are under the bridge.\n" * 20
    tar = io.BytesIO()
    with tarfile.open(fileobj=tar, mode="w") as archive:
        archive.addfile(tarfile.TarInfo("a.txt"))
    database = sqlite3.connect(tmp_path / "a.db")
    database.execute("create table a (b)")
    database.commit()
    database.close()
    assert name(gzip.compress(text, mtime=0)) == "gzip"
    assert name(bz2.compress(text)) == "bzip2"
    assert name(lzma.compress(text)) == "xz"
    assert name(tar.getvalue()) == "tar"
    assert name((tmp_path / "a.db").read_bytes()) == "sqlite"
    assert name(Path(os.path.realpath(sys.executable)).read_bytes()) == "elf"


def test_the_content_of_a_zip_decides_its_type() -> None:
    assert name(zipped("a.txt")) == "zip"
    assert name(zipped("[Content_Types].xml", "_rels/.rels", "docProps/app.xml", "word/document.xml")) == "docx"
    assert name(zipped("[Content_Types].xml", "_rels/.rels", "xl/workbook.xml")) == "xlsx"
    assert name(zipped("[Content_Types].xml", "ppt/presentation.xml")) == "pptx"
    assert name(zipped("META-INF/MANIFEST.MF", "A.class")) == "jar"
    assert name(zipped("AndroidManifest.xml", "META-INF/MANIFEST.MF")) == "apk"
    odt = ("mimetype", b"application/vnd.oasis.opendocument.text")
    assert name(zipped("content.xml", first=odt)) == "odt"
    assert name(zipped("META-INF/container.xml", first=("mimetype", b"application/epub+zip"))) == "epub"
    encrypted = bytearray(zipped("secret.txt"))
    encrypted[6] |= 1
    assert name(bytes(encrypted)) == "zip-encrypted"


def test_the_content_of_a_compound_file_decides_its_type() -> None:
    assert name(ole("WordDocument", "1Table")) == "doc"
    assert name(ole("Workbook")) == "xls"
    assert name(ole("PowerPoint Document")) == "ppt"
    assert name(ole("__properties_version1.0")) == "msg"
    assert name(ole("EncryptionInfo", "EncryptedPackage")) == "ooxml-encrypted"
    assert name(ole("Something")) == "ole"


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", "empty"),
        (pe(), "pe"),
        (b"MZ" + bytes(100), "mz"),
        (b"\n\n%PDF-1.7\n%\xe2\xe3\xcf\xd3\n" + bytes(99), "pdf"),
        (b"\xff\xd8\xff\xe1" + bytes(99), "jpeg"),
        (b"RIFF\x10\0\0\0WEBPVP8 ", "webp"),
        (b"RIFF\x10\0\0\0WAVEfmt ", "wav"),
        (b"\0\0\0\x18ftypheic\0\0\0\0", "heif"),
        (b"\0\0\0\x18ftypisom\0\0\0\0", "mp4"),
        (b"\x1a\x45\xdf\xa3\x9f\x42\x82\x84webm" + bytes(60), "webm"),
        (b"regf" + bytes(500), "registry"),
        (b"ElfFile\0" + bytes(500), "evtx"),
        (b"\x4c\0\0\0\x01\x14\x02\0\0\0\0\0\xc0\0\0\0\0\0\0\x46" + bytes(60), "lnk"),
        (struct.pack("<I", 30) + b"SCCA" + bytes(99), "prefetch"),
        (b"!BDN" + bytes(4) + b"SM" + bytes(99), "pst"),
        (struct.pack("<IHH", 0xA1B2C3D4, 2, 4) + bytes(16), "pcap"),
        (b"LUKS\xba\xbe\0\2" + bytes(99), "luks"),
        (b"\xeb\x58\x90-FVE-FS-" + bytes(600), "bitlocker"),
        (bytes(32769) + b"CD001\1" + bytes(99), "iso9660"),
        (b"EVF\x09\x0d\x0a\xff\0" + bytes(99), "e01"),
        (b"\xca\xfe\xba\xbe\0\0\0\x34" + bytes(20), "java-class"),
        (b"\xca\xfe\xba\xbe\0\0\0\x02" + bytes(20), "mach-o"),
        (b"Rar!\x1a\x07\0\xcf\x90\x73\x80\0\x0d\0", "rar-encrypted"),
        (b"Rar!\x1a\x07\1\0" + bytes(20), "rar"),
        (bytes(4096), None),
        (b"BMW is a car, and no bitmap", "text"),
        (b"MThis is a letter about MZ", "text"),
        ("Grüße aus Köln\r\n".encode(), "text"),
        ("Grüße aus Köln, wo es heute wieder regnet und regnet\r\n".encode("latin-1"), "text"),
        ("\ufeffGrüße".encode("utf-16-le"), "text"),
        ("a letter without a mark at its beginning".encode("utf-16-le"), "text"),
        ("ü".encode() * 20_000 + b"x", "text"),
        (b"a" + "ü".encode() * 20_000, "text"),
        (b"text, and then \0\1\2", None),
        (b"  <!DOCTYPE html>\n<html>", "html"),
        (b"<?xml version='1.0'?>\n<svg xmlns='x'>", "svg"),
        (b"<?xml version='1.0'?>\n<a/>", "xml"),
        (b"#!/bin/sh\necho\n", "script"),
        (b"Return-Path: <a@b>\nReceived: from c\n by d\nFrom: a\nTo: b\n\nHello", "eml"),
        (b"From ann@example.org Sat Jan  3 01:05:34 1996\nSubject: x\n", "mbox"),
        (b"-----BEGIN PGP MESSAGE-----\n\nhQ", "pgp"),
        (b"-----BEGIN OPENSSH PRIVATE KEY-----\n", "private-key"),
    ],
)
def test_signatures_are_identified(data: bytes, expected: str | None) -> None:
    assert name(data) == expected


def test_random_bytes_are_distinguished_from_compressed_ones() -> None:
    chance = random.Random(8)
    noise = [chance.randbytes(HEAD_BYTES) for _ in range(40)]
    assert {name(one) for one in noise} == {"random"}
    words = " ".join(chance.choices([chance.randbytes(3).hex() for _ in range(3000)], k=120_000)).encode()
    for packed in (gzip.compress(words, mtime=0)[10:], bz2.compress(words)[11:], words):
        assert name(packed[: len(packed) // 512 * 512]) != "random"


def test_truncated_heads_raise_nothing() -> None:
    chance = random.Random(3)
    samples = [
        zipped("word/document.xml"),
        ole("WordDocument"),
        pe(),
        b"\xff\xfb\x90\x64" + bytes(800),
        b"Rar!\x1a\x07\1\0\0\0\0\0\0\4",
    ]
    for sample in samples:
        for _ in range(300):
            data = bytearray(sample[: chance.randrange(1, len(sample) + 1)])
            for _ in range(chance.randrange(6)):
                data[chance.randrange(len(data))] = chance.randrange(256)
            types.recognise(bytes(data), chance.choice((len(data), 1 << 30)))


@pytest.mark.parametrize(
    ("extension", "data", "lies"),
    [
        ("txt", pe(), True),
        ("TXT", zipped("a"), True),
        ("jpg", zipped("a"), True),
        ("jpg", b"<html><body>not found</body></html>", True),
        ("jpg", b"\x89PNG\r\n\x1a\n", False),
        ("pdf", pe(), True),
        ("docx", pe(), True),
        ("docx", ole("EncryptedPackage"), False),
        ("doc", b"{\\rtf1 hello}", False),
        ("xls", b"<html><table>", False),
        ("zip", zipped("word/document.xml"), False),
        ("log", b"regf" + bytes(99), False),
        ("exe", pe(), False),
        ("exe", b"MZ" + bytes(80), False),
        ("exe", b"\xff\xd8\xff\xe1" + bytes(99), True),
        ("js", b"var a = 1;\n", False),
        ("c", b"#!/usr/bin/tcc -run\n", False),
        ("dat", pe(), False),
        ("", pe(), False),
        ("blend", gzip.compress(b"x", mtime=0), False),
        ("jpg", b"", False),
        ("jpg", bytes(4096), False),
        ("jpg", b"\x01\x02\x03" + bytes(4096), True),
    ],
)
def test_mismatched_extensions_are_reported(extension: str, data: bytes, lies: bool) -> None:
    assert (extensions.mismatch(extension, types.recognise(data, len(data)), data) is not None) == lies


def test_a_deleted_file_mismatches_only_with_a_signature() -> None:
    unknown = b"\x01\x02\x03" + bytes(4096)
    assert extensions.mismatch("jpg", types.recognise(unknown, 4099), unknown, trusted=False) is None
    assert extensions.mismatch("jpg", types.recognise(pe(), len(pe())), pe(), trusted=False) is not None


@pytest.mark.parametrize(
    ("path", "data", "odd"),
    [
        ("/Users/ann/AppData/Local/Temp/a.exe", pe(), True),
        ("/$Recycle.Bin/S-1-5/a.dat", pe(), True),
        ("/tmp/.x/y", b"\x7fELF" + bytes(99), True),
        ("/Users/ann/Pictures/holiday.scr", pe(), True),
        ("/Windows/System32/a.dll", pe(), False),
        ("/Users/ann/Downloads/setup.exe", pe(), False),
        ("/Users/ann/Downloads/invoice.pdf.exe", pe(), True),
        ("/Users/ann/Documents/photo\u202egpj.exe", pe(), True),
        ("/tmp/a.txt", b"text", False),
    ],
)
def test_misplaced_programs_are_reported(path: str, data: bytes, odd: bool) -> None:
    found = types.recognise(data, len(data))
    assert found is not None and (folder_kinds.misplaced(path, found) is not None) == odd
