"""TLS for Dask with the credential of a room's member.

Dask runs any code that it is sent. So scheduler, workers and clients accept each other only as members of the room that
may read drives, examiners and analysts, and only until they are revoked.
"""

import ssl
from typing import Any

from distributed.security import Security  # type: ignore[import-untyped,unused-ignore]

from cheetah import _native

ROLES = ("examiner", "analyst")
"""The roles that take part."""


class RoomContext(ssl.SSLContext):
    """The TLS of a room's member."""

    membership: _native.Membership


class _Checked:
    """A connection to a member with one of `ROLES`. Nothing is exchanged with any other, nor after a revocation."""

    context: Any
    _peer: _native.Peer | None = None

    def do_handshake(self, *args: Any) -> None:
        """Performs the handshake, and then checks the peer."""
        super().do_handshake(*args)  # type: ignore[misc]
        certificate = self.getpeercert(True)  # type: ignore[attr-defined]
        try:
            peer = self.context.membership.peer(certificate or b"")
        except OSError as error:
            # Tornado looks at the number, and closes the connection.
            raise ssl.SSLError(ssl.SSL_ERROR_SSL, str(error)) from error
        if peer.role not in ROLES:
            raise ssl.SSLError(ssl.SSL_ERROR_SSL, f"the peer is no {' or '.join(ROLES)} of the room")
        self._peer = peer

    def read(self, *args: Any) -> Any:
        """Reads, unless the peer is revoked. All ways of receiving lead here."""
        self._check()
        return super().read(*args)  # type: ignore[misc]

    def _check(self) -> None:
        if self._peer is not None and self._peer.is_revoked():
            raise ssl.SSLError(ssl.SSL_ERROR_SSL, "the peer is revoked")


class RoomSocket(_Checked, ssl.SSLSocket):
    """A connection with a socket of its own."""

    def send(self, *args: Any) -> int:
        """Sends, unless the peer is revoked."""
        self._check()
        return super().send(*args)


class RoomObject(_Checked, ssl.SSLObject):
    """A connection of which asyncio has the socket."""

    def write(self, *args: Any) -> int:
        """Sends, unless the peer is revoked."""
        self._check()
        return super().write(*args)


class RoomSecurity(Security):  # type: ignore[misc,unused-ignore]
    """Dask's security, by the credential in a file as Cheetah keeps it: certificate, key and authority. Raises OSError if
    the file cannot be read or used."""

    def __init__(self, credential: str):
        super().__init__(require_encryption=True)  # type: ignore[no-untyped-call,unused-ignore]
        self.credential = credential
        self._membership = _native.Membership(credential)
        self._context(ssl.PROTOCOL_TLS_CLIENT)

    def __reduce__(self) -> tuple[Any, ...]:
        """A nanny's worker is another process: it reads the credential itself, so no key is sent."""
        return (RoomSecurity, (self.credential,))

    def get_connection_args(self, role: str) -> dict[str, Any]:
        """Returns Dask's arguments for connecting; its own roles make no difference."""
        context = self._context(ssl.PROTOCOL_TLS_CLIENT)
        return {"ssl_context": context, "require_encryption": True, "extra_conn_args": {}}

    def get_listen_args(self, role: str) -> dict[str, Any]:
        """Returns Dask's arguments for listening; its own roles make no difference."""
        return {"ssl_context": self._context(ssl.PROTOCOL_TLS_SERVER), "require_encryption": True}

    def _context(self, side: int) -> ssl.SSLContext:
        context = RoomContext(side)
        context.membership = self._membership
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        # The room and the role count, not the name.
        context.check_hostname = False
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_cert_chain(self.credential)
        # The file has this member's own certificate, too; only the authority, which signed itself, ends a chain.
        context.load_verify_locations(cafile=self.credential)
        context.verify_flags &= ~ssl.VerifyFlags.VERIFY_X509_PARTIAL_CHAIN
        context.sslsocket_class, context.sslobject_class = RoomSocket, RoomObject
        return context


def room_security() -> RoomSecurity:
    """Returns the security of this process's room. Raises OSError if it is in none."""
    credential = _native.credential_file()
    if credential is None:
        raise OSError(
            "this machine is in no room, or in several: name one in CHEETAH_ROOM, or join one with cheetah room join"
        )
    return RoomSecurity(credential)
