//! NBD: codec, client and server.
