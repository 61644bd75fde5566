"""TLS for Dask with the credential of a room's member.

Dask runs any code that it is sent. So scheduler, workers and clients accept each other only as members of the room that
may read drives: examiners and analysts. The list of revoked certificates is that of the time when a process starts.
"""

import re
import ssl
from typing import Any

from distributed.security import Security  # type: ignore[import-untyped,unused-ignore]

from cheetah import _native

ROLES = ("examiner", "analyst")
"""The roles that take part."""
URN = re.compile(r"urn:cheetah:room:[0-9a-f]{32}:role:([a-z]+)")


def check_role(certificate: Any) -> None:
    """Raises `ssl.SSLError` unless a peer's certificate has one of `ROLES`."""
    names = (certificate or {}).get("subjectAltName", ())
    roles = [found[1] for kind, name in names if kind == "URI" and (found := URN.fullmatch(str(name)))]
    if len(roles) != 1 or roles[0] not in ROLES:
        # Tornado looks at the number, and closes the connection.
        raise ssl.SSLError(ssl.SSL_ERROR_SSL, f"the peer is no {' or '.join(ROLES)} of the room")


class RoomSocket(ssl.SSLSocket):
    """A connection that ends unless the peer has one of `ROLES`."""

    def do_handshake(self, block: bool = False) -> None:
        """Performs the handshake, and then checks the role in the peer's certificate."""
        super().do_handshake(block)
        check_role(self.getpeercert())


class RoomObject(ssl.SSLObject):
    """The same, where asyncio has the socket."""

    def do_handshake(self) -> None:
        """Performs the handshake, and then checks the role in the peer's certificate."""
        super().do_handshake()
        check_role(self.getpeercert())


class RoomSecurity(Security):  # type: ignore[misc,unused-ignore]
    """Dask's security, by the credential in a file as Cheetah keeps it: certificate, key, authority and list of revoked
    certificates. Raises OSError if the file cannot be read or used."""

    def __init__(self, credential: str):
        super().__init__(require_encryption=True)  # type: ignore[no-untyped-call,unused-ignore]
        self.credential = credential
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
        context = ssl.SSLContext(side)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        # The room and the role count, not the name.
        context.check_hostname = False
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_cert_chain(self.credential)
        # The file has this member's own certificate, too; only the authority, which signed itself, ends a chain.
        context.load_verify_locations(cafile=self.credential)
        context.verify_flags &= ~ssl.VerifyFlags.VERIFY_X509_PARTIAL_CHAIN
        if context.cert_store_stats()["crl"]:
            context.verify_flags |= ssl.VerifyFlags.VERIFY_CRL_CHECK_LEAF
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
