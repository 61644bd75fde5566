//! The agent serves a disk of its machine to stock NBD clients and to ours.

use std::sync::Arc;
use std::time::Duration;

use cheetah_device::{ByteRange, Device};
use cheetah_nbd::client::{Client, ClientConfig};
use cheetah_nbd::{Address, Inbox, Method, NbdUri, Packing};
use rustix::process::Signal;

use crate::support::service::PATIENCE;
use crate::support::{Desk, MIB, Port, Service, cheetah, need, noise, text, tool};

const LISTEN: [&str; 2] = ["--listen", "127.0.0.1:0"];

fn serve(device: &str, more: &[&str]) -> (Service, String) {
    let mut args = vec!["serve", device];
    args.extend(more);
    let service = Service::start(&args);
    let uri = service.ready["uri"].as_str().unwrap_or_default().to_owned();
    (service, uri)
}

/// An image of noise, zeros and text, and its bytes.
fn image(desk: &Desk, len: u64) -> (String, Vec<u8>) {
    let mut content = noise(len / 2, 3);
    let words = b"Call me Ishmael. Some years ago, never mind how long precisely, ";
    content.extend(words.iter().cycle().take((len - len / 2) as usize));
    (desk.file("disk.raw", &content), content)
}

#[test]
fn every_disk_of_this_machine_is_listed_with_its_size_and_nothing_is_served() {
    let list = cheetah(&["serve", "--list"]).ok().json();
    let listed: Vec<_> = list["disks"].as_array().unwrap().iter().map(|disk| text(disk, "path").to_owned()).collect();
    for entry in std::fs::read_dir("/sys/block").unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let sectors = std::fs::read_to_string(format!("/sys/block/{name}/size")).unwrap_or_default();
        let is_disk = !["loop", "ram", "zram"].iter().any(|prefix| name.starts_with(prefix));
        let path = format!("/dev/{}", name.replace('!', "/"));
        // Another test may make or remove a device meanwhile.
        if name.starts_with("sd") || name.starts_with("vd") || name.starts_with("nvme") {
            assert_eq!(listed.contains(&path), is_disk && sectors.trim() != "0", "{path}");
        }
    }
    cheetah(&["serve", "--list", "/dev/null"]).says(2, &["--list"]);
    cheetah(&["serve"]).says(2, &["<DEVICE>"]);
}

fn client(address: Address, packing: Packing, connections: usize) -> ClientConfig {
    let uri = NbdUri::new(address, "");
    ClientConfig { packing, connections, timeout: PATIENCE, ..ClientConfig::new(uri) }
}

fn run<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap().block_on(work)
}

async fn read_all(client: &Client, step: u64) -> Vec<u8> {
    let mut all = Vec::new();
    for range in ByteRange::new(0, client.geometry().size).split_at_multiples(step) {
        all.extend(client.read(range).await.unwrap().into_bytes());
    }
    all
}

#[test]
fn stock_clients_can_read_a_served_disk_and_not_write_it() {
    if !need::programs(&["nbdinfo", "nbdcopy", "qemu-img", "qemu-io"]) {
        return;
    }
    let desk = Desk::new();
    let (disk, content) = image(&desk, 9 * MIB + 512);
    let (service, uri) = serve(&disk, &[&LISTEN[..], &["--name", "sda"]].concat());
    assert_eq!(text(&service.ready, "read_only"), "not-set");

    let info = tool("nbdinfo", &["--json", &uri]).ok().json();
    let it = &info["exports"][0];
    assert_eq!((&it["export-size"], &it["is_read_only"]), (&(9 * MIB + 512).into(), &true.into()), "{info}");
    let description = it["description"].as_str().unwrap().strip_prefix("x-cheetah:").unwrap();
    let description: serde_json::Value = serde_json::from_str(description).unwrap();
    assert_eq!((text(&description, "kind"), text(&description, "location")), ("raw", disk.as_str()));

    let copy = desk.arg("copy.raw");
    tool("nbdcopy", &[&uri, &copy]).ok();
    assert!(std::fs::read(&copy).unwrap() == content);
    let qcow = desk.arg("copy.qcow2");
    tool("qemu-img", &["convert", "-f", "raw", "-O", "qcow2", &uri, &qcow]).ok();
    tool("qemu-img", &["compare", "-f", "raw", "-F", "qcow2", &uri, &qcow]).ok();

    assert_ne!(tool("nbdcopy", &[&copy, &uri]).code, Some(0));
    assert_ne!(tool("qemu-io", &["-f", "raw", "-c", "write -P 9 0 4k", &uri]).code, Some(0));
    assert_eq!(service.stop(Signal::TERM).0, Some(0));
    assert!(std::fs::read(&disk).unwrap() == content);
}

#[test]
fn our_client_reads_packed_data_and_the_agents_memory_stays_small() {
    let desk = Desk::new();
    let (disk, content) = image(&desk, 40 * MIB);
    let (service, uri) = serve(&disk, &LISTEN);
    let address = uri.parse::<NbdUri>().unwrap().address;
    run(async {
        for method in Method::ALL {
            // As many connections as the agent allows, each with reads beyond the agent's memory.
            let client = Client::connect(client(address.clone(), Packing::Wanted(method), 8)).await.unwrap();
            assert_eq!(client.packed(), Some(method));
            let client = Arc::new(client);
            let readers: Vec<_> = (0..4)
                .map(|_| {
                    let client = Arc::clone(&client);
                    tokio::spawn(async move { client.read(ByteRange::new(0, 40 * MIB)).await.unwrap() })
                })
                .collect();
            for reader in readers {
                assert!(reader.await.unwrap().into_bytes() == content, "{method}");
            }
        }
        let plain = Client::connect(client(address, Packing::Off, 16)).await.unwrap();
        let whole = ByteRange::new(0, 40 * MIB);
        let (first, second) = tokio::join!(plain.read(whole), plain.read(whole));
        assert!(first.unwrap().into_bytes() == content && second.unwrap().into_bytes() == content);
    });
    let peak = peak_bytes(service.pid());
    assert!(peak <= 128 * MIB, "{} MiB", peak / MIB);
    assert_eq!(service.stop(Signal::INT).0, Some(0));
}

#[test]
fn an_agent_reconnects_to_each_new_examiner() {
    let desk = Desk::new();
    let (disk, content) = image(&desk, 6 * MIB);
    let port = Port::held();
    let (service, uri) = serve(&disk, &["--connect", &port.text(), "--cpu-max", "50%"]);
    assert_eq!(uri, "", "with --connect alone, the agent does not listen");
    run(async {
        for connections in [3, 1] {
            let inbox = loop {
                match Inbox::listen(port.address(), None).await {
                    Ok(inbox) => break inbox,
                    Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
                }
            };
            let wanted = client(Address::Inbound(inbox), Packing::Wanted(Method::Auto), connections);
            let client = Client::connect(wanted).await.unwrap();
            assert!(client.description().is_some_and(|text| text.contains(&disk)));
            assert!(read_all(&client, MIB).await == content);
        }
    });
    assert_eq!(service.stop(Signal::TERM).0, Some(0));
}

#[test]
fn a_disk_that_nothing_uses_is_protected_by_the_kernel() {
    if !need::root_and_loop() || !need::programs(&["losetup", "blockdev"]) {
        return;
    }
    let desk = Desk::new();
    let (disk, content) = image(&desk, 4 * MIB);
    let device = tool("losetup", &["--find", "--show", &disk]).ok().out().trim().to_owned();
    // The read-only flag of a loop device outlives its use.
    let unprotect = || tool("blockdev", &["--setrw", &device]).ok();
    unprotect();
    let result = std::panic::catch_unwind(|| {
        let (service, uri) = serve(&device, &LISTEN);
        assert_eq!(text(&service.ready, "read_only"), "set", "{}", service.ready);
        let identity = &service.ready["identity"];
        assert_eq!((text(identity, "kind"), &identity["write_protected"]), ("block", &true.into()));
        assert_eq!(tool("blockdev", &["--getro", &device]).ok().out().trim(), "1");
        let address = uri.parse::<NbdUri>().unwrap().address;
        let wanted = client(address, Packing::Wanted(Method::Zstd), 2);
        let read = run(async { read_all(&Client::connect(wanted).await.unwrap(), MIB).await });
        assert!(read == content);
        service.stop(Signal::INT);
        let (service, _) = serve(&device, &LISTEN);
        assert_eq!(text(&service.ready, "read_only"), "found");
    });
    unprotect();
    tool("losetup", &["--detach", &device]).ok();
    result.unwrap();
}

#[test]
fn invalid_command_lines_are_refused() {
    let desk = Desk::new();
    let (disk, _) = image(&desk, MIB);
    cheetah(&["serve", &disk, "--listen", "0.0.0.0:0"]).says(2, &["0.0.0.0:0", "--insecure"]);
    cheetah(&["serve", &disk, "--connect", "examiner:10809"]).says(2, &["examiner:10809", "--insecure"]);
    cheetah(&["serve", &disk, "--connect", "examiner"]).says(2, &["HOST:PORT"]);
    cheetah(&["serve", "nbd://127.0.0.1/"]).says(2, &["path"]);
    cheetah(&["serve", &desk.arg("absent"), "--listen", "127.0.0.1:0"]).says(1, &["absent", "no such image"]);
    for (flag, value) in [("--cpu-max", "0"), ("--cpu-max", "much"), ("--rate-max", "0"), ("--connections-max", "17")] {
        assert_eq!(cheetah(&["serve", &disk, flag, value]).code, Some(2), "{flag} {value}");
    }
}

#[test]
fn the_static_binary_serves_a_disk() {
    let Some(binary) = std::env::var_os("CHEETAH_STATIC").filter(|path| std::path::Path::new(path).is_file()) else {
        return need::skip("needs the static binary (make test builds it and sets CHEETAH_STATIC)");
    };
    let desk = Desk::new();
    let (disk, content) = image(&desk, 8 * MIB);
    let mut command = std::process::Command::new(binary);
    command.env_clear().args(["--json", "serve", &disk, "--listen", "127.0.0.1:0", "--cpu-max", "low"]);
    let service = Service::spawn(command, "ready").unwrap();
    let address = text(&service.ready, "uri").parse::<NbdUri>().unwrap().address;
    let wanted = client(address, Packing::Wanted(Method::Zstd), 2);
    let read = run(async { read_all(&Client::connect(wanted).await.unwrap(), 4 * MIB).await });
    assert!(read == content);
    let peak = peak_bytes(service.pid());
    assert!(peak <= 128 * MIB, "{} MiB", peak / MIB);
}

/// Returns the peak resident memory of a process.
fn peak_bytes(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024
}
