"""What the listing of a volume says, without another process."""

import io
import json
from pathlib import Path
from typing import Any

from triage_worker import worker

from cheetah.places.listing import VolumeListing
from cheetah.places.pipe import Pipe


class Heard(Pipe):
    """What a lister says, and a source that is read without it."""

    def __init__(self) -> None:
        self.files: list[dict[str, Any]] = []
        self.messages: list[dict[str, Any]] = []
        super().__init__(io.BytesIO(), io.BytesIO(), 0, None)

    def say(self, **message: Any) -> None:
        message = json.loads(json.dumps(message))
        self.messages.append(message)
        if "file" in message:
            self.files.append({**message["file"], "runs": [], "names": 1})
        elif "runs" in message:
            self.files[-1]["runs"] += message["runs"]
        elif "name" in message:
            self.files[message["name"]]["names"] += 1

    def of(self, path: str) -> dict[str, Any]:
        (found,) = [one for one in self.files if one["path"] == path and not one["deleted"]]
        return found

    @property
    def problems(self) -> list[str]:
        (done,) = [message["done"] for message in self.messages if "done" in message]
        return list(done["problems"])


def heard(image: Path, fs: str, source: Any = None) -> Heard:
    """Lists an image that is one file system."""
    one = worker(image, fs, source)
    said = Heard()
    VolumeListing(one, one.volumes[0], said).say()
    return said
