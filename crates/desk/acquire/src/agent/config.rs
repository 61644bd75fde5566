//! The configuration of an agent.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;

use cheetah_tls::Credential;

/// The disk to serve, the addresses, and the limits.
#[derive(Debug, Clone)]
pub struct AgentConfig {
    /// The disk or image to serve.
    pub device: PathBuf,
    /// The export's name; the file's name if empty. It is also the default export.
    pub name: String,
    /// Where to listen for clients.
    pub listen: Option<SocketAddr>,
    /// The examiner to call, as `HOST:PORT`, again and again.
    pub connect: Option<String>,
    /// The credential with which clients are answered; without one, connections are not encrypted.
    pub credential: Option<Credential>,
    /// Whether to go beyond loopback, although nothing is encrypted.
    pub insecure: bool,
    /// The most clients at once, 1 to 16.
    pub connections_max: usize,
    /// The most bytes to send a second.
    pub rate_max: Option<u64>,
    /// The processor time that packing may take.
    pub cpu_max: CpuMax,
    /// Whether to have the kernel refuse writes to the device, if it is a disk that nothing uses.
    pub protect: bool,
}

impl AgentConfig {
    /// Serves `device` at no address yet, without limits.
    pub fn new(device: impl Into<PathBuf>) -> Self {
        Self {
            device: device.into(),
            name: String::new(),
            listen: None,
            connect: None,
            credential: None,
            insecure: false,
            connections_max: 16,
            rate_max: None,
            cpu_max: CpuMax::All,
            protect: true,
        }
    }
}

/// The processor time that packing may take.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum CpuMax {
    /// All of them.
    #[default]
    All,
    /// This percentage of all processors: 1 to 100.
    Percent(u8),
    /// One thread at idle priority.
    Low,
}

/// A text that is not a [`CpuMax`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is no limit for the processors; write 1 to 100, in percent of all of them, or low")]
pub struct BadCpuMax(String);

impl FromStr for CpuMax {
    type Err = BadCpuMax;

    fn from_str(text: &str) -> Result<Self, BadCpuMax> {
        if text == "low" {
            return Ok(Self::Low);
        }
        let digits = text.strip_suffix('%').unwrap_or(text);
        match digits.parse() {
            Ok(percent @ 1..=100) => Ok(Self::Percent(percent)),
            _ => Err(BadCpuMax(text.to_owned())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_read_as_people_write_them() {
        assert_eq!("low".parse(), Ok(CpuMax::Low));
        assert_eq!("25".parse(), Ok(CpuMax::Percent(25)));
        assert_eq!("100%".parse(), Ok(CpuMax::Percent(100)));
        for bad in ["", "0", "101", "half", "-3"] {
            assert!(bad.parse::<CpuMax>().is_err(), "{bad}");
        }
    }
}
