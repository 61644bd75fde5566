"""Encrypted volumes that keys open: read, and triaged."""

import gzip
import json
import pickle
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
import triage_images
from conftest import MIB, program, run
from triage_workers import Alone

import cheetah
from cheetah.triage import cli
from cheetah.triage.hub import run as hub
from cheetah.triage.hub.closing import DONE, EVIDENCE
from cheetah.triage.hub.folder import Misuse
from cheetah.triage.hub.run import Run
from cheetah.triage.settings import Settings

PASSWORD = "Correct-Horse-77"
RECOVERY_PASSWORD = "284867-596541-514998-422114-660297-261613-215424-199408"


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """One worker, in this process."""
    monkeypatch.setattr(hub, "_start_workers", lambda uri, settings: Alone(uri, settings))


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    """A file with some keys, one of which is the right one."""
    path = tmp_path / "keys.txt"
    path.write_text(f"wrong\n{PASSWORD}\n{RECOVERY_PASSWORD}\n")
    return path


def luks(image: Path) -> Path:
    """A volume of LUKS with the content of an image.

    cryptsetup makes the header, because qemu-img first measures how fast it derives a key, and gives up where the kernel
    has not yet counted any time of a process that has just begun.
    """
    locked, secret = image.with_suffix(".luks"), image.with_name("secret")
    secret.write_text(PASSWORD)
    with locked.open("wb") as file:
        file.truncate(2 * MIB + image.stat().st_size)
    format = ["luksFormat", "--batch-mode", "--type", "luks1", "--pbkdf-force-iterations", "1000", "--key-file", secret]
    run(program("cryptsetup"), *format, locked)
    target = ["--target-image-opts", image, f"driver=luks,key-secret=one,file.filename={locked}"]
    run(program("qemu-img"), "convert", "-n", "-f", "raw", "--object", f"secret,id=one,file={secret}", *target)
    secret.unlink()
    return locked


def disk(volume: Path) -> Path:
    """A disk with the volume in its first partition, and nothing known in its second one."""
    content = volume.read_bytes()
    sectors = len(content) // 512
    entries = [struct.pack("<B3xB3xII", 0, 0x83, *place) for place in ((2048, sectors), (2048 + sectors, 2048))]
    table = bytes(446) + b"".join(entries).ljust(64, b"\0") + b"\x55\xaa"
    path = volume.with_name("disk.raw")
    path.write_bytes(table.ljust(MIB, b"\0") + content + bytes(MIB))
    return path


def triaged(image: Path, out: Path, *keys: Path) -> tuple[int, dict]:
    """The exit code and the summary of a triage."""
    settings = Settings(str(image), str(out), unlock=tuple(map(str, keys)))
    code, summary = Run(settings, lambda event: None, ("cheetah", "triage")).go()
    return code, summary


def test_an_opened_volume_reads_decrypted_where_it_lies_encrypted(tmp_path: Path, ext4: Path, keys: Path) -> None:
    image = tmp_path / "plain.raw"
    image.write_bytes(ext4.read_bytes())
    path = disk(luks(image))
    with cheetah.open(path, unlock=[keys]) as device:
        assert device.unlocked is not None and not device.locked
        (volume,) = device.unlocked["opened"]
        assert (volume["partition"], volume["protector"]) == (1, "key slot 0")
        assert volume["format"].startswith("LUKS, encrypted (")
        assert device.pread(volume["offset"], volume["size_bytes"]) == image.read_bytes()
        assert device.pread(0, MIB) == path.read_bytes()[:MIB]
        assert PASSWORD not in repr(device.__reduce__())
        with pickle.loads(pickle.dumps(device)) as again:
            assert again.unlocked == device.unlocked
    # One file need not be in a list. Without a key, the source is as it is on the disk.
    with cheetah.share(path, unlock=str(keys)) as share, cheetah.open(share.uri) as reader:
        assert share.unlocked == {"opened": [volume], "locked": []}
        assert reader.pread(volume["offset"], 4096) == image.read_bytes()[:4096]
    with cheetah.open(path) as device:
        assert device.unlocked is None
        assert device.read() == path.read_bytes()


def test_a_wrong_key_is_a_sentence_and_a_missing_file_an_error(tmp_path: Path, ext4: Path) -> None:
    image = tmp_path / "plain.raw"
    image.write_bytes(ext4.read_bytes())
    path, wrong = disk(luks(image)), tmp_path / "wrong"
    wrong.write_text("wrong")
    with cheetah.open(path, unlock=wrong) as device:
        (sentence,) = device.locked
        assert sentence.startswith("partition 1, LUKS") and sentence.endswith("stays locked: none of the keys opens it")
        assert device.read() == path.read_bytes()
    with pytest.raises(cheetah.Error, match="reading the key file"):
        cheetah.open(path, unlock=tmp_path / "none")


def test_a_triage_lists_the_files_in_an_opened_volume_as_in_an_unlocked_one(tmp_path: Path, keys: Path) -> None:
    image = triage_images.ext4(tmp_path)
    path = disk(luks(image))
    code, summary = triaged(path, tmp_path / "out", keys)
    assert code == DONE
    (volume,) = [one for one in summary["volumes"] if one["fs"]]
    assert volume["fs"] == "ext4" and "LUKS" in volume["description"] and "key slot 0" in volume["description"]
    assert volume["start"] == summary["source"]["unlocked"]["opened"][0]["offset"]
    plain, _ = triaged(image, tmp_path / "plain")
    assert plain == DONE
    assert (tmp_path / "out/bodyfile.txt").read_bytes() == (tmp_path / "plain/bodyfile.txt").read_bytes()
    log = [json.loads(line) for line in (tmp_path / "out/triage.custody").read_text().splitlines()]
    (record,) = [one["details"] for one in log if one["event"] == "unlocked"]
    assert record == summary["source"]["unlocked"]
    assert "with <bdi>key slot 0</bdi>; read decrypted" in (tmp_path / "out/report.html").read_text()
    for file in (tmp_path / "out").rglob("*"):
        assert not file.is_file() or PASSWORD.encode() not in file.read_bytes(), file


def test_a_volume_that_stays_locked_is_a_gap(tmp_path: Path, ext4: Path) -> None:
    image = tmp_path / "plain.raw"
    image.write_bytes(ext4.read_bytes())
    wrong = tmp_path / "wrong"
    wrong.write_text("wrong")
    code, summary = triaged(disk(luks(image)), tmp_path / "out", wrong)
    assert code == EVIDENCE
    (locked,) = [one["sentence"] for one in summary["problems"] if "stays locked" in one["sentence"]]
    assert locked.startswith("partition 1, LUKS") and locked.endswith("none of the keys opens it")


def test_a_triage_without_the_key_is_not_resumed_with_it(tmp_path: Path, ext4: Path, keys: Path) -> None:
    image = tmp_path / "plain.raw"
    image.write_bytes(ext4.read_bytes())
    path = luks(image)
    triaged(path, tmp_path / "out")
    with pytest.raises(Misuse, match=r"other settings \(unlocked\)"):
        triaged(path, tmp_path / "out", keys)
    code, summary = triaged(path, tmp_path / "other", keys)
    assert (code, [one["fs"] for one in summary["volumes"]]) == (DONE, ["ext4"])
    assert triaged(path, tmp_path / "other", keys)[0] == DONE


def test_a_volume_of_bitlocker_is_opened_and_its_erased_file_system_is_a_gap(
    tmp_path: Path, evidence: Callable[[str], Path], keys: Path
) -> None:
    # The makers of this image have overwritten all but its first clusters: NTFS has a boot sector and no MFT.
    path = tmp_path / "laptop.raw"
    path.write_bytes(gzip.decompress(evidence("locked/recovery_password.bin.gz").read_bytes()))
    code, summary = triaged(path, tmp_path / "out", keys)
    assert code == EVIDENCE
    (volume,) = summary["volumes"]
    assert "opened with recovery password 3c116b76-" in volume["description"]
    assert volume["description"].endswith(", NTFS")
    (gap,) = [one["sentence"] for one in summary["problems"] if one["gap"]]
    assert "NTFS, which The Sleuth Kit does not open" in gap
    assert RECOVERY_PASSWORD not in (tmp_path / "out/report.html").read_text()


def test_the_files_of_a_volume_of_filevault_are_listed(tmp_path: Path, evidence: Callable[[str], Path]) -> None:
    keys = tmp_path / "keys.txt"
    keys.write_text("wrong\nfvde-TEST\n")
    code, summary = triaged(evidence("locked/fvdetest.qcow2"), tmp_path / "out", keys)
    assert code == DONE
    (volume,) = [one for one in summary["volumes"] if "opened with password 4D67658C-" in one["description"]]
    assert (volume["fs"], volume["files"]) == ("hfs", 11)


def test_a_key_file_must_exist_and_keys_stay_on_this_machine(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    words = ["disk.raw", "--out", str(tmp_path / "out"), "--unlock"]
    for more in ([str(tmp_path / "none")], [__file__, "--scheduler", "tcp://lab1:8786"]):
        with pytest.raises(SystemExit) as ended:
            cli.parse([*words, *more])
        assert ended.value.code == cli.MISUSED
        assert "--unlock" in capsys.readouterr().err
