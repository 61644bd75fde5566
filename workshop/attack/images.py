"""Mutated images and side files, each read by `acquire` and `verify`."""

import shutil
from pathlib import Path

from attack.stage import Broken, Stage

SIZE = 512 << 10


def mutated_images(stage: Stage) -> None:
    """Acquires and verifies mutated E01 images, and verifies drives by mutated drive files and digests. Every run must
    end with one of Cheetah's exit codes; a success must have delivered the original bytes."""
    raw = stage.path(".raw")
    raw.write_bytes(stage.content[: SIZE // 2] + bytes(SIZE // 2))
    e01 = stage.path(".E01")
    stage.must("acquire", raw, e01)
    folder = stage.path("")
    folder.mkdir()
    for count in range(stage.times(100, 1_500)):
        copy = folder / f"{count}.E01"
        copy.write_bytes(mutated(stage, e01.read_bytes()))
        run(stage, "verify", copy)
        out = folder / f"{count}.raw"
        if run(stage, "acquire", copy, out) == 0 and out.read_bytes() != raw.read_bytes():
            raise Broken(f"{shutil.copy(copy, '/tmp')} is acquired as a success, with wrong bytes")
        remove(folder)


def mutated_drive_files(stage: Stage) -> None:
    """Opens drives by mutated drive files, and verifies them against mutated digests. The untouched drive must be whole
    in the end."""
    with stage.node("file") as node:
        drive = stage.drive([node])
        digests = Path(f"{drive}.digests")
        originals = {path: path.read_bytes() for path in (drive, digests)}
        for count in range(stage.times(60, 600)):
            path = (drive, digests)[count % 2]
            path.write_bytes(mutated(stage, originals[path]))
            run(stage, "verify" if path == digests else "status", drive)
            path.write_bytes(originals[path])
        stage.must("verify", drive)


def run(stage: Stage, *words: str | Path) -> int:
    """Runs a verb that may fail, but only in an orderly way; returns the exit code."""
    code, _, complaint = stage.run(*words)
    if code not in (0, 1, 2, 3) or "panicked" in complaint:
        kept = shutil.copy(words[1], "/tmp")
        raise Broken(f"cheetah {words[0]} {kept} ended with {code}: {complaint.strip()[-300:]}")
    return code


def mutated(stage: Stage, content: bytes) -> bytes:
    """Returns the content with one to three random changes."""
    data = bytearray(content)
    for _ in range(stage.random.randint(1, 3)):
        at = stage.random.randrange(max(1, len(data)))
        if stage.random.random() < 0.6:
            # Headers, tables and trailers lie at the ends.
            at = stage.random.choice([at % 4096, max(0, len(data) - 1 - at % 4096)])
        length = stage.random.choice([1, 1, 2, 4, 8, 76, 4096])
        match stage.random.randrange(6):
            case 0:
                data[at : at + 1] = bytes([data[at] ^ 1 << stage.random.randrange(8)] if at < len(data) else [])
            case 1:
                data[at : at + length] = bytes(len(data[at : at + length]))
            case 2:
                data[at : at + length] = b"\xff" * len(data[at : at + length])
            case 3:
                del data[at : at + length]
            case 4:
                data[at:at] = data[at : at + length]
            case _:
                del data[at:]
    return bytes(data)


def remove(folder: Path) -> None:
    """Empties a folder."""
    for path in folder.iterdir():
        path.unlink()
