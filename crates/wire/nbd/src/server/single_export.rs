//! A server with a single export.

use std::sync::Arc;

use cheetah_device::{DynDevice, Error};

use super::{Export, Exports};
use crate::packing::{Method, Packer};

/// The single export of a server: one device, under its name and as the default export.
pub struct SingleExport {
    /// The name.
    pub name: String,
    /// The description that clients get.
    pub description: String,
    /// The device.
    pub device: DynDevice,
    /// Packs reads for clients that request it; `None` if packed replies are not offered.
    pub packer: Option<Arc<Packer>>,
}

impl SingleExport {
    /// Describes the device by its name, and offers no packed replies.
    pub fn described_by_name(name: String, device: DynDevice) -> Self {
        Self { description: format!("{name} (Cheetah)"), name, device, packer: None }
    }
}

impl Exports for SingleExport {
    fn list(&self) -> Vec<String> {
        vec![self.name.clone()]
    }

    fn open(&self, name: &str, contexts: &[String]) -> Result<Export, Error> {
        if !name.is_empty() && name != self.name {
            return Err(Error::Invalid(format!("there is no export '{name}' here, only '{}'", self.name).into()));
        }
        // Grant the first known method.
        let packed = contexts.iter().find(|context| self.packer.is_some() && Method::of_context(context).is_some());
        Ok(Export {
            device: Arc::clone(&self.device),
            description: self.description.clone(),
            contexts: packed.into_iter().cloned().collect(),
            packer: self.packer.clone(),
        })
    }
}
