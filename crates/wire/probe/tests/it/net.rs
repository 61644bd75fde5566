//! Machines and links: namespaces and pairs of virtual Ethernet interfaces. They are removed when the test ends.

use std::fs::File;
use std::os::fd::AsFd;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use cheetah_probe::measure::{Aspect, Event, Measured, Options, Probe, Problem};
use cheetah_testing::skip;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// The examiner's end of the first link, and its other end.
pub const NEAR: &str = "near";
pub const FAR: &str = "far";
pub const HERE: &str = "10.77.0.1";
pub const THERE: &str = "10.77.0.2";
pub const THERE_V6: &str = "fd77::2";
pub const MACS: [&str; 2] = ["02:77:00:00:00:01", "02:77:00:00:00:02"];

static MADE: AtomicU32 = AtomicU32::new(0);

/// A network of machines.
pub struct Net {
    prefix: String,
    names: Vec<String>,
}

impl Net {
    /// Creates a network without machines; `None` if this user may not create namespaces.
    pub fn new() -> Option<Self> {
        let found = Command::new("ip").arg("-V").output().is_ok_and(|ran| ran.status.success());
        if !rustix::process::geteuid().is_root() || !found {
            skip("needs root and ip (make test installs it)");
            return None;
        }
        let prefix = format!("probe{}-{}", std::process::id(), MADE.fetch_add(1, Ordering::Relaxed));
        Some(Self { prefix, names: Vec::new() })
    }

    /// Two machines with one link between them, and addresses of both families.
    pub fn pair() -> Option<Self> {
        let mut net = Self::new()?;
        net.machines(&[NEAR, FAR]);
        net.link((NEAR, HERE, "fd77::1"), (FAR, THERE, THERE_V6));
        Some(net)
    }

    /// Machines whose only interface is their loopback, which is up.
    pub fn machines(&mut self, names: &[&str]) {
        for machine in names {
            let name = self.name(machine);
            ip(&["netns", "add", &name]);
            self.names.push(name.clone());
            ip(&["-n", &name, "link", "set", "lo", "up"]);
            // Addresses are used at once.
            self.set(machine, "ipv6/conf/default/accept_dad", "0");
        }
    }

    /// Creates a link; each end is a machine, its address (in a /24) and its IPv6 address. Each interface is named
    /// after the machine at the other end.
    pub fn link(&self, a: (&str, &str, &str), b: (&str, &str, &str)) {
        let (a_ns, b_ns) = (self.name(a.0), self.name(b.0));
        let peer = ["peer", "name", a.0, "address", MACS[1], "netns", &b_ns];
        ip(&[&["-n", &a_ns, "link", "add", b.0, "address", MACS[0], "type", "veth"][..], &peer].concat());
        for (ns, interface, address, address6) in [(&a_ns, b.0, a.1, a.2), (&b_ns, a.0, b.1, b.2)] {
            ip(&["-n", ns, "link", "set", interface, "up"]);
            if !address.is_empty() {
                ip(&["-n", ns, "address", "add", &format!("{address}/24"), "dev", interface]);
                ip(&["-n", ns, "address", "add", &format!("{address6}/64"), "dev", interface, "nodad"]);
            }
        }
    }

    /// The namespace of a machine.
    pub fn name(&self, machine: &str) -> String {
        format!("{}-{machine}", self.prefix)
    }

    /// Runs `ip` with these arguments on a machine.
    pub fn ip(&self, machine: &str, args: &[&str]) -> String {
        ip(&[&["-n", &self.name(machine)], args].concat())
    }

    /// Sets a kernel parameter of a machine, given without `net/`.
    pub fn set(&self, machine: &str, parameter: &str, value: &str) {
        self.on(machine, || std::fs::write(format!("/proc/sys/net/{parameter}"), value).unwrap());
    }

    /// Runs a closure in that machine's namespace.
    pub fn on<T: Send>(&self, machine: &str, what: impl FnOnce() -> T + Send) -> T {
        let namespace = File::open(format!("/run/netns/{}", self.name(machine))).unwrap();
        let inside = || {
            move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
            what()
        };
        std::thread::scope(|scope| match scope.spawn(inside).join() {
            Ok(done) => done,
            Err(panic) => std::panic::resume_unwind(panic),
        })
    }

    /// Measures from the near machine.
    pub fn probe(&self, address: &str, options: &Options) -> Measured {
        self.probe_heard(address, options, |_, _| {})
    }

    /// The same; `hear` receives the events, and may end the measurement.
    pub fn probe_heard(&self, address: &str, options: &Options, hear: impl Fn(&Event, &AtomicBool) + Sync) -> Measured {
        let probe = Probe::new(address, address.parse().unwrap(), options.clone());
        let cancel = AtomicBool::new(false);
        self.on(NEAR, || probe.run(&cancel, &mut |event| hear(&event, &cancel)))
    }
}

impl Drop for Net {
    fn drop(&mut self) {
        for name in &self.names {
            let _ = Command::new("ip").args(["netns", "delete", name]).output();
        }
    }
}

fn ip(args: &[&str]) -> String {
    let ran = Command::new("ip").args(args).output().unwrap();
    assert!(ran.status.success(), "ip {}: {}", args.join(" "), String::from_utf8_lossy(&ran.stderr));
    String::from_utf8(ran.stdout).unwrap()
}

/// Options that measure only these aspects, whatever else the machine does. Kernels answer at once, so only silence is
/// waited for.
pub fn only(aspects: &[Aspect]) -> Options {
    Options {
        aspects: aspects.to_vec(),
        timeout: Duration::from_secs(3),
        interval: Duration::from_millis(10),
        // Test machines are busy; these tests are not about accuracy.
        gap_error_max: Duration::from_secs(60),
        ..Options::default()
    }
}

/// Whether there is such a problem.
pub fn has(problems: &[Problem], is_such: impl Fn(&Problem) -> bool) -> bool {
    problems.iter().any(is_such)
}
