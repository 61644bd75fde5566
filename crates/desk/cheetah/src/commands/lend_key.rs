//! The option that lends nodes the key of a sealed drive.

use std::sync::Arc;

use cheetah_custody::Custodian;
use cheetah_drive::lending::{LendRequest, LendTo};

/// The nodes that are lent the key of a sealed drive.
#[derive(Debug, clap::Args)]
pub struct LendKeyArgs {
    /// Lend these nodes the key of a sealed drive for this command, so that they work on it: over TLS, to nodes that joined the
    /// room with the role trusted-node. 'all': every one that may be lent it
    #[arg(long, value_name = "NODE,…|all", value_delimiter = ',', requires = "at_nodes")]
    lend_key: Vec<String>,
}

impl LendKeyArgs {
    /// The wish to lend the key, for this purpose; `None` without the option. The drive's custody log records it.
    pub fn request(&self, purpose: &'static str, custodian: &Custodian) -> Option<LendRequest> {
        let to = match &self.lend_key[..] {
            [] => return None,
            [all] if all == "all" => LendTo::All,
            named => LendTo::Named(named.to_vec()),
        };
        Some(LendRequest { to, purpose, record: Arc::new(custodian.clone()) })
    }
}
