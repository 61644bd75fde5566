//! Drives larger than their nodes' memory.

use rustix::process::Signal;

use crate::support::{Desk, MIB, Node, Service, cheetah, need, text, tool};

const SIZE: u64 = 4 << 40;

#[test]
fn both_ends_of_a_drive_of_4_tib_hold_what_was_written_and_a_write_beyond_the_memory_fails() {
    if !need::programs(&["qemu-io"]) {
        return;
    }
    let desk = Desk::new();
    let nodes = [Node::start("32MiB"), Node::start("32MiB")];
    let addresses = nodes.each_ref().map(Node::address).join(",");
    let drive = desk.arg("large.drive");
    let made = ["create", &drive, "--nodes", &addresses, "--layout", "stripe", "--size", "4TiB"];
    cheetah(&made).says(1, &["not enough memory"]);
    cheetah(&[&made[..], &["--thin"]].concat()).ok();

    let exported = |more: &[&str]| Service::start(&[&["export", &drive, "--unix", &desk.arg("sock")], more].concat());
    let (first, last) = (format!("0 {MIB}"), format!("{} {MIB}", SIZE - MIB));
    let writable = exported(&["--writable"]);
    let uri = text(&writable.ready, "uri").to_owned();
    let write = |range: &str, byte: u8| format!("write -P {byte} {range}");
    let commands = [write(&first, 90), write(&last, 51), "flush".to_owned()];
    tool("qemu-io", &["-f", "raw", "-c", &commands[0], "-c", &commands[1], "-c", &commands[2], &uri]).ok();
    assert_eq!(nodes.iter().map(Node::used_bytes).sum::<u64>(), 2 * MIB);
    // More than both nodes have.
    let too_much = write(&format!("{} {}", SIZE / 2, 80 * MIB), 1);
    tool("qemu-io", &["-f", "raw", "-c", &too_much, &uri]).ended_with(1);
    let (code, last_line) = writable.stop(Signal::TERM);
    assert_eq!(code, Some(0), "{last_line}");

    let again = exported(&[]);
    let read = |range: &str, byte: u8| format!("read -P {byte} {range}");
    let commands = [read(&first, 90), read(&last, 51), read(&format!("{} {MIB}", SIZE / 4), 0)];
    let uri = text(&again.ready, "uri");
    let found = tool("qemu-io", &["-r", "-f", "raw", "-c", &commands[0], "-c", &commands[1], "-c", &commands[2], uri]);
    assert!(!found.out().contains("verification failed"), "{}", found.out());
    found.ok();
}
