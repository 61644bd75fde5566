"""Attacks on what vouches for a drive: content, digests, drive file and custody log are altered or exchanged together."""

import json
import re
import shutil
import urllib.request
from pathlib import Path

from attack.stage import Broken, Stage
from attack.wire import WRITE, Client

BESIDE = ("", ".digests", ".custody")
"""The suffixes of a drive file and of the files that vouch for it."""
EXCHANGED = (("",), (".digests",), (".custody",), ("", ".digests"), (".digests", ".custody"))


def exchanged(stage: Stage) -> None:
    """Puts files of a drive of an altered image in place of another's. Drive file and log together would be the other drive
    under this one's name."""
    altered = stage.path(".raw")
    altered.write_bytes(b"forged" + stage.content[6:])
    with stage.node("file") as node:
        mine, theirs = stage.drive([node]), stage.drive([node], altered)
        originals = {suffix: Path(f"{mine}{suffix}").read_bytes() for suffix in BESIDE}
        for suffixes in EXCHANGED:
            for suffix in suffixes:
                shutil.copyfile(f"{theirs}{suffix}", f"{mine}{suffix}")
            _must_be_found(stage, mine, f"{', '.join(suffix or '.drive' for suffix in suffixes)} exchanged")
            _put_back(stage, mine, originals)
        for suffix in (".digests", ".custody"):
            Path(f"{mine}{suffix}").unlink()
            _must_be_found(stage, mine, f"{suffix} removed")
            _put_back(stage, mine, originals)
        stage.must("verify", mine)


def planted(stage: Stage) -> None:
    """Writes to a node behind the back of every drive file."""
    with stage.node("file") as node:
        drive = stage.drive([node])
        found = re.search(rf"nbd://{node.ready['nbd']}/([\w.-]+)", drive.read_text())
        if not found:
            raise Broken("the drive file does not name its node")
        with Client(node.ready["nbd"]) as client:
            client.go(found[1])
            client.request(WRITE, 4096, 7, data=b"planted")
            if client.reply()[0] != 0:
                raise Broken("the node takes no write of a client without a lease")
        code, said, _ = stage.run("verify", drive)
        if code != 3:
            raise Broken(f"verify of a drive with planted content ended with {code}: {said.strip()}")
        if '"ok":true' in Path(f"{drive}.custody").read_text():
            raise Broken("planted content was signed as verified")


RECEIPT = """
[set.node.receipt]
format = "cheetah wipe receipt 1"
node = "x"
instance = "00"
drive = "another drive"
export = "another export"
wiped_bytes = 1048576
method = "none"
verified_zero = true
nonce = "00000000000000000000000000000000"
time = "2026-01-01T00:00:00Z"

[[set.node.receipt.ranges]]
offset = 0
len = 1048576
"""


def receipts(stage: Stage) -> None:
    """Puts a forged receipt of a node into a drive file: the drive is destroyed at the node all the same."""
    with stage.node("file") as node:
        drive = stage.drive([node])
        sealed, count = re.subn(r'(instance = "\w+"\nsize = \d+\n)', rf"\1{RECEIPT}", drive.read_text(), count=1)
        if count != 1:
            raise Broken("the drive file has no place for a receipt")
        head, _, body = sealed.split("\n", 2)
        drive.write_text(f'{head}\nseal = "{_blake3(stage, body.encode())}"\n{body}')
        code, said, complaint = stage.run("destroy", drive)
        used = json.loads(urllib.request.urlopen(f"http://{node.ready['http']}/v1/status").read())["exports"]
        if code != 0:
            raise Broken(f"exit code {code}: {complaint.strip()}")
        if used:
            raise Broken(f"destroy believes a forged receipt, and the node keeps the image: {said.strip()}")


def _blake3(stage: Stage, content: bytes) -> str:
    """Returns the BLAKE3 of some bytes."""
    file = stage.path(".raw")
    file.write_bytes(content)
    said = stage.must("--json", "acquire", file, stage.path(".raw"), "--hash", "blake3")
    return str(json.loads(said.splitlines()[-1])["report"]["hashes"]["blake3"])


def cut_log(stage: Stage) -> None:
    """Cuts a custody log back to each of its records."""
    image = stage.path(".raw")
    stage.must("acquire", stage.image, image)
    stage.must("verify", image)
    log = Path(f"{image}.custody")
    lines = log.read_bytes().splitlines(keepends=True)
    for kept in range(len(lines)):
        log.write_bytes(b"".join(lines[:kept]))
        code, _, complaint = stage.run("verify", image)
        if code == 0:
            raise Broken(f"a log that was cut back to {kept} of {len(lines)} records verifies")
        if code not in (1, 3):
            raise Broken(f"exit code {code}: {complaint.strip()}")


def _put_back(stage: Stage, drive: Path, originals: dict[str, bytes]) -> None:
    """Also forgets the ledger, which knows the log with the records of later verifications."""
    shutil.rmtree(stage.folder / "state", ignore_errors=True)
    for suffix, content in originals.items():
        Path(f"{drive}{suffix}").write_bytes(content)


def _must_be_found(stage: Stage, drive: Path, name: str) -> None:
    code, _, complaint = stage.run("verify", drive)
    if code == 0:
        raise Broken(f"{name}: the drive verifies")
    if code not in (1, 3):
        raise Broken(f"{name}: exit code {code}: {complaint.strip()}")
