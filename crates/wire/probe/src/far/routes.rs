//! The paths of the far end's part of the control API, each written once for its server and its client.

use super::Token;

/// Its name and limits.
pub const ABOUT: &str = "/v1/probe";
/// Where it is asked to expect a train.
pub const RECEIVE: &str = "/v1/probe/receive";
/// A train that it expects.
pub const RECEIVED: &str = "/v1/probe/receive/{token}";
/// Where it is asked to send a train.
pub const SEND: &str = "/v1/probe/send";
/// Bulk data, both ways.
pub const BULK: &str = "/v1/probe/bulk";

/// The path of the train with this token.
pub(super) fn received(token: Token) -> String {
    RECEIVED.replace("{token}", &token.to_string())
}
