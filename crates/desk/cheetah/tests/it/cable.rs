//! Two machines, in network namespaces.

use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::support::run::program;
use crate::support::{Node, Service, need, tool};

/// Two machines on one cable, gone when dropped. Their addresses outlive the cable.
pub struct Cable {
    pub writers: String,
    pub readers: String,
}

impl Cable {
    pub const WRITERS: &str = "10.98.1.1";
    pub const READERS: &str = "10.98.2.2";

    /// `None`, and it says so, where there can be none.
    pub fn new() -> Option<Self> {
        if !need::is_root() || !need::programs(&["ip", "nsenter"]) {
            need::skip("needs root, for network namespaces");
            return None;
        }
        static CABLES: AtomicUsize = AtomicUsize::new(0);
        let id = format!("{}-{}", std::process::id(), CABLES.fetch_add(1, Ordering::Relaxed));
        let cable = Self { writers: format!("ct-w-{id}"), readers: format!("ct-r-{id}") };
        for machine in [&cable.writers, &cable.readers] {
            tool("ip", &["netns", "add", machine]).ok();
        }
        let (writers, readers) = (cable.writers.as_str(), cable.readers.as_str());
        tool(
            "ip",
            &["link", "add", "eth0", "netns", writers, "type", "veth", "peer", "name", "eth0", "netns", readers],
        )
        .ok();
        for (machine, own) in [(writers, Self::WRITERS), (readers, Self::READERS)] {
            tool("ip", &["-n", machine, "link", "set", "lo", "up"]).ok();
            tool("ip", &["-n", machine, "addr", "add", &format!("{own}/32"), "dev", "lo"]).ok();
        }
        cable.plug_in();
        Some(cable)
    }

    pub fn plug_in(&self) {
        let ends = [(&self.writers, Self::WRITERS, Self::READERS), (&self.readers, Self::READERS, Self::WRITERS)];
        for (machine, own, other) in ends {
            tool("ip", &["-n", machine, "link", "set", "eth0", "up"]).ok();
            tool("ip", &["-n", machine, "route", "replace", other, "dev", "eth0", "src", own]).ok();
        }
    }

    /// Makes it a slow one, in bits a second in the terms of tc.
    pub fn limit(&self, rate: &str) {
        for machine in [&self.writers, &self.readers] {
            let limit = ["root", "tbf", "rate", rate, "burst", "256k", "latency", "50ms"];
            tool("ip", &[&["netns", "exec", machine, "tc", "qdisc", "add", "dev", "eth0"], &limit[..]].concat()).ok();
        }
    }

    pub fn unplug(&self) {
        tool("ip", &["-n", &self.readers, "link", "set", "eth0", "down"]).ok();
    }

    /// `cheetah --json ARGS…` on one of the machines.
    pub fn command(machine: &str, args: &[&str]) -> Command {
        let mut command = Command::new(need::find("nsenter").unwrap());
        command.arg(format!("--net=/run/netns/{machine}")).arg(program().get_program()).arg("--json").args(args);
        command
    }

    pub fn node(machine: &str, address: &str) -> Node {
        let args = ["node", "--memory", "40MiB", "--listen", &format!("{address}:0"), "--insecure"];
        Node::of(Service::spawn(Self::command(machine, &args), "ready").unwrap())
    }

    pub fn mount(machine: &str, args: &[&str]) -> (Service, PathBuf) {
        let service = Service::spawn(Self::command(machine, &[&["mount"], args].concat()), "ready").unwrap();
        let file = PathBuf::from(service.ready["file"].as_str().unwrap());
        (service, file)
    }
}

impl Drop for Cable {
    fn drop(&mut self) {
        for machine in [&self.writers, &self.readers] {
            let _ = Command::new("ip").args(["netns", "delete", machine]).output();
        }
    }
}
