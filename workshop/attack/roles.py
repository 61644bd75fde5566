"""Attacks of a room's own members: verbs that their role forbids."""

import contextlib
import shutil
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from attack.liars import Ran, check_words, each
from attack.rooms import Room, node_of, room
from attack.stage import Broken, Stage

ROLES = ("examiner", "analyst", "node", "agent")
LOSS = ("lost", "behind", "empty", "--force-lease", "bring them back")
"""Words that say that content is gone."""
REFUSAL = ("is revoked", "role", "may not")


@dataclass(frozen=True)
class Member:
    """A member with a credential of a role, perhaps revoked."""

    role: str
    is_revoked: bool
    credential: Path

    def may(self, only_reads: bool) -> bool:
        """Whether it may run a verb."""
        return not self.is_revoked and self.role in (("examiner", "analyst") if only_reads else ("examiner",))

    def shown(self) -> str:
        """Its role, and whether it is revoked."""
        return f"revoked {self.role}" if self.is_revoked else self.role


def _verbs(
    stage: Stage, drive: Path, source: Path, first: str, spare: str
) -> list[tuple[bool, tuple[str | Path, ...]]]:
    """Verbs that use a drive's nodes, and whether they only read."""
    return [
        (True, ("status", drive)),
        (True, ("verify", drive, "--no-log")),
        (True, ("save", drive, stage.path(".raw"))),
        (True, ("save", drive, stage.path(".raw"), "--partial")),
        (True, ("acquire", drive, stage.path(".raw"))),
        (False, ("export", drive, "--writable", "--unix", stage.path(".sock"))),
        (False, ("export", drive, "--writable", "--force-lease", "--unix", stage.path(".sock"))),
        (False, ("load", drive, source, "--force")),
        (False, ("load", drive, source, "--force", "--force-lease")),
        (False, ("repair", drive)),
        (False, ("repair", drive, "--check")),
        (False, ("drain", first, "--to", spare, "--drive", drive)),
        (False, ("enlarge", drive, "--nodes", f"{first},{spare}", "--layout", "mirror", "--size", "1MiB")),
        (False, ("create", stage.path(".drive"), "--nodes", spare, "--size", "1MiB", "--no-seal")),
        (False, ("acquire", source, drive, "--force")),
        (False, ("destroy", drive)),
    ]


def _check_refusal(ran: Ran) -> None:
    """It is refused in words, and not told that content is lost."""
    check_words(ran)
    code, out, complaint = ran
    said = (out + complaint).lower()
    loss = [word for word in LOSS if word in said]
    if code != 1 or loss or not any(word in said for word in REFUSAL):
        raise Broken(f"it ended with {code}, {loss}: {said[-300:]}")


def roles(stage: Stage) -> None:
    """Members of each role, revoked and not, run verbs: those that their role permits succeed, the others are refused and change
    nothing."""
    with room(stage) as made, contextlib.ExitStack() as stack:
        nodes = [stack.enter_context(node_of(made, name)).ready["nbd"] for name in ("a", "b", "c")]
        drive, content = stage.path(".drive"), stage.content[: 1 << 20]
        source = stage.path(".raw")
        source.write_bytes(content)
        made.examiner.must(
            "create", drive, "--nodes", ",".join(nodes[:2]), "--layout", "mirror", "--no-seal", "--from", source
        )
        members = [
            Member(role, is_revoked, made.credential(role, f"{role}-{is_revoked}"))
            for is_revoked in (False, True)
            for role in ROLES
        ]
        made.examiner.must("room", "revoke", *(f"{role}-True" for role in ROLES))
        each({member.shown(): partial(_tries, made, member, drive, source, nodes) for member in members})
        saved = stage.path(".raw")
        made.examiner.must("verify", drive, "--no-log")
        made.examiner.must("save", drive, saved)
        if saved.read_bytes() != content:
            raise Broken("a verb that was refused, or only reads, changed the drive")


def _tries(made: Room, member: Member, drive: Path, source: Path, nodes: list[str]) -> None:
    """Runs each verb as a member, with a copy of the drive file on a machine of its own."""
    machine, folder = made.machine(), made.stage.path("")
    folder.mkdir()
    copy = folder / drive.name
    for suffix in ("", ".digests", ".custody"):
        shutil.copyfile(f"{drive}{suffix}", f"{copy}{suffix}")
    before = drive.read_bytes()
    for only_reads, words in _verbs(made.stage, copy, source, nodes[0], nodes[2]):
        if member.may(only_reads) and not only_reads:
            continue
        ran = machine.run(*words, "--room", member.credential)
        try:
            if not member.may(only_reads):
                _check_refusal(ran)
            elif ran[0] != 0:
                raise Broken(f"it ended with {ran[0]}: {ran[2][-300:]}")
            if copy.read_bytes() != before:
                raise Broken("the drive file was changed")
        except Broken as error:
            raise Broken(f"{' '.join(str(word) for word in words)}: {error}") from error
