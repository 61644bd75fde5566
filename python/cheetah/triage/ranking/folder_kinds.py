"""Kinds of folders: users' own folders rank first, the system's last."""

import dataclasses
import functools
import re

from cheetah.triage.kinds.extensions import words
from cheetah.triage.kinds.signatures import Type


@dataclasses.dataclass(frozen=True)
class FolderKind:
    """A kind of folder. A file in it gets `points`; `programs` says whether programs belong there."""

    name: str
    points: int
    programs: bool = True


ELSEWHERE = FolderKind("elsewhere", 0)
_USER = r"(?:users|documents and settings|home)/[^/]+|root"
_PROGRAMS = r"appdata|local settings|application data|library|\.mozilla"
_SYSTEM = r"windows|winnt|program files(?: \(x86\))?|usr|lib|lib64|bin|sbin|boot|opt|system|applications|snap"

# The first pattern that matches a folder's path, in lower case, without a leading drive or slash.
_PLACES: tuple[tuple[re.Pattern[str], FolderKind], ...] = tuple(
    (re.compile(pattern), place)
    for pattern, place in (
        (r"(?:.*/)?(?:\$recycle\.bin|recycler|recycled|\.trashes|\.trash|\.trash-\d+|\.local/share/trash)(?:/|$)",
         FolderKind("in the recycle bin", 40, programs=False)),
        (rf"(?:{_USER})/desktop(?:/|$)", FolderKind("on a user's desktop", 40)),
        (rf"(?:{_USER})/downloads?(?:/|$)", FolderKind("in a user's downloads", 40)),
        (rf"(?:{_USER})/(?:(?:my )?documents|onedrive|dropbox|google drive)(?:/|$)",
         FolderKind("in a user's documents", 40)),
        (rf"(?:{_USER})/(?:(?:my )?(?:pictures|music|videos)|fotos|photos)(?:/|$)",
         FolderKind("among a user's pictures, music and films", 30, programs=False)),
        (rf"(?:{_USER})/(?:\.ssh|\.gnupg|\.aws|\.config/autostart)(?:/|$)",
         FolderKind("where a user's keys and settings are", 40)),
        (r"(?:.*/)?start menu/programs/startup(?:/|$)", FolderKind("among programs that start automatically", 50)),
        (r"(?:etc/cron[^/]*|var/spool/cron|etc/systemd/system|etc/init\.d|windows/(?:system32/)?tasks)(?:/|$)",
         FolderKind("among programs that start automatically", 30)),
        (rf"(?:{_USER})/(?:appdata/local/temp|local settings/temp)(?:/|$)",
         FolderKind("in a folder for temporary files", 30, programs=False)),
        (r"(?:tmp|var/tmp|dev/shm|temp|windows/temp|private/tmp|private/var/tmp)(?:/|$)",
         FolderKind("in a folder for temporary files", 30, programs=False)),
        (rf"(?:{_USER})/(?:{_PROGRAMS}|\.cache)/.*(?:cache|temporary internet files)",
         FolderKind("in the cache of a program", 5, programs=False)),
        (rf"(?:{_USER})/(?:{_PROGRAMS}|\.config|\.local)(?:/|$)",
         FolderKind("among data that programs keep for a user", 10)),
        (rf"(?:{_USER})(?:/|$)", FolderKind("in a user's folder", 30)),
        (r"system volume information(?:/|$)", FolderKind("in the system's own folder", 0, programs=False)),
        (r"windows/(?:winsxs|assembly|installer|servicing|softwaredistribution)(?:/|$)",
         FolderKind("among the system's files", -30)),
        (r"windows/fonts(?:/|$)", FolderKind("among the fonts", -10, programs=False)),
        (r"windows/(?:prefetch|system32/(?:winevt|config))(?:/|$)", FolderKind("among the system's logs", 25)),
        (r"var/log(?:/|$)", FolderKind("among the system's logs", 25)),
        (rf"(?:{_SYSTEM})(?:/|$)", FolderKind("among the system's files", -20)),
    )
)  # fmt: skip

_NATIVE = frozenset(("pe", "elf", "mach-o", "mz"))
_HARMLESS_LOOKING = words("pdf doc docx xls xlsx ppt pptx txt rtf jpg jpeg png gif mp3 mp4 avi zip")
_RUNNABLE = words("exe scr com pif bat cmd vbs js jar lnk ps1 hta")
# They reverse the direction of writing: "gpj.exe" looks like "exe.jpg".
_OVERRIDES = frozenset("\u202d\u202e\u2066\u2067\u2068")


def of(path: str) -> FolderKind:
    """Returns the kind of folder that holds a file ("/Users/ann/Desktop/a.txt")."""
    return _of_folder(path.rpartition("/")[0])


@functools.lru_cache(maxsize=1 << 14)
def _of_folder(folder: str) -> FolderKind:
    folder = folder.lower().lstrip("/")
    for pattern, place in _PLACES:
        if pattern.match(folder):
            return place
    return ELSEWHERE


def misplaced(path: str, found: Type) -> str | None:
    """Returns why a program's place or name is suspicious, or None."""
    name = path.rpartition("/")[2]
    stem, _, extension = name.rpartition(".")
    if _OVERRIDES & set(name):
        return "its name contains marks that reverse the direction of writing, so that it is displayed as another"
    if extension.lower() in _RUNNABLE and stem.rpartition(".")[2].lower() in _HARMLESS_LOOKING and "." in stem:
        return f"it is executable, and its name pretends to be a .{stem.rpartition('.')[2].lower()}"
    place = of(path)
    if found.name in _NATIVE and not place.programs:
        return f"a program ({found.name}) {place.name}"
    return None
