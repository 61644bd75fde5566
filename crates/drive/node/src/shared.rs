//! The state that a node's parts share.

use std::sync::Arc;
use std::time::Instant;

use cheetah_control::api::{Join, MemoryStatus, Status, Wiped};
use cheetah_control::receipt::{Asked, Receipt, Statement};
use cheetah_probe::far::FarConfig;
use cheetah_tls::Credential;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use crate::disks;
use crate::exports::Exports;
use crate::instance::Instance;
use crate::jobs::Jobs;

/// A running node's name, ports, exports and credential.
pub(crate) struct Shared {
    pub name: String,
    pub instance: Instance,
    pub nbd_port: u16,
    pub http_port: u16,
    pub exports: Arc<Exports>,
    pub jobs: Jobs,
    /// Its credential, if it serves with TLS.
    pub credential: Option<Credential>,
    /// Its part in measurements, if any.
    pub far: Option<FarConfig>,
    pub started: Instant,
}

impl Shared {
    /// The node's status.
    pub fn status(&self) -> Status {
        Status {
            name: self.name.clone(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            instance: self.instance.to_string(),
            nbd_port: self.nbd_port,
            http_port: self.http_port,
            uptime_s: self.started.elapsed().as_secs(),
            disks_visible: disks::visible(),
            boot_image: disks::is_boot_image(),
            memory: MemoryStatus { free_bytes: self.free_bytes(), ..self.exports.store().status() },
            exports: self.exports.status(),
            draining: self.exports.draining(),
            dropped: self.exports.dropped(),
            scan: self.jobs.status(),
        }
    }

    /// The receipt for a wiped export, signed if the node has a credential.
    pub fn receipt(&self, wiped: Wiped, asked: Asked) -> Receipt {
        let statement = Statement {
            node: self.name.clone(),
            instance: self.instance.to_string(),
            wiped_bytes: wiped.wiped_bytes,
            verified_zero: wiped.verified_zero,
            keys_lent: wiped.keys_lent,
            // Fails only for years of more than four digits.
            time: OffsetDateTime::now_utc().format(&Rfc3339).unwrap_or_default(),
            ..Statement::of_export(wiped.export, wiped.size_bytes, asked)
        };
        statement.sign(self.credential.as_ref())
    }

    /// Bytes a new export may reserve.
    pub fn free_bytes(&self) -> u64 {
        if self.exports.draining().is_some() {
            return 0;
        }
        self.exports.store().status().free_bytes
    }

    /// The node as offered to an examiner.
    pub fn offer(&self) -> Join {
        Join {
            name: self.name.clone(),
            nbd_port: self.nbd_port,
            http_port: self.http_port,
            instance: self.instance.to_string(),
            free_bytes: self.free_bytes(),
        }
    }
}
