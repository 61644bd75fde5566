"""Hash lists in every common form, compared with a plain set of strings."""

import hashlib
import os
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from cheetah.triage.search import hashset, hashtext

Make = Callable[[str, str | bytes], hashset.HashList]


@pytest.fixture
def opened(tmp_path: Path) -> Make:
    def make(name: str, text: str | bytes) -> hashset.HashList:
        path = tmp_path / name
        path.write_bytes(text.encode("latin-1") if isinstance(text, str) else text)
        (found,) = hashset.open_lists([str(path)], cache=str(tmp_path / "cache"))
        return found

    return make


def hashes(algorithm: str, count: int, seed: int = 0) -> list[str]:
    return [hashlib.new(algorithm, f"{seed} {number}".encode()).hexdigest() for number in range(count)]


def holds(found: hashset.HashList, digests: list[str]) -> list[bool]:
    return found.contains([bytes.fromhex(one) for one in digests])


@pytest.mark.parametrize("algorithm", ["md5", "sha1", "sha256"])
def test_hashes_may_have_comments_names_and_any_case(opened: Make, algorithm: str) -> None:
    inside, outside = hashes(algorithm, 5000), hashes(algorithm, 500, 1)
    forms = (
        "{}\n",
        "{}  ./a folder/file\n",
        "{} *binary\r\n",
        "\n{}\n",
        "# a comment\n{}\n",
        "  {}\n",
        "{},Example,1\n",
        "{}\t3\n",
    )
    text = "\ufeff".encode().decode("latin-1")
    for number, one in enumerate(inside):
        text += forms[number % len(forms)].format(one.upper() if number % 3 else one)
    found = opened("list.txt", text.rstrip("\n"))
    assert (found.algorithm, found.count, found.name) == (algorithm, 5000, "list.txt")
    assert all(holds(found, inside)) and not any(holds(found, outside))
    assert found.contains([None, bytes.fromhex(inside[0])]) == [False, True]


def test_the_nsrl_is_searched_by_sha1(opened: Make) -> None:
    sha1, md5 = hashes("sha1", 300), hashes("md5", 300)
    text = '"SHA-1","MD5","CRC32","FileName","FileSize","ProductCode","OpSystemCode","SpecialCode"\r\n'
    text += "".join(
        f'"{a.upper()}","{b.upper()}","0A1B2C3D","x, ""y"".dll",12,3,"189",""\r\n'
        for a, b in zip(sha1, md5, strict=True)
    )
    found = opened("NSRLFile.txt", text)
    assert (found.algorithm, found.count) == ("sha1", 300) and all(holds(found, sha1))


def test_tables_are_searched_by_their_strongest_hash(opened: Make) -> None:
    md5, sha256 = hashes("md5", 50), hashes("sha256", 50)
    text = "%%%% HASHDEEP-1.0\n%%%% size,md5,sha256,filename\n## Invoked from: /home\n##\n"
    text += "".join(f"12,{a},{b},/a/file, with commas\n" for a, b in zip(md5, sha256, strict=True))
    found = opened("deep.txt", text)
    assert (found.algorithm, found.count) == ("sha256", 50) and all(holds(found, sha256))


def test_bsd_and_tagged_sums_are_parsed(opened: Make) -> None:
    inside = hashes("sha256", 20)
    assert all(holds(opened("tagged", "".join(f"SHA256 (some file) = {one}\n" for one in inside)), inside))


@pytest.mark.parametrize("algorithm", ["md5", "sha1", "sha256"])
def test_sorted_records_are_used_directly(opened: Make, algorithm: str, tmp_path: Path) -> None:
    inside = hashes(algorithm, 2000)
    found = opened("list.bin", b"".join(sorted(bytes.fromhex(one) for one in inside)))
    assert found.records == str(tmp_path / "list.bin") and found.algorithm == algorithm
    assert all(holds(found, inside)) and not any(holds(found, hashes(algorithm, 200, 1)))


@pytest.mark.parametrize("end", ["\n", "\r", "\r\n", "\x0b", "\x0c", "\x85", "\u2028", "\u2029"])
def test_a_text_list_may_have_any_line_ends(opened: Make, end: str) -> None:
    inside = hashes("md5", 500)
    for name, text in (
        ("plain", end.join(inside)),
        ("first", "md5,name" + end + "".join(f"{one},x{end}" for one in inside)),
        ("second", "name,md5" + end + "".join(f"x,{one}{end}" for one in inside)),
    ):
        found = opened(name, text.encode())
        assert found.count == 500 and all(holds(found, inside)), name
    with pytest.raises(ValueError, match=r"bad, line 3: "):
        opened("bad", end.join([*inside[:2], "nothing", *inside[2:]]).encode())


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-32"])
def test_a_text_list_with_a_byte_order_mark_is_decoded(opened: Make, encoding: str) -> None:
    inside = hashes("sha1", 300)
    found = opened("list", "".join(f"{one}  file\r\n" for one in inside).encode(encoding))
    assert found.count == 300 and all(holds(found, inside))


def test_unsorted_records_are_refused(opened: Make) -> None:
    records = sorted(bytes.fromhex(one) for one in hashes("sha1", 2000))
    records[7], records[1500] = records[1500], records[7]
    with pytest.raises(ValueError, match="no sorted file of records"):
        opened("list.bin", b"".join(records))


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (hashes("md5", 1)[0] + "\nnot a hash\n", 2),
        (hashes("md5", 1)[0] + "\n" + hashes("md5", 1)[0][:31] + "\n", 2),
        ("\n\n" + hashes("md5", 1)[0] + "\n" + hashes("sha1", 1)[0] + "\n", 4),
        ("# only a comment\nabc\n", 2),
        ('"SHA-1","MD5"\n"' + hashes("sha1", 1)[0] + '","x"\n"zz","y"\n', 3),
    ],
)
def test_a_line_without_a_hash_is_an_error_with_its_number(opened: Make, text: str, line: int) -> None:
    with pytest.raises(ValueError, match=rf"bad\.txt, line {line}: "):
        opened("bad.txt", text)


def test_a_late_invalid_line_is_named_by_its_number(opened: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hashtext, "_CHUNK_BYTES", 1000)
    lines = hashes("sha1", 400)
    lines[321] = "?"
    with pytest.raises(ValueError, match=r"line 322: "):
        opened("bad.txt", "\n".join(lines))
    lines[321] = lines[0]
    found = opened("good.txt", "\n".join(lines))
    assert found.count == 399 and all(holds(found, lines))


def test_an_empty_list_is_an_error(opened: Make) -> None:
    with pytest.raises(ValueError, match="there is no hash in this list"):
        opened("empty.txt", "# nothing\n\n")


def test_a_changed_list_is_converted_again(tmp_path: Path) -> None:
    path, cache = tmp_path / "list.txt", str(tmp_path / "cache")
    path.write_text("\n".join(hashes("md5", 10)))
    (first,) = hashset.open_lists([str(path)], cache=cache)
    converted = Path(first.records).stat()
    assert hashset.open_lists([str(path)], cache=cache) == [first]
    assert Path(first.records).stat() == converted
    path.write_text("\n".join(hashes("md5", 11)))
    os.utime(path, ns=(1, 1))
    (second,) = hashset.open_lists([str(path)], cache=cache)
    assert second.count == 11


@pytest.mark.parametrize("form", ["lines", "table", "records"])
def test_progress_is_reported_while_a_list_is_prepared(
    form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hashtext, "_CHUNK_BYTES", 4096)
    monkeypatch.setattr(hashtext, "_CSV_ROWS", 100)
    monkeypatch.setattr(hashset, "_PIECE_BYTES", 4096)
    monkeypatch.setattr(hashset, "_DIGEST_PIECE_BYTES", 4096)
    inside, path, cache = hashes("sha1", 2000), tmp_path / "list", str(tmp_path / "cache")
    records = b"".join(sorted(bytes.fromhex(one) for one in inside))
    table = "name,sha1\n" + "".join(f"x,{one}\n" for one in inside)
    path.write_bytes({"lines": "\n".join(inside).encode(), "table": table.encode(), "records": records}[form])
    heard: list[tuple[int, int]] = []
    for total in (path.stat().st_size, len(records)):
        heard.clear()
        hashset.open_lists([str(path)], lambda *done: heard.append(done), cache)
        done = [one for one, _ in heard]
        assert {of for _, of in heard} == {total}
        assert heard[-1] == (total, total)
        assert len(set(done)) >= 8
        assert form == "records" or done == sorted(done)


@pytest.mark.parametrize("kind", ["text", "records"])
def test_changed_records_are_converted_again(tmp_path: Path, kind: str) -> None:
    inside, cache = hashes("sha1", 500), tmp_path / "cache"
    path = tmp_path / "list"
    records = b"".join(sorted(bytes.fromhex(one) for one in inside))
    path.write_bytes(records if kind == "records" else "\n".join(inside).encode())
    (first,) = hashset.open_lists([str(path)], cache=str(cache))
    assert all(holds(first, inside))
    # As after a power cut: the right size, and zeros where data were.
    damaged = Path(first.records)
    status = damaged.stat()
    damaged.write_bytes(records[:4000] + bytes(2000) + records[6000:])
    os.utime(damaged, ns=(status.st_atime_ns, status.st_mtime_ns))
    if kind == "records":
        with pytest.raises(ValueError, match="no sorted file of records"):
            hashset.open_lists([str(path)], cache=str(cache))
    else:
        (second,) = hashset.open_lists([str(path)], cache=str(cache))
        assert second == first and all(holds(second, inside))


def test_cached_lists_are_private(tmp_path: Path) -> None:
    path, cache = tmp_path / "list", tmp_path / "cache"
    path.write_text("\n".join(hashes("md5", 10)))
    cache.mkdir(mode=0o755)
    hashset.open_lists([str(path)], cache=str(cache))
    assert cache.stat().st_mode & 0o777 == 0o700
    assert {one.stat().st_mode & 0o777 for one in cache.iterdir()} == {0o600} and len(list(cache.iterdir())) == 2


def test_similar_hashes_are_distinguished(opened: Make) -> None:
    chance = random.Random(4)
    inside = [bytes(8) + chance.randbytes(8) for _ in range(300)] + [chance.randbytes(15) + b"\0" for _ in range(300)]
    inside += [bytes(16), b"\xff" * 16]
    found = opened("list.txt", "".join(one.hex() + "\n" for one in inside * 2))
    assert found.count == 602 and all(found.contains(inside))
    assert not any(found.contains([one[:15] + bytes([one[15] ^ 1]) for one in inside]))
