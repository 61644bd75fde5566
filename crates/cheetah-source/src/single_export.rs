//! One device for NBD clients, by its name and by none.

use cheetah_device::{DynDevice, Error};
use cheetah_nbd::server::{Export, Exports};

/// What a server that serves one thing only offers.
pub struct SingleExport {
    /// What is served.
    pub device: DynDevice,
    /// What it is called; a client may also ask for nothing in particular.
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
