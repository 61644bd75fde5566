"""The program for Windows, run by Wine."""

import contextlib
import dataclasses
import os
import shutil
import tempfile
from collections.abc import Sequence

from bench.scratch import Scratch
from bench.tools.cheetah import ROOT
from cheetah.bench.failure import BenchError
from cheetah.bench.process import run
from cheetah.bench.verbs import Enter

TARGET = "x86_64-pc-windows-gnu"
FOLDER = os.path.join(ROOT, "target", "static", TARGET)
# Where Debian's package has Wine's programs, besides the folders of programs.
DEBIAN = "/usr/lib/wine"
END_TIMEOUT_S = 60


def there(path: str) -> str:
    """Returns a path of this machine as programs in Wine have it."""
    return "Z:" + path.replace("/", "\\")


def release_build(folder: str = FOLDER) -> str:
    """Returns the program for Windows. Raises BenchError if there is none, or only a quick build for tests."""
    path, next_step = os.path.join(folder, "cheetah.exe"), f"make static TARGET={TARGET} builds it"
    if not os.path.exists(path):
        raise BenchError(f"there is no {path}: {next_step}")
    profile = "an unknown profile"
    with contextlib.suppress(FileNotFoundError), open(os.path.join(folder, "profile"), encoding="utf-8") as file:
        profile = f"the profile {file.read().strip()}"
    if profile != "the profile release":
        raise BenchError(f"{path} is a build of {profile}, whose speed says nothing: {next_step}")
    return path


def program(name: str, in_package: str) -> str:
    """Returns one of Wine's programs. Raises BenchError if it is not installed."""
    found = shutil.which(name) or os.path.join(DEBIAN, in_package)
    if not os.access(found, os.X_OK):
        raise BenchError(f"there is no {name}: install Wine (Debian: wine64; scripts/install-deps --windows)")
    return found


@dataclasses.dataclass(frozen=True)
class Wine:
    """`cheetah.exe` in Wine, with a folder of Wine of its own, and so with Wine's server of its own.

    Sockets of programs in Wine are opened by that server. It is started by the first program, in the network namespace
    of that program, so programs of one folder must be in one namespace.
    """

    loader: str
    binary: str
    libraries: str
    folder: str

    @classmethod
    def new(cls, scratch: Scratch, enter: Enter = list) -> "Wine":
        """Makes Wine's folder, and runs the program once, which takes some seconds, in the namespace of `enter`."""
        binary, loader = release_build(), program("wine64", "wine64")
        libraries = run([os.path.join(ROOT, "scripts", "wine-library")]).strip()
        made = cls(loader, binary, libraries, tempfile.mkdtemp(prefix="wine-", dir=scratch.disk_dir))
        # Wine's own processes outlive the program for some seconds.
        scratch.at_exit(made.end)
        # Its output goes to a file: they would keep a pipe open.
        scratch.start("cheetah.exe", enter(made.command(["cheetah", "--version"]))).wait_end()
        return made

    def command(self, argv: Sequence[str]) -> list[str]:
        """Returns a command line of `cheetah` with this program instead, which has settings of its own."""
        settings = there(os.path.join(self.folder, "settings"))
        variables = {
            "WINEPREFIX": os.path.join(self.folder, "prefix"),
            "WINEDEBUG": "-all",
            "WINEPATH": there(self.libraries),
            "XDG_CONFIG_HOME": settings,
            "XDG_STATE_HOME": settings,
        }
        named = [f"{name}={value}" for name, value in variables.items()]
        return ["env", "-u", "CHEETAH_ROOM", *named, self.loader, self.binary, *argv[1:]]

    def version(self) -> str:
        """Returns the version of Wine."""
        return run([self.loader, "--version"]).strip()

    def end(self) -> None:
        """Ends Wine's own processes."""
        with contextlib.suppress(BenchError):
            server = program("wineserver", "wineserver64")
            # It fails if they have ended already.
            ended = ["env", f"WINEPREFIX={os.path.join(self.folder, 'prefix')}", server, "--kill"]
            run(ended, END_TIMEOUT_S, check=False)
