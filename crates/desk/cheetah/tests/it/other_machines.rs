//! The binaries for other processors, run by an emulator, and those for other systems, which are only looked at.

use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::run::{Ran, cheetah, program, run, tool};
use crate::support::service::Service;
use crate::support::{Desk, MIB, Node, need, text};

const EMULATOR_AARCH64: &str = "qemu-aarch64-static";
const EMULATOR_ARMV7: &str = "qemu-arm-static";

/// A binary for another processor.
struct Other {
    emulator: &'static str,
    binary: PathBuf,
}

impl Other {
    /// The binary of `make static TARGET=…`, if it is built and can be run. If not, reports that the test is skipped.
    fn find(target: &str, emulator: &'static str) -> Option<Self> {
        let binary = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../target/static").join(target).join("cheetah");
        if !binary.exists() {
            need::skip(&format!("needs a binary for {target} (make test-others builds it)"));
            return None;
        }
        need::programs(&[emulator]).then_some(Self { emulator, binary })
    }

    fn aarch64() -> Option<Self> {
        Self::find("aarch64-unknown-linux-musl", EMULATOR_AARCH64)
    }

    fn armv7() -> Option<Self> {
        Self::find("armv7-unknown-linux-gnueabihf", EMULATOR_ARMV7)
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

    fn node(&self) -> Node {
        Node::of(self.start(&["node", "--memory", "16MiB", "--listen", "127.0.0.1:0"]))
    }
}

#[test]
fn a_node_an_agent_an_acquisition_and_a_probe_work_on_aarch64() {
    if let Some(other) = Other::aarch64() {
        all_work(&other);
    }
}

#[test]
fn a_node_an_agent_an_acquisition_and_a_probe_work_on_armv7() {
    if let Some(other) = Other::armv7() {
        all_work(&other);
    }
}

fn all_work(other: &Other) {
    // More than one chunk, and no more: hashing takes long without optimisation, in an emulator.
    let desk = Desk::new();
    let (disk, whole) = desk.image("disk.img", MIB + 512);
    let node = other.node();
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

#[test]
fn bytes_beyond_4_gib_are_read_and_written_where_they_are_on_armv7() {
    const BEYOND: u64 = 4 << 30;
    if !need::programs(&["curl", "qemu-io"]) {
        return;
    }
    let Some(other) = Other::armv7() else { return };
    let desk = Desk::new();
    let disk = desk.file("disk.img", b"");
    File::options().write(true).open(&disk).unwrap().write_all_at(&[7; 4096], BEYOND).unwrap();
    let agent = other.start(&["serve", &disk, "--listen", "127.0.0.1:0"]);
    let (start, beyond) = ("read -P 0 0 4k", "read -P 7 4G 4k");
    tool("qemu-io", &["-r", "-f", "raw", "-c", start, "-c", beyond, text(&agent.ready, "uri")]).ok();

    let node = other.node();
    let export = format!(r#"{{"name":"large","size_bytes":{}}}"#, BEYOND + MIB);
    let (json, exports) = ("Content-Type: application/json", format!("http://{}/v1/exports", node.http));
    tool("curl", &["-sSf", "-H", json, "-d", &export, &exports]).ok();
    let uri = format!("nbd://{}/large", node.nbd);
    tool("qemu-io", &["-f", "raw", "-c", "write -P 7 4G 4k", "-c", start, "-c", beyond, &uri]).ok();
}

/// The binary of `make static TARGET=…` for a system that nothing here runs; `None`, and it says so, if it is not built.
fn unrunnable(target: &str) -> Option<Vec<u8>> {
    let binary = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../target/static").join(target).join("cheetah");
    match fs::read(&binary) {
        Ok(bytes) => Some(bytes),
        Err(_) => {
            need::skip(&format!("needs a binary for {target} (make test-systems builds it)"));
            None
        }
    }
}

#[test]
fn the_binary_for_freebsd_is_a_program_of_that_system() {
    let Some(binary) = unrunnable("x86_64-unknown-freebsd") else { return };
    // ELF of 64 bits, little-endian, version 1, for x86-64 (elf(5)). A note names the system, by which its kernel knows programs.
    assert_eq!(binary[..7], [0x7f, b'E', b'L', b'F', 2, 1, 1]);
    assert_eq!(binary[18..20], 62_u16.to_le_bytes());
    for text in ["/libexec/ld-elf.so.1\0", "FreeBSD\0"] {
        assert!(memchr::memmem::find(&binary, text.as_bytes()).is_some(), "{text:?}");
    }
}

#[test]
fn the_binary_for_macos_needs_libraries_of_the_system_only() {
    const MAGIC: u32 = 0xfeed_facf;
    const ARM64: u32 = 0x0100_000c;
    const EXECUTE: u32 = 2;
    /// A library that is loaded; its name begins where the third number of the command says.
    const LOAD_DYLIB: u32 = 0xc;
    /// Without a signature, which names nobody, the kernel ends a program for this processor.
    const CODE_SIGNATURE: u32 = 0x1d;
    let Some(binary) = unrunnable("aarch64-apple-darwin") else { return };
    // Mach-O (mach-o/loader.h).
    let number = |at: usize| u32::from_le_bytes(*binary[at..].first_chunk().unwrap());
    assert_eq!([number(0), number(4), number(12)], [MAGIC, ARM64, EXECUTE]);
    let (mut at, mut libraries, mut is_signed) = (32, Vec::new(), false);
    for _ in 0..number(16) {
        let command = &binary[at..at + number(at + 4) as usize];
        if number(at) == LOAD_DYLIB {
            let name = command[number(at + 8) as usize..].split(|byte| *byte == 0).next().unwrap();
            libraries.push(String::from_utf8(name.to_vec()).unwrap());
        }
        is_signed |= number(at) == CODE_SIGNATURE;
        at += command.len();
    }
    let of_system = |path: &String| path.starts_with("/usr/lib/") || path.starts_with("/System/Library/Frameworks/");
    assert!(is_signed && !libraries.is_empty() && libraries.iter().all(of_system), "{libraries:?}");
}
