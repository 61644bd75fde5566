//! The static binaries for other processors, run by an emulator.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::run::{Ran, cheetah, program, run};
use crate::support::service::Service;
use crate::support::{Desk, MIB, Node, need, text};

/// The targets of `make static TARGET=…`, with the emulator of each.
const TARGETS: [(&str, &str); 1] = [("aarch64-unknown-linux-musl", "qemu-aarch64-static")];

/// A binary for another processor.
struct Other {
    emulator: &'static str,
    binary: PathBuf,
}

impl Other {
    /// Returns those that are built and can be run.
    fn all() -> Vec<Self> {
        let built = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/static");
        let others = TARGETS.map(|(target, emulator)| Self { emulator, binary: built.join(target).join("cheetah") });
        others.into_iter().filter(Self::can_run).collect()
    }

    fn can_run(&self) -> bool {
        if !self.binary.exists() {
            need::skip(&format!("{} is not built (make static TARGET=…)", self.binary.display()));
            return false;
        }
        need::programs(&[self.emulator])
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(self.emulator);
        command.arg(&self.binary).arg("--json").args(args);
        command.envs(program().get_envs().filter_map(|(name, value)| Some((name, value?))));
        command
    }

    fn run(&self, args: &[&str]) -> Ran {
        run(self.command(args))
    }

    fn start(&self, args: &[&str]) -> Service {
        Service::spawn(self.command(args), "ready").unwrap()
    }
}

#[test]
fn a_node_an_agent_an_acquisition_and_a_probe_work_on_another_processor() {
    for other in Other::all() {
        let desk = Desk::new();
        let (disk, whole) = desk.image("disk.img", 3 * MIB + 512);
        let node = Node::of(other.start(&["node", "--memory", "16MiB", "--listen", "127.0.0.1:0"]));
        let drive = desk.drive("case", &[&node], &disk, &[]);
        let agent = other.start(&["serve", &disk, "--listen", "127.0.0.1:0"]);
        let uri = text(&agent.ready, "uri");
        // From an agent and from a drive, into all formats, here and there.
        let (raw, e01, copy) = (desk.arg("x.raw"), desk.arg("x.E01"), desk.arg("copy.raw"));
        other.run(&["acquire", uri, &raw, &e01, "--verify"]).ok();
        other.run(&["acquire", &drive, &copy]).ok();
        assert!(fs::read(&raw).unwrap() == whole && fs::read(&copy).unwrap() == whole);
        cheetah(&["verify", &e01]).ok();
        other.run(&["verify", &drive]).ok();
        let found = other.run(&["probe", "127.0.0.1", "--only", "rtt", "--far", "none"]).ok();
        assert!(found.json().is_object(), "{}", found.out());
    }
}
