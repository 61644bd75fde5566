//! Every kind of source, made by the programs that usually make them, opened through `open`.

use std::fs;
use std::process::Command;

use cheetah_device::coverage::State;
use cheetah_device::error::Withheld;
use cheetah_device::{ByteRange, Coverage, Data, Device as _, Error as DeviceError};
use cheetah_error::Error;
use cheetah_image::{Kind, OpenOptions, Source, open};
use tempfile::TempDir;

use crate::need;

const MIB: usize = 1 << 20;

/// Deterministic noise with holes.
fn content(len: usize) -> Vec<u8> {
    let mut state = 0x5eed_u64;
    let mut out: Vec<u8> = std::iter::repeat_with(|| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    })
    .take(len)
    .collect();
    out[len / 4..len / 2].fill(0);
    out
}

fn run(program: &str, args: &[&str]) {
    let output = Command::new(program).args(args).output().unwrap();
    assert!(output.status.success(), "{program} {args:?}: {}", String::from_utf8_lossy(&output.stderr));
}

struct Desk(TempDir);

impl Desk {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn at(&self, name: &str) -> String {
        self.0.path().join(name).to_str().unwrap().to_owned()
    }

    fn file(&self, name: &str, content: &[u8]) -> String {
        fs::write(self.at(name), content).unwrap();
        self.at(name)
    }

    /// Converts content to another format with qemu-img.
    fn converted(&self, name: &str, content: &[u8], args: &[&str]) -> String {
        let (raw, out) = (self.file("converted.raw", content), self.at(name));
        let all: Vec<_> =
            ["convert", "-f", "raw", "-O"].into_iter().chain(args.iter().copied()).chain([&*raw, &*out]).collect();
        run("qemu-img", &all);
        fs::remove_file(raw).unwrap();
        out
    }
}

async fn opened(spec: &str) -> Source {
    open(spec, &OpenOptions::default()).await.unwrap_or_else(|error| panic!("{spec}: {error}"))
}

/// Opening fails with this exit code, and names all of these.
async fn refused(spec: &str, code: u8, names: &[&str]) {
    let error: Error = open(spec, &OpenOptions::default()).await.err().unwrap_or_else(|| panic!("{spec} was opened"));
    assert_eq!(error.exit_code(), code, "{error}");
    for name in names {
        assert!(error.to_string().contains(name), "no '{name}' in: {error}");
    }
}

async fn bytes(source: &Source) -> Vec<u8> {
    let size = source.device.geometry().size;
    let mut out = Vec::new();
    for piece in ByteRange::new(0, size).split_at_multiples(MIB as u64) {
        out.extend(source.device.read(piece).await.unwrap().into_bytes());
    }
    out
}

/// Opens a source, compares every byte, and checks that a write is refused.
async fn is(spec: &str, kind: Kind, content: &[u8]) -> Source {
    let source = opened(spec).await;
    assert_eq!(source.identity.kind, kind, "{spec}");
    assert_eq!(source.identity.size, content.len() as u64, "{spec}");
    assert!(bytes(&source).await == content, "{spec}");
    let odd = ByteRange::new(content.len() as u64 / 4 - 77, 1234);
    assert!(source.device.read(odd).await.unwrap() == content[odd.offset as usize..odd.end() as usize], "{spec}");
    assert!(!source.device.geometry().writable);
    assert!(source.device.write(0, Data::zeros(512), false).await.is_err(), "{spec} was written to");
    source
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn raw_and_split_images_are_opened() {
    let (desk, content) = (Desk::new(), content(3 * MIB));
    let source = is(&desk.file("disk.raw", &content), Kind::Raw, &content).await;
    assert_eq!(source.name, "disk");
    for (index, part) in content.chunks(MIB + 512).enumerate() {
        desk.file(&format!("parts.{:03}", index + 1), part);
    }
    let source = is(&desk.at("parts.001"), Kind::Split, &content).await;
    assert_eq!(source.name, "parts");
    is(&format!("raw:{}", desk.at("parts.002")), Kind::Raw, &content[MIB + 512..2 * (MIB + 512)]).await;
    refused(&desk.at("parts.002"), 2, &["parts.001"]).await;
    fs::remove_file(desk.at("parts.002")).unwrap();
    refused(&desk.at("parts.001"), 3, &["parts.002"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn virtual_disks_are_read_through_qemu_nbd() {
    if !need::programs(&["qemu-img", "qemu-nbd"]) {
        return;
    }
    let (desk, content) = (Desk::new(), content(4 * MIB));
    is(&desk.converted("a,b.qcow2", &content, &["qcow2"]), Kind::Qcow2, &content).await;
    is(&desk.converted("v2.qcow2", &content, &["qcow2", "-c", "-o", "compat=0.10"]), Kind::Qcow2, &content).await;
    is(&desk.converted("a.vhdx", &content, &["vhdx"]), Kind::Vhdx, &content).await;
    for (index, subformat) in
        ["monolithicSparse", "monolithicFlat", "twoGbMaxExtentSparse", "twoGbMaxExtentFlat", "streamOptimized"]
            .iter()
            .enumerate()
    {
        let name = format!("disk{index}.vmdk");
        is(&desk.converted(&name, &content, &["vmdk", "-o", &format!("subformat={subformat}")]), Kind::Vmdk, &content)
            .await;
    }
    for subformat in ["dynamic", "fixed"] {
        let options = format!("subformat={subformat},force_size=on");
        is(&desk.converted(&format!("{subformat}.vhd"), &content, &["vpc", "-o", &options]), Kind::Vhd, &content).await;
        // The format is detected by content, not by name.
        fs::rename(desk.at(&format!("{subformat}.vhd")), desk.at(subformat)).unwrap();
        is(&desk.at(subformat), Kind::Vhd, &content).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_closed_virtual_disk_ends_its_process() {
    if !need::programs(&["qemu-img", "qemu-nbd"]) {
        return;
    }
    let (desk, content) = (Desk::new(), content(MIB));
    let source = is(&desk.converted("a.qcow2", &content, &["qcow2"]), Kind::Qcow2, &content).await;
    let marker = desk.at("a.qcow2");
    assert_eq!(processes_with(&marker), 1);
    drop(source);
    for _ in 0..6000 {
        if processes_with(&marker) == 0 {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    panic!("qemu-nbd is left behind");
}

/// How many processes have this in their command line.
fn processes_with(text: &str) -> usize {
    let of = |entry: fs::DirEntry| fs::read(entry.path().join("cmdline")).ok();
    let lines = fs::read_dir("/proc").unwrap().filter_map(|entry| of(entry.ok()?));
    lines.filter(|line| line.windows(text.len()).any(|window| window == text.as_bytes())).count()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn virtual_disks_that_need_other_files_are_refused() {
    if !need::programs(&["qemu-img", "qemu-nbd"]) {
        return;
    }
    let (desk, content) = (Desk::new(), content(MIB));
    let base = desk.converted("base.qcow2", &content, &["qcow2"]);
    let top = desk.at("top.qcow2");
    run("qemu-img", &["create", "-q", "-f", "qcow2", "-b", &base, "-F", "qcow2", &top]);
    refused(&top, 1, &["top.qcow2", "base.qcow2"]).await;
    let data = desk.at("apart.qcow2");
    run("qemu-img", &["create", "-q", "-f", "qcow2", "-o", &format!("data_file={}", desk.at("data")), &data, "1M"]);
    refused(&data, 1, &["apart.qcow2"]).await;
    let base = desk.converted("base.vmdk", &content, &["vmdk"]);
    let top = desk.at("top.vmdk");
    run("qemu-img", &["create", "-q", "-f", "vmdk", "-b", &base, "-F", "vmdk", &top]);
    refused(&top, 1, &["top.vmdk", "base.vmdk"]).await;

    let flat = desk.converted("flat.vmdk", &content, &["vmdk", "-o", "subformat=monolithicFlat"]);
    let text = fs::read_to_string(&flat).unwrap();
    fs::write(&flat, text.replace("flat-flat.vmdk", "/etc/passwd")).unwrap();
    refused(&flat, 1, &["flat.vmdk"]).await;
    fs::write(&flat, text.replace("flat-flat.vmdk", "gone.vmdk")).unwrap();
    refused(&flat, 3, &["gone.vmdk"]).await;
    refused(&desk.file("cut.qcow2", &fs::read(desk.at("base.qcow2")).unwrap()[..60]), 3, &["cut.qcow2"]).await;
    refused(&desk.file("cut.vhdx", b"vhdxfile and nothing else"), 1, &["cut.vhdx", "qemu-nbd"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_virtual_disk_that_was_cut_short_is_refused_and_never_read_as_zeros() {
    if !need::programs(&["qemu-img", "qemu-nbd"]) {
        return;
    }
    let (desk, content) = (Desk::new(), content(4 * MIB));
    for (name, cut, how) in [
        ("a.qcow2", "a.qcow2", &["qcow2"][..]),
        ("old.qcow2", "old.qcow2", &["qcow2", "-o", "compat=0.10"]),
        ("packed.qcow2", "packed.qcow2", &["qcow2", "-c"]),
        ("wide.qcow2", "wide.qcow2", &["qcow2", "-o", "extended_l2=on,cluster_size=128k"]),
        ("sparse.vmdk", "sparse.vmdk", &["vmdk", "-o", "subformat=monolithicSparse"]),
        ("stream.vmdk", "stream.vmdk", &["vmdk", "-o", "subformat=streamOptimized"]),
        ("flat.vmdk", "flat-flat.vmdk", &["vmdk", "-o", "subformat=monolithicFlat"]),
        ("many.vmdk", "many-s001.vmdk", &["vmdk", "-o", "subformat=twoGbMaxExtentSparse"]),
        ("plain.vmdk", "plain-f001.vmdk", &["vmdk", "-o", "subformat=twoGbMaxExtentFlat"]),
        ("dynamic.vhd", "dynamic.vhd", &["vpc", "-o", "subformat=dynamic,force_size=on"]),
        ("fixed.vhd", "fixed.vhd", &["vpc", "-o", "subformat=fixed,force_size=on"]),
        ("a.vhdx", "a.vhdx", &["vhdx"]),
    ] {
        let image = desk.converted(name, &content, how);
        let whole = fs::read(desk.at(cut)).unwrap();
        for len in [whole.len() - (200 << 10), whole.len() / 2, whole.len() / 4] {
            fs::write(desk.at(cut), &whole[..len]).unwrap();
            let refused = match open(&image, &OpenOptions::default()).await {
                Err(refused) => refused,
                // The end of the last block is behind the end of the disk.
                Ok(source) => {
                    assert!(name == "a.vhdx" && bytes(&source).await == content, "{name} cut to {len} bytes");
                    continue;
                }
            };
            let own = !["vhd", "vhdx"].iter().any(|end| name.ends_with(end));
            assert!(!own || refused.is_evidence(), "{name}: {refused}");
        }
        fs::write(desk.at(cut), &whole).unwrap();
        let source = opened(&image).await;
        let names: Vec<_> = source.files.iter().filter_map(|file| file.path.file_name()?.to_str()).collect();
        assert!(names[0] == name && names.contains(&cut), "{names:?}");
    }
}

#[tokio::test]
async fn a_compressed_file_is_known_by_decoding_and_a_name_never_makes_it_raw() {
    let desk = Desk::new();
    let content = content(MIB);
    let pack = |bytes: &[u8]| {
        let mut encoder = bzip2::write::BzEncoder::new(Vec::new(), bzip2::Compression::fast());
        std::io::Write::write_all(&mut encoder, bytes).unwrap();
        encoder.finish().unwrap()
    };
    let bzip2 = desk.file("empty-first.bz2", &[pack(b""), pack(b""), pack(&content)].concat());
    is(&bzip2, Kind::Bzip2, &content).await;
    let frame = zstd::bulk::compress(&content, 1).unwrap();
    let skippable = [&b"\x52\x2a\x4d\x18"[..], &5000u32.to_le_bytes(), &[7; 5000]].concat();
    let zstd = desk.file("skipped-first", &[&skippable[..], &skippable, &frame].concat());
    is(&zstd, Kind::Zstd, &content).await;
    is(&desk.file("skipped-only", &skippable), Kind::Raw, &skippable).await;
    for end in ["gz", "bz2", "xz", "zst", "lz4", "lzma", "zip", "7z", "tar", "ova", "vdi", "dmg", "qcow2", "e02", "Z"] {
        let path = desk.file(&format!("disk.{end}"), &content);
        refused(&path, 3, &["raw:"]).await;
        is(&format!("raw:{path}"), Kind::Raw, &content).await;
    }
    for (start, word) in [(&b"LZIP\x01"[..], "lzip"), (b"\x04\x22\x4d\x18", "lz4"), (b"QED\0", "QED")] {
        let path = desk.file("named.raw", &[start, &[0; 2000]].concat());
        refused(&path, 1, &[word]).await;
    }
}

#[tokio::test]
async fn unsupported_formats_are_refused_by_name() {
    let desk = Desk::new();
    let padded = |start: &[u8]| [start, &[0; 2000]].concat();
    for (name, start, word) in [
        ("files.L01", &b"LVF\x09\x0d\x0a\xff\x00"[..], "L01"),
        ("files.ad1", b"ADSEGMENTEDFILE\x00", "AD1"),
        ("old.aff", b"AFF10\r\n\x00", "AFF image"),
        ("image.7z", b"7z\xbc\xaf\x27\x1c", "7z"),
    ] {
        let path = desk.file(name, &padded(start));
        refused(&path, 1, &[name, word]).await;
        is(&format!("raw:{path}"), Kind::Raw, &padded(start)).await;
    }
    refused(&desk.file("disk.E01", &padded(b"no header")), 3, &["disk.E01", "raw:"]).await;
    refused(&desk.at("absent.raw"), 1, &["absent.raw"]).await;
    refused(desk.0.path().to_str().unwrap(), 2, &[]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_real_virtual_disk_is_read() {
    let Some(path) = need::evidence("windows_volume.qcow2") else { return };
    if !need::programs(&["qemu-img", "qemu-nbd"]) {
        return;
    }
    let (path, desk) = (path.to_str().unwrap(), Desk::new());
    run("qemu-img", &["convert", "-O", "raw", path, &desk.at("windows.raw")]);
    let content = fs::read(desk.at("windows.raw")).unwrap();
    assert_eq!(content.len(), 35_913_728);
    is(path, Kind::Qcow2, &content).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unread_ranges_of_an_image_stay_unreadable_when_it_is_acquired_again() {
    let (desk, content) = (Desk::new(), content(2 * MIB));
    let (unread, unreadable) = (ByteRange::new(512, 1024), ByteRange::new(MIB as u64, 512));
    let mut map = Coverage::new(2 * MIB as u64);
    map.set(ByteRange::new(0, 2 * MIB as u64), State::Read);
    let images = if need::programs(&["ewfacquire"]) {
        let raw = desk.file("converted.raw", &content);
        let (e01, log) = (desk.at("x"), desk.at("log"));
        run("ewfacquire", &["-u", "-q", "-t", &e01, "-l", &log, "-f", "encase6", "-c", "none", &raw]);
        vec![(desk.file("x.raw", &content), Kind::Raw), (desk.at("x.E01"), Kind::E01)]
    } else {
        vec![(desk.file("x.raw", &content), Kind::Raw)]
    };
    for (image, kind) in images {
        let beside = format!("{image}.map");
        fs::write(&beside, map.to_string()).unwrap();
        assert_eq!(is(&image, kind, &content).await.identity.unreadable, [], "all of it was read");
        let mut map = map.clone();
        map.set(unread, State::Unread);
        map.set(unreadable, State::Unreadable);
        fs::write(&beside, map.to_string()).unwrap();
        let source = opened(&image).await;
        assert_eq!(source.identity.unreadable, [unread, unreadable]);
        assert!(source.device.read(ByteRange::new(0, 512)).await.unwrap() == content[..512]);
        let when = "when the image was made";
        for (range, why) in [(unread, Withheld::NotRead(when)), (unreadable, Withheld::WasUnreadable(when))] {
            let error = source.device.read(ByteRange::new(range.offset - 8, 16)).await.unwrap_err();
            assert!(matches!(&error, DeviceError::Withheld { reason, .. } if *reason == why), "{error}");
        }
        let whole = source.device.extents(ByteRange::new(0, 2 * MIB as u64)).await.unwrap();
        assert!(!whole[0].zero && whole[0].len >= unread.end(), "{whole:?}");
        let zeros = OpenOptions { apply_map: false, ..OpenOptions::default() };
        assert!(bytes(&open(&image, &zeros).await.unwrap()).await == content);
        assert!(bytes(&opened(&format!("raw:{image}")).await).await == fs::read(&image).unwrap());
        fs::write(&beside, Coverage::new(512).to_string()).unwrap();
        refused(&image, 3, &[&beside, "512B", "2MiB"]).await;
        fs::write(&beside, "neither\nnor\n").unwrap();
        refused(&image, 3, &[&beside]).await;
    }
}
