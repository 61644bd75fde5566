//! One device for NBD clients, by its name and by none.

use cheetah_device::{DynDevice, Error};
use cheetah_nbd::server::{Export, Exports};

/// The single export of a server.
pub struct SingleExport {
    /// The device.
    pub device: DynDevice,
    /// Its name. It is also the default export.
    pub name: String,
}

impl Exports for SingleExport {
    fn list(&self) -> Vec<String> {
        vec![self.name.clone()]
    }

    fn open(&self, name: &str, _contexts: &[String]) -> Result<Export, Error> {
        if !name.is_empty() && name != self.name {
            return Err(Error::Invalid(format!("there is no export '{name}' here, only '{}'", self.name).into()));
        }
        Ok(Export {
            device: self.device.clone(),
            description: format!("{} (Cheetah)", self.name),
            contexts: Vec::new(),
            packer: None,
        })
    }
}
