//! Sources of which a part is damaged: images that are corrupt, and servers that end the connection at a bad sector.

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use cheetah_device::ByteRange;
use cheetah_iscsi::testing::{Act, BLOCK, Fake, Plan, Seen};
use serde_json::Value;

use super::Examiner;
use crate::support::node::list;
use crate::support::run::{Ran, cheetah_plain};
use crate::support::service::Mounted;
use crate::support::{Desk, MIB, Peer, cheetah, need, noise, number, three, tool};

const SIZE: u64 = 8 * MIB;

/// An E01 and an xz file of `content`, each with one damaged byte; and the length of the chunk or block with it.
fn damaged(examiner: &Examiner, content: &[u8]) -> Vec<(String, u64)> {
    let disk = examiner.desk.file("disk.raw", content);
    let e01 = examiner.desk.arg("whole.E01");
    examiner.acquire(&[&disk, &e01, "--level", "none"]).ok();
    let mut bytes = fs::read(&e01).unwrap();
    let place = bytes.windows(32).position(|window| *window == content[500_000..500_032]).unwrap();
    bytes[place] ^= 1;
    fs::write(&e01, bytes).unwrap();
    let mut images = vec![(e01, 32768)];
    if need::programs(&["xz"]) {
        tool("xz", &["-k", "-1", "--block-size=65536", &disk]).ok();
        let packed = format!("{disk}.xz");
        let mut bytes = fs::read(&packed).unwrap();
        bytes[900_000] ^= 1;
        fs::write(&packed, bytes).unwrap();
        images.push((packed, 65536));
    }
    images
}

/// The report of an acquisition that ended with an evidence problem.
fn report_of(ran: &Ran) -> Value {
    let out = ran.out();
    let done = out.lines().find(|line| line.starts_with("{\"event\":\"done\"")).unwrap();
    serde_json::from_str::<Value>(done).unwrap()["report"].clone()
}

#[test]
fn a_corrupt_chunk_of_an_image_is_a_range_and_the_rest_is_acquired() {
    let (examiner, content) = (Examiner::new(), noise(SIZE, 3));
    for (image, len) in damaged(&examiner, &content) {
        let raw = examiner.desk.arg("out.raw");
        examiner.acquire(&[&image, &raw]).says(3, &["corrupt in the image", "--max-errors"]);
        let done = examiner.acquire(&[&image, &raw, "--max-errors", "unlimited"]);
        let report = report_of(&done.ended_with(3));
        let (bytes, corrupt) = (number(&report, "unreadable_bytes"), number(&report, "corrupt_bytes"));
        assert_eq!((bytes, corrupt), (len, len), "{image}");
        let range = ByteRange::new(number(&report["unreadable"][0], "offset"), len);
        assert!(range.offset.is_multiple_of(len) && (500_000..2 << 20).contains(&range.end()), "{image}: {range}");
        let mut expected = content.clone();
        expected[range.offset as usize..range.end() as usize].fill(0);
        assert!(examiner.read("out.raw") == expected, "{image}");
        assert_eq!(examiner.unreadable("out.raw.map"), [range]);
        let map = String::from_utf8(examiner.read("out.raw.map")).unwrap();
        assert!(map.contains(&format!("# corrupt  {:#010x}  {:#010x}", range.offset, range.len)), "{map}");
        let log = String::from_utf8(examiner.read("out.raw.custody")).unwrap();
        assert!(log.contains("\"corrupt\":true") && log.contains("\"corrupt_bytes\""), "{log}");
        let text = String::from_utf8(examiner.read("out.raw.report.txt")).unwrap();
        assert!(text.contains("CORRUPT") && !text.contains("UNREADABLE") && !text.contains("DIFFERS"), "{text}");
        for name in ["out.raw", "out.raw.map", "out.raw.custody", "out.raw.report.txt"] {
            fs::remove_file(examiner.desk.at(name)).unwrap();
        }
    }
}

/// A disk with an unreadable range, behind nbdkit.
fn bad_disk(desk: &Desk, content: &[u8], bad: &Range<u64>) -> Peer {
    let disk = desk.file("bad.raw", content);
    let read = format!(
        "pread=if [ $4 -lt {} ] && [ $(($4 + $3)) -gt {} ]; then echo 'EIO bad sector' >&2; exit 1; fi; \
         dd if={disk} iflag=skip_bytes,count_bytes skip=$4 count=$3 status=none",
        bad.end, bad.start
    );
    // qemu-nbd opens it for writing.
    let (size, write) = (format!("get_size=echo {}", content.len()), "pwrite=cat > /dev/null");
    Peer::nbdkit_unix(desk, &["eval", &size, &read, write])
}

#[test]
fn a_bad_sector_behind_a_server_that_ends_the_connection_is_a_range() {
    let bad = 1_052_672..1_056_768;
    let (examiner, content) = (Examiner::new(), noise(SIZE, 4));
    let mut expected = content.clone();
    expected[bad.start as usize..bad.end as usize].fill(0);
    let mut servers: Vec<(String, Vec<Peer>)> = vec![(Rude::serve(content.clone(), bad.clone()), Vec::new())];
    if need::programs(&["nbdkit", "qemu-nbd"]) {
        let disk = bad_disk(&examiner.desk, &content, &bad);
        let qemu = Peer::qemu_nbd(&examiner.desk, &disk.uri);
        servers.push((qemu.uri.clone(), vec![qemu, disk]));
    }
    // The target ends with its runtime.
    let runtime = tokio::runtime::Runtime::new().unwrap();
    servers.push((runtime.block_on(rude_target(&content, &bad)), Vec::new()));
    for (uri, _peers) in servers {
        let raw = examiner.desk.arg("out.raw");
        let ran = examiner.acquire(&[&uri, &raw, "--max-errors", "unlimited"]).ended_with(3);
        let report = report_of(&ran);
        assert!(examiner.read("out.raw") == expected, "{uri}");
        assert_eq!(examiner.unreadable("out.raw.map"), [ByteRange::between(bad.start, bad.end)], "{uri}");
        assert!(number(&report, "reconnects") > 0 && number(&report, "corrupt_bytes") == 0, "{report}");
        let raw = examiner.desk.arg("plain.raw");
        let plain = cheetah_plain(&["acquire", &uri, &raw, "--force", "--max-errors", "unlimited"]);
        let lines = plain.stderr.lines().filter(|line| line.contains("lost") || line.contains("is back")).count();
        assert!(plain.code == Some(3) && lines <= 30, "{uri}: {lines} lines\n{}", plain.stderr);
        for name in ["out.raw", "out.raw.map", "out.raw.custody", "out.raw.report.txt"] {
            fs::remove_file(examiner.desk.at(name)).unwrap();
        }
    }
}

#[test]
fn an_end_that_is_no_whole_block_of_the_server_is_a_range() {
    if !need::programs(&["nbdkit"]) {
        return;
    }
    let examiner = Examiner::new();
    let content = noise(SIZE + 512, 5);
    let disk = examiner.desk.file("disk.raw", &content);
    let blocks = "block_size=echo 4096 4096 1M";
    let read = format!(
        "pread=if [ $(($3 % 4096)) -ne 0 ]; then echo 'EINVAL no whole block' >&2; exit 1; fi; \
         dd if={disk} iflag=skip_bytes,count_bytes skip=$4 count=$3 status=none"
    );
    let size = format!("get_size=echo {}", content.len());
    let peer = Peer::nbdkit_unix(&examiner.desk, &["eval", &size, blocks, &read]);
    let raw = examiner.desk.arg("out.raw");
    examiner.acquire(&[&peer.uri, &raw]).says(3, &["whole blocks of 4096 bytes", "--max-errors"]);
    examiner.acquire(&[&peer.uri, &raw, "--max-errors", "1"]).ended_with(3);
    assert_eq!(examiner.unreadable("out.raw.map"), [ByteRange::new(SIZE, 512)]);
    assert!(examiner.read("out.raw")[..SIZE as usize] == content[..SIZE as usize]);
}

/// Serves `content` as an iSCSI target that closes the connection at each read of `bad`; returns its URI.
async fn rude_target(content: &[u8], bad: &Range<u64>) -> String {
    let bad = bad.start / BLOCK as u64..bad.end / BLOCK as u64;
    let act = move |read: Seen| match read.lba < bad.end && read.lba + read.blocks as u64 > bad.start {
        true => Act::HangUpAfter(0),
        false => Act::Answer,
    };
    Fake::start(Plan::new(&content.into(), act)).await.uri()
}

/// An NBD server that closes the connection where others would return an error.
struct Rude {
    content: Vec<u8>,
    bad: Range<u64>,
}

impl Rude {
    /// Serves `content` until the test program ends; returns the URI.
    fn serve(content: Vec<u8>, bad: Range<u64>) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let uri = format!("nbd://{}", listener.local_addr().unwrap());
        let server = Arc::new(Self { content, bad });
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let server = server.clone();
                std::thread::spawn(move || server.talk(client));
            }
        });
        uri
    }

    fn talk(&self, mut client: TcpStream) -> std::io::Result<()> {
        client.write_all(b"NBDMAGICIHAVEOPT\0\x01")?;
        client.read_exact(&mut [0; 4])?;
        loop {
            let mut head = [0; 16];
            client.read_exact(&mut head)?;
            let (option, len) = (head[8..12].to_vec(), u32::from_be_bytes(head[12..].try_into().unwrap()));
            client.read_exact(&mut vec![0; len as usize])?;
            let is_go = option == 7u32.to_be_bytes();
            let reply = |kind: u32, data: &[u8]| {
                [
                    &0x0003_e889_0455_65a9_u64.to_be_bytes()[..],
                    &option,
                    &kind.to_be_bytes(),
                    &(data.len() as u32).to_be_bytes(),
                    data,
                ]
                .concat()
            };
            if !is_go {
                client.write_all(&reply(0x8000_0001, &[]))?;
                continue;
            }
            // Read-only.
            let info = [&[0, 0][..], &(self.content.len() as u64).to_be_bytes(), &[0, 3]].concat();
            client.write_all(&[reply(3, &info), reply(1, &[])].concat())?;
            return self.transmit(client);
        }
    }

    fn transmit(&self, mut client: TcpStream) -> std::io::Result<()> {
        loop {
            let mut request = [0; 28];
            client.read_exact(&mut request)?;
            let offset = u64::from_be_bytes(request[16..24].try_into().unwrap());
            let end = offset + u64::from(u32::from_be_bytes(request[24..].try_into().unwrap()));
            if request[7] != 0 || offset < self.bad.end && end > self.bad.start {
                return Ok(());
            }
            let head = [&0x6744_6698_u32.to_be_bytes()[..], &[0; 4], &request[8..16]].concat();
            client.write_all(&[&head[..], &self.content[offset as usize..end as usize]].concat())?;
        }
    }
}

#[test]
fn a_source_that_changes_while_its_time_of_modification_is_put_back_is_not_acquired() {
    let examiner = Examiner::new();
    let disk = examiner.desk.file("disk.raw", &noise(192 * MIB, 6));
    let modified = fs::metadata(&disk).unwrap().modified().unwrap();
    let raw = examiner.desk.arg("out.raw");
    let mut acquisition = examiner.start(&[&disk, &raw, "--checkpoint", "1MiB"]);
    examiner.wait_for("out.raw.acquire");
    let file = fs::File::options().write(true).open(&disk).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, b"changed", 192 * MIB - 4096).unwrap();
    file.set_modified(modified).unwrap();
    drop(file);
    assert_eq!(acquisition.wait().unwrap().code(), Some(3));
    assert!(!examiner.desk.at("out.raw").exists());
    let log = String::from_utf8(examiner.read("out.raw.custody")).unwrap();
    assert!(log.contains("changed while it was read"), "{log}");
}

#[test]
fn the_report_says_how_a_source_was_watched() {
    let examiner = Examiner::new();
    let disk = examiner.desk.file("disk.raw", &noise(MIB, 7));
    examiner.acquire(&[&disk, &examiner.desk.arg("out.raw")]).ok();
    let report = String::from_utf8(examiner.read("out.raw.report.txt")).unwrap();
    let line = report.lines().find(|line| line.starts_with("watched")).unwrap();
    let line = report[report.find(line).unwrap()..].split_whitespace().collect::<Vec<_>>().join(" ");
    for words in ["time of change", "open for writing", "at the end of an acquisition", "fanotify was not used"] {
        assert!(line.contains(words), "{words}: {line}");
    }
}

#[test]
fn an_empty_source_is_refused() {
    if !need::programs(&["nbdkit"]) {
        return;
    }
    let examiner = Examiner::new();
    let peer = Peer::nbdkit_unix(&examiner.desk, &["null", "size=0"]);
    let raw = examiner.desk.arg("out.raw");
    examiner.acquire(&[&peer.uri, &raw]).says(1, &["is empty"]);
    assert!(!examiner.desk.at("out.raw").exists());
}

#[test]
fn a_partial_image_is_called_unfinished_and_not_damaged() {
    let examiner = Examiner::new();
    for name in ["x.E01", "x.raw"] {
        let partial = examiner.desk.file(&format!("{name}.partial"), b"EVF\x09\x0d\x0a\xff\x00");
        let ran = cheetah(&["verify", &partial]);
        ran.says(3, &["is not finished", "run the same acquire command again"]);
    }
}

/// The answer of a command, before the error.
fn answer(ran: &Ran) -> Value {
    let out = ran.out();
    serde_json::from_str(out.lines().next().unwrap()).unwrap()
}

/// Asserts that every 4 KiB of a file are right, except that those in `bad` cannot be read.
fn assert_only_missing(file: &Path, content: &[u8], bad: ByteRange) {
    let file = fs::File::open(file).unwrap();
    for (offset, expected) in (0u64..).step_by(4096).zip(content.chunks(4096)) {
        let (mut piece, is_bad) = (vec![0; expected.len()], bad.contains(ByteRange::new(offset, 1)));
        match std::os::unix::fs::FileExt::read_exact_at(&file, &mut piece, offset) {
            Ok(()) => assert!(piece == expected && !is_bad, "{offset}"),
            Err(error) => assert!(error.raw_os_error() == Some(5) && is_bad, "{offset}: {error}"),
        }
    }
}

#[test]
fn a_corrupt_chunk_of_an_image_is_a_range_of_the_drive_that_is_made_of_it() {
    let (examiner, content) = (Examiner::new(), noise(SIZE, 3));
    let nodes = three("32MiB");
    let (nodes, mnt) = (list(&nodes.each_ref()), examiner.desk.dir("mnt"));
    for (image, len) in damaged(&examiner, &content) {
        let drive = examiner.desk.arg("d.drive");
        let create = ["create", &drive, "--nodes", &nodes, "--layout", "stripe", "--from", &image];
        examiner.run(&create).says(3, &["was not made", "corrupt in the image", "--max-errors"]);
        assert!(!Path::new(&drive).exists());
        let made = examiner.run(&[&create[..], &["--max-errors", "1"]].concat()).says(3, &["d.drive.map", "corrupt"]);
        let made = answer(&made);
        let range = ByteRange::new(number(&made["unreadable"][0], "offset"), len);
        assert_eq!(number(&made, "unreadable_bytes"), len);
        assert!(range.offset.is_multiple_of(len) && (500_000..2 << 20).contains(&range.end()), "{image}: {range}");
        examiner.run(&["load", &drive, &image, "--force"]).says(3, &["corrupt in the image", "--max-errors"]);
        let loaded = examiner.run(&["load", &drive, &image, "--force", "--max-errors", "unlimited"]).ended_with(3);
        assert_eq!(number(&answer(&loaded), "corrupt_bytes"), len);
        let log = String::from_utf8(examiner.read("d.drive.custody")).unwrap();
        assert!(
            log.contains("\"corrupt\":true") && log.contains("\"corrupt_bytes\"") && log.contains("sha256"),
            "{log}"
        );
        let verified = answer(&examiner.run(&["verify", &drive]).ended_with(3));
        assert_eq!(verified["unreadable"][0]["offset"], range.offset);
        assert_eq!((number(&verified["unreadable"][0], "len"), &verified["mismatched"]), (len, &serde_json::json!([])));
        let saved = examiner.desk.arg("saved.raw");
        examiner.run(&["save", &drive, &saved]).says(3, &["--partial"]);
        examiner.run(&["save", &drive, &saved, "--partial"]).says(3, &["saved.raw.map"]);
        let mut expected = content.clone();
        expected[range.offset as usize..range.end() as usize].fill(0);
        assert!(examiner.read("saved.raw") == expected && examiner.unreadable("saved.raw.map") == [range], "{image}");
        if need::fuse() {
            for source in [&drive, &image] {
                let mounted = Mounted::new(source, &mnt, &[]);
                let shown = fs::read_dir(examiner.desk.at("mnt")).unwrap().next().unwrap().unwrap().path();
                assert_only_missing(&shown, &content, range);
                mounted.unmount();
            }
        }
        examiner.run(&["destroy", &drive, "--force"]).ok();
        for name in ["saved.raw", "saved.raw.map"] {
            fs::remove_file(examiner.desk.at(name)).unwrap();
        }
    }
}

#[test]
fn a_corrupt_chunk_of_an_image_fails_only_its_bytes_of_a_drive_that_is_filled_from_it() {
    let (examiner, content) = (Examiner::new(), noise(SIZE, 3));
    let nodes = three("32MiB");
    let nodes = list(&nodes.each_ref());
    for (image, len) in damaged(&examiner, &content) {
        let drive = examiner.desk.arg("d.drive");
        examiner.run(&["create", &drive, "--nodes", &nodes, "--layout", "stripe", "--from", &image, "--lazy"]).ok();
        examiner.run(&["load", &drive]).says(3, &["could not be read", "d.drive.map"]);
        let [range] = examiner.unreadable("d.drive.map")[..] else { panic!("one range") };
        assert_eq!(range.len, len);
        let saved = examiner.desk.arg("saved.raw");
        examiner.run(&["save", &drive, &saved, "--partial"]).ended_with(3);
        let mut expected = content.clone();
        expected[range.offset as usize..range.end() as usize].fill(0);
        assert!(examiner.read("saved.raw") == expected, "{image}");
        examiner.run(&["destroy", &drive, "--force"]).ok();
        for name in ["saved.raw", "saved.raw.map"] {
            fs::remove_file(examiner.desk.at(name)).unwrap();
        }
    }
}
