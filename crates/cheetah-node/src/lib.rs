//! A node: a RAM store served over NBD, with its HTTP control API.
