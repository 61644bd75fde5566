//! The paths of the control API, each written once for its server and its client. `{name}` stands for a value.
//!
//! docs/reference/control-api.md has the requests, their bodies and their answers. The paths of measurements are in
//! `cheetah_probe::far::routes`.

use cheetah_kit::percent::{COMPONENT, encode};

/// The node's status.
pub const STATUS: &str = "/v1/status";
/// Where exports are created.
pub const EXPORTS: &str = "/v1/exports";
/// An export.
pub const EXPORT: &str = "/v1/exports/{name}";
/// Its creator's word that it has recorded the export.
pub const CONFIRMED: &str = "/v1/exports/{name}/confirmed";
/// Its write lease.
pub const LEASE: &str = "/v1/exports/{name}/lease";
/// The map stored with it.
pub const MAP: &str = "/v1/exports/{name}/map";
/// The notes stored with it.
pub const NOTES: &str = "/v1/exports/{name}/notes";
/// The mark of a node that is about to leave.
pub const DRAINING: &str = "/v1/draining";
/// Where jobs are started.
pub const JOBS: &str = "/v1/jobs";
/// A job.
pub const JOB: &str = "/v1/jobs/{id}";
/// The lines of its results.
pub const JOB_LINES: &str = "/v1/jobs/{id}/lines";
/// The list of revoked certificates of the room. Agents have it, too.
pub const REVOKED: &str = "/v1/room/revoked";
/// Metrics, as Prometheus text.
pub const METRICS: &str = "/metrics";
/// Where a node offers its memory, at an examiner's machine.
pub const JOIN: &str = "/v1/join";

/// A path with its values, in order. They are percent-encoded.
pub fn fill<const N: usize>(path: &str, values: [&str; N]) -> String {
    // Every other part is the name of a value.
    let mut parts = path.split(['{', '}']);
    let mut filled = parts.next().unwrap_or_default().to_owned();
    for (value, after) in values.into_iter().zip(parts.skip(1).step_by(2)) {
        filled.push_str(&escape(value));
        filled.push_str(after);
    }
    filled
}

/// Percent-encodes a component of a path or query.
pub(crate) fn escape(text: &str) -> String {
    encode(text, COMPONENT).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_fill_a_path_percent_encoded() {
        assert_eq!(fill(STATUS, []), "/v1/status");
        assert_eq!(fill(EXPORT, ["case42-0"]), "/v1/exports/case42-0");
        assert_eq!(fill(LEASE, ["a/b?"]), "/v1/exports/a%2Fb%3F/lease");
        assert_eq!(fill("/v1/{a}/{b}/c", ["1", "{2}"]), "/v1/1/%7B2%7D/c");
    }
}
