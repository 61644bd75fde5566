//! Sources at the other end of a connection: NBD exports, whether we connect to them or they to us, and iSCSI logical
//! units.

use std::str::FromStr as _;
use std::sync::Arc;

use cheetah_device::prefetch::{Prefetch, PrefetchConfig};
use cheetah_device::readonly::ReadOnly;
use cheetah_device::{ByteRange, Device as _, Error as DeviceError};
use cheetah_drive::Session;
use cheetah_image::clean::clean;
use cheetah_image::{ConnectDigests, Evidence, Identity, Kind, LinkCounters, ServedBy, Source};
use cheetah_iscsi::{Initiator, IscsiConfig, IscsiUri};
use cheetah_nbd::client::{Client, ClientConfig};
use cheetah_nbd::proto::X_CHEETAH;
use cheetah_nbd::uri::{Address, NbdUri};
use cheetah_nbd::{Method, Packing};
use futures::FutureExt as _;

use crate::not_empty::not_empty;
use crate::options::SourceOptions;
use cheetah_error::{Error, Next, Result};

/// The ends of names of compressed files.
const COMPRESSED: [&str; 4] = [".gz", ".bz2", ".xz", ".zst"];
/// The most remarks of an agent on its device that are taken.
const REMARKS_MAX: usize = 8;

/// Opens the export at `uri`, which reports call `location`. If it is an agent's, the identity is what the agent says of its
/// source. An export with the name of a compressed file is the image in it.
///
/// # Errors
///
/// `Kind::Failed` if it cannot be reached, or has the name of a compressed file and is none.
pub async fn open_nbd(uri: NbdUri, location: &str, options: &SourceOptions) -> Result<Evidence> {
    let SourceOptions { link, ref session, trust_reconnects, .. } = *options;
    let timeout = session.timeout;
    let (inbound, export) = (matches!(uri.address, Address::Inbound(_)), uri.export.clone());
    let (connections, packing) = (link.connections, link.packing());
    let config = ClientConfig {
        connections,
        packing,
        timeout,
        trust_reconnects,
        credentials: session.credentials.clone(),
        ..ClientConfig::new(uri.clone())
    };
    let client = Arc::new(Client::connect(config).await.map_err(connecting)?);
    let server = ServedBy::new(&uri.export, client.description());
    let name = server.file_name();
    let digests = server.instance.is_some().then(|| digests(uri, client.description(), session));
    let identity = identify(location, client.geometry().size, client.description());
    let transport = Some(client.transport().to_string());
    let identity = Identity { server: Some(ServedBy { transport, ..server }), ..identity };
    let counted = client.clone();
    let wire = move || {
        let stats = counted.stats();
        LinkCounters {
            received_bytes: stats.received_bytes,
            content_bytes: stats.content_bytes,
            reconnects: stats.reconnects,
        }
    };
    let notes = remarks(client.description());
    let source = Source { notes, ..Source::new(Arc::new(ReadOnly::new(client)), identity, name) };
    let evidence = not_empty(Evidence { source, wire: Some(Arc::new(wire)), inbound, digests, disks: Vec::new() })?;
    match is_named_compressed(&export) {
        true => unpacked(evidence, &export, options).await,
        false => Ok(evidence),
    }
}

/// Whether an export has the name of a compressed file. An export is read as it is, whatever its content begins with: only a name,
/// which the user wrote, says that it is a file.
fn is_named_compressed(export: &str) -> bool {
    let name = export.to_ascii_lowercase();
    COMPRESSED.iter().any(|end| name.ends_with(end))
}

/// The image in the compressed file that an export holds. It is decompressed here, so that it crosses the link as it is, and read ahead,
/// since it is read in small pieces from start to end.
async fn unpacked(evidence: Evidence, export: &str, options: &SourceOptions) -> Result<Evidence> {
    let Evidence { source: Source { device, identity: packed, notes, .. }, wire, inbound, .. } = evidence;
    let SourceOptions { link, ref session, apply_map, in_order, .. } = *options;
    let (timeout, connections) = (session.timeout, link.connections);
    let image = cheetah_image::OpenOptions { timeout, connections, apply_map, in_order, ..Default::default() };
    let ahead = Prefetch::new(device, PrefetchConfig::default());
    let mut source = cheetah_image::open_behind(ahead, &packed.location, export, None, &image).await?;
    (source.identity.server, source.identity.write_protected) = (packed.server, packed.write_protected);
    source.notes = notes;
    // An agent's digests are those of the file's bytes.
    Ok(Evidence { source, wire, inbound, digests: None, disks: Vec::new() })
}

/// The error of a connection that failed.
fn connecting(error: DeviceError) -> Error {
    Error::failed(error.to_string()).advise(Next::of_connection(error.errno())).because(error)
}

/// Returns a function that connects to an agent for digests. Its description must be `description`, which proves that
/// it is the same process.
fn digests(uri: NbdUri, description: Option<&str>, session: &Session) -> ConnectDigests {
    let (credentials, timeout) = (session.credentials.clone(), session.timeout);
    let description: Option<Arc<str>> = description.map(Arc::from);
    Arc::new(move || {
        let (uri, description, credentials) = (uri.clone(), description.clone(), credentials.clone());
        async move {
            let packing = Packing::Wanted(Method::Omit);
            let plain = ClientConfig::new(uri);
            let config = ClientConfig { packing, timeout, credentials, trust_reconnects: false, ..plain };
            let lost = |why: &str| DeviceError::Lost {
                device: config.name.clone(),
                range: ByteRange::new(0, 0),
                why: format!("{why}; it takes one connection more than it serves the content over").into(),
            };
            let Ok(client) = tokio::time::timeout(timeout, Client::connect(config.clone())).await else {
                return Err(lost("the agent took no further connection"));
            };
            let client = client.map_err(|error| lost(&error.to_string()))?;
            if client.description() != description.as_deref() {
                return Err(lost("another agent took the connection"));
            }
            Ok((client.packed() == Some(Method::Omit)).then_some(client))
        }
        .boxed()
    })
}

/// Returns the identity of an export of `size` bytes with this description. An agent's description is believed if the size in
/// it is right.
fn identify(location: &str, size: u64, description: Option<&str>) -> Identity {
    let described = description.and_then(|text| text.strip_prefix(X_CHEETAH));
    let described = described.and_then(|json| serde_json::from_str::<Identity>(json).ok());
    match described.filter(|described| described.size == size) {
        Some(described) => {
            let location = format!("{location} ({})", clean(&described.location));
            Identity { location, ..described }.cleaned()
        }
        None => Identity::new(Kind::Nbd, location, size),
    }
}

/// What an agent remarks on its device, a sentence each: that it changes while it is read. It may be hostile: few are taken, and
/// short ones.
fn remarks(description: Option<&str>) -> Vec<String> {
    #[derive(serde::Deserialize)]
    struct Remarked {
        #[serde(default)]
        remarks: Vec<String>,
    }
    let described = description.and_then(|text| text.strip_prefix(X_CHEETAH));
    let remarked = described.and_then(|json| serde_json::from_str::<Remarked>(json).ok());
    let remarks = remarked.into_iter().flat_map(|remarked| remarked.remarks).take(REMARKS_MAX);
    remarks.map(|remark| clean(&remark)).filter(|remark| !remark.is_empty()).collect()
}

/// Opens the iSCSI logical unit that `spec` names.
///
/// # Errors
///
/// `Kind::Misuse` if it is no such URI, `Kind::Failed` if the unit cannot be reached.
pub(crate) async fn open_iscsi(spec: &str, options: &SourceOptions) -> Result<Evidence> {
    let (timeout, trust_reconnects) = (options.session.timeout, options.trust_reconnects);
    let uri = IscsiUri::from_str(spec).map_err(|error| Error::misuse(error.to_string()))?;
    // Without the password, which belongs in no report.
    let location = uri.to_string();
    let name = uri.unit.as_ref().map_or_else(|| "iscsi".to_owned(), |unit| format!("{}-lun{}", unit.target, unit.lun));
    let config = IscsiConfig { timeout, trust_reconnects, ..IscsiConfig::new(uri) };
    let initiator = Initiator::connect(config).await.map_err(|error| Error::failed(error.to_string()))?;
    let unit = initiator.inquiry();
    let identity = Identity {
        sector_size: Some(unit.block_bytes),
        physical_sector_size: Some(unit.physical_block_bytes),
        model: Some(format!("{} {}", unit.vendor, unit.product).trim().to_owned()).filter(|model| !model.is_empty()),
        serial: unit.serial.clone(),
        write_protected: unit.write_protected,
        ..Identity::new(Kind::Iscsi, location, initiator.geometry().size)
    }
    .cleaned();
    let name = name.replace(['/', ':'], "_");
    Ok(Source::new(Arc::new(ReadOnly::new(Arc::new(initiator))), identity, name).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_export_with_the_name_of_a_compressed_file_is_one() {
        for name in ["disk.raw.gz", "case/disk.dd.BZ2", "disk.xz", "d.zst"] {
            assert!(is_named_compressed(name), "{name}");
        }
        for name in ["", "sda", "gz", "disk.gz.raw", "disk.zip", "disk.gzip"] {
            assert!(!is_named_compressed(name), "{name}");
        }
    }

    #[test]
    fn an_agents_description_is_the_identity_if_its_size_is_right() {
        let identity = Identity {
            serial: Some("WD-1".into()),
            sector_size: Some(4096),
            ..Identity::new(Kind::Block, "/dev/sda", 1024)
        };
        let mut line = serde_json::json!(identity);
        line["host"] = "lab".into();
        let line = format!("{X_CHEETAH}{line}");
        let known = identify("nbd://h", 1024, Some(&line));
        assert_eq!(known, Identity { location: "nbd://h (/dev/sda)".into(), ..identity });
        let plain = Identity::new(Kind::Nbd, "nbd://h", 1024);
        assert_eq!(identify("nbd://h", 512, Some(&line)).serial, None, "the size is another");
        for other in [None, Some("a disk"), Some("x-cheetah:{}"), Some("x-cheetah:")] {
            assert_eq!(identify("nbd://h", 1024, other), plain);
        }
    }

    #[test]
    fn remarks_of_an_agent_are_few_and_safe_to_print() {
        let line = |remarks: &serde_json::Value| format!("{X_CHEETAH}{}", serde_json::json!({ "remarks": remarks }));
        let said = |json: serde_json::Value| remarks(Some(&line(&json)));
        assert_eq!(said(serde_json::json!(["it changes\u{1b}[2J", ""])), ["it changes[2J"]);
        assert_eq!(said(vec!["x".repeat(1000); 100].into()), vec!["x".repeat(256); REMARKS_MAX]);
        assert_eq!(said(serde_json::json!("no list")), Vec::<String>::new());
        assert_eq!(remarks(None), Vec::<String>::new());
        assert_eq!(remarks(Some("a disk")), Vec::<String>::new());
    }
}
