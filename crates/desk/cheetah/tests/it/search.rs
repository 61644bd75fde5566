//! Searching drives and images; hits are confirmed by grep.

use std::fs::{self, File};
use std::path::Path;

use rustix::process::Signal;
use serde_json::Value;

use crate::support::run::{Ran, cheetah_plain, grep, program, run};
use crate::support::{Desk, KIB, MIB, Node, Peer, Service, cheetah, hits_of, need, noise, number, text, three, until};

const SIZE: u64 = 6 * MIB;
const WORD: &str = "Geheimnis";

/// Places of the word: at both ends, across the seams of parts and of stripe units, and side by side.
const PLACES: [u64; 8] =
    [0, 64 * KIB - 4, MIB - 8, 2 * MIB - 1, 2 * MIB + 30, 2 * MIB + 39, 5 * MIB + 13, SIZE - WORD.len() as u64];

/// An image with the word at its places, once in UTF-16, and an e-mail address.
fn image(desk: &Desk) -> String {
    let mut bytes = noise(SIZE, 45);
    let mut put = |at: u64, what: &[u8]| bytes[at as usize..at as usize + what.len()].copy_from_slice(what);
    PLACES.iter().for_each(|at| put(*at, WORD.as_bytes()));
    put(3 * MIB - 7, &WORD.encode_utf16().flat_map(u16::to_le_bytes).collect::<Vec<_>>());
    put(4 * MIB - 9, b" <john.doe@example.com>, ");
    desk.file("disk.raw", &bytes)
}

/// The rows of a table of hits, without the names of its columns, and without the nodes.
fn rows(folder: &Path) -> Vec<String> {
    let table = hits_of(folder);
    let mut lines = table.lines().map(str::to_owned);
    assert_eq!(lines.next().as_deref(), Some("offset,length,pattern,encoding,text,context,inside"));
    lines.collect()
}

fn offsets(rows: &[String]) -> Vec<u64> {
    rows.iter().map(|row| row.split(',').next().unwrap().parse().unwrap()).collect()
}

/// Searches a source for what is in [`image`], and returns the rows.
fn searched(desk: &Desk, source: &str, name: &str) -> Vec<String> {
    let args = ["search", source, "--word", WORD, "--find", "email", "--workers", "2", "--out", &desk.arg(name)];
    let answer = cheetah(&args).ok().json();
    let histogram = fs::read_to_string(desk.at(name).join("features/email_histogram.txt")).unwrap();
    assert!(histogram.ends_with("\nn=1\tjohn.doe@example.com\n"), "{histogram}");
    assert_eq!((&answer["complete"], &answer["finished"]), (&Value::Bool(true), &Value::Bool(true)), "{answer}");
    assert_eq!((number(&answer, "searched_bytes"), number(&answer, "hits")), (SIZE, 10), "{answer}");
    rows(&desk.at(name))
}

#[test]
fn hits_in_a_raw_image_are_those_of_grep_and_an_e01_and_drives_have_the_same() {
    if !need::programs(&["grep"]) {
        return;
    }
    let (desk, nodes) = (Desk::new(), three("8MiB"));
    let raw = image(&desk);
    let found = searched(&desk, &raw, "of-raw");
    let words: Vec<_> = found.iter().filter(|row| row.contains(",utf-8,Geheimnis,")).cloned().collect();
    let of_grep: Vec<_> = grep("-aboF", WORD, &raw).into_iter().map(|(offset, _)| offset).collect();
    assert_eq!(offsets(&words), of_grep);
    assert_eq!(offsets(&words), PLACES);
    let of = |start: String| {
        found.iter().find(|row| row.starts_with(&start)).unwrap_or_else(|| panic!("{start}: {found:?}"))
    };
    of(format!("{},18,Geheimnis,utf-16le,Geheimnis,", 3 * MIB - 7));
    let mail = of(format!("{},20,email,utf-8,john.doe@example.com,", 4 * MIB - 7));
    assert!(mail.contains(" <john.doe@example.com>, "), "{mail}");

    let e01 = desk.arg("disk.E01");
    cheetah(&["acquire", &raw, &e01]).ok();
    assert_eq!(searched(&desk, &e01, "of-e01"), found);
    let striped = desk.drive("striped", &nodes.each_ref(), &raw, &[]);
    assert_eq!(searched(&desk, &striped, "of-stripe"), found);
    cheetah(&["destroy", &striped]).ok();
    let drive = desk.drive("parity", &nodes.each_ref(), &raw, &["--layout", "parity"]);
    assert_eq!(searched(&desk, &drive, "of-parity"), found);
    let [first, second, third] = nodes;
    second.kill();
    assert_eq!(searched(&desk, &drive, "degraded"), found);
    drop((first, third));
}

#[test]
fn a_lazy_drive_is_searched_while_it_fills() {
    let (desk, nodes) = (Desk::new(), three("8MiB"));
    let raw = image(&desk);
    let agent = Service::start(&["serve", &raw, "--listen", "127.0.0.1:0"]);
    let drive = desk.arg("lazy.drive");
    let list = crate::support::node::list(&nodes.each_ref());
    cheetah(&["create", &drive, "--nodes", &list, "--from", text(&agent.ready, "uri"), "--lazy"]).ok();
    assert_eq!(searched(&desk, &drive, "of-lazy"), searched(&desk, &raw, "of-raw"));
}

/// Writes the map of an image: a range that cannot be read, and one that was never read.
fn write_map(raw: &str, unreadable: (u64, u64), unread: (u64, u64)) {
    let mut map = "# Mapfile\n0x0  ?  1\n".to_owned();
    let mut at = 0;
    for ((offset, len), state) in [(unreadable, '-'), (unread, '?')] {
        map.push_str(&format!("{at:#x} {:#x} +\n{offset:#x} {len:#x} {state}\n", offset - at));
        at = offset + len;
    }
    map.push_str(&format!("{at:#x} {:#x} +\n", SIZE - at));
    fs::write(format!("{raw}.map"), map).unwrap();
}

#[test]
fn what_cannot_be_read_is_said_and_the_rest_is_searched() {
    let desk = Desk::new();
    let raw = image(&desk);
    write_map(&raw, (2 * MIB, 512), (5 * MIB, 64 * KIB));
    let out = desk.arg("hits");
    let args = ["search", &raw, "--word", WORD, "--encoding", "utf-8", "--out", &out];
    let ran = cheetah(&args).says(3, &["64.5KiB of 6MiB were not searched"]);
    let answer: Value = serde_json::from_str(ran.out().lines().next().unwrap()).unwrap();
    assert_eq!((&answer["complete"], &answer["finished"]), (&Value::Bool(false), &Value::Bool(true)));
    assert_eq!((number(&answer, "unreadable_bytes"), number(&answer, "unsearched_bytes")), (512, 64 * KIB));
    let gap = |index: usize| {
        let gap = &answer["gaps"][index];
        (text(gap, "state"), number(gap, "offset"), number(gap, "len"))
    };
    assert_eq!((gap(0), gap(1)), (("unreadable", 2 * MIB, 512), ("unread", 5 * MIB, 64 * KIB)));
    let bytes = [0, 64 * KIB - 4, MIB - 8, SIZE - WORD.len() as u64];
    assert_eq!(offsets(&rows(&desk.at("hits"))), bytes);
    assert_eq!(crate::support::mapped(&desk.at("hits/coverage.map"), "-"), [(2 * MIB, 512)]);
    // "No hits" is said of what was searched only.
    let none = || {
        let ran = cheetah_plain(&["search", &raw, "--word", "nothing like it"]);
        (ran.code, ran.out().split_whitespace().collect::<Vec<_>>().join(" "))
    };
    let (code, said) = none();
    assert!(code == Some(3) && said.contains("no hits in the 5.9MiB of 6MiB that were searched"), "{said}");
    fs::remove_file(format!("{raw}.map")).unwrap();
    let (code, said) = none();
    assert!(code == Some(0) && said.contains("no hits in all 6MiB"), "{said}");
}

#[test]
fn a_search_that_is_stopped_keeps_its_hits_under_another_name_and_says_what_was_searched() {
    let desk = Desk::new();
    // It takes half a minute to read, and begins with a hit.
    let mut bytes = noise(64 * MIB, 46);
    bytes[..WORD.len()].copy_from_slice(WORD.as_bytes());
    let raw = desk.file("large.raw", &bytes);
    let agent = Service::start(&["serve", &raw, "--listen", "127.0.0.1:0", "--rate-max", "2MiB"]);
    let uri = text(&agent.ready, "uri");
    let hits = Service::start_on(&["search", uri, "--word", WORD], "hit");
    assert_eq!(number(&hits.ready, "offset"), 0);
    hits.signal(Signal::INT);
    let lines: Vec<String> = std::iter::from_fn(|| hits.next_line()).collect();
    let values: Vec<Value> = lines.iter().map(|line| serde_json::from_str(line).unwrap()).collect();
    let [.., answer, failed] = &values[..] else { panic!("{lines:?}") };
    assert_eq!((&answer["finished"], number(failed, "exit_code")), (&Value::Bool(false), 1));
    let searched = number(answer, "searched_bytes");
    assert_eq!(searched + number(answer, "unsearched_bytes"), 64 * MIB);
    assert!(searched > 0 && searched < 64 * MIB, "{answer}");

    let mut command = program();
    let stderr = desk.at("stderr");
    command.args(["search", uri, "--word", WORD, "--out", &desk.arg("out")]).stderr(File::create(&stderr).unwrap());
    let mut child = command.stdout(File::create(desk.at("stdout")).unwrap()).spawn().unwrap();
    until("it searches", || fs::read_to_string(&stderr).unwrap().contains("searching"));
    rustix::process::kill_process(rustix::process::Pid::from_child(&child), Signal::INT).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(1));
    let names = |folder: &Path| {
        let mut names: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        names
    };
    let kept = [
        "coverage.map",
        "features.unfinished",
        "hits.unfinished.csv",
        "hits.unfinished.parquet",
        "report.html",
        "search.journal",
        "search.json",
    ];
    assert_eq!(names(&desk.at("out")), kept);
    let page = fs::read_to_string(desk.at("out/report.html")).unwrap();
    assert!(page.contains("Partial.") && !page.contains("in all 64MiB"), "{page}");
    let parquet = fs::read(desk.at("out/hits.unfinished.parquet")).unwrap();
    assert!(parquet.starts_with(b"PAR1") && parquet.ends_with(b"PAR1"));
    let answer: Value = serde_json::from_slice(&fs::read(desk.at("out/search.json")).unwrap()).unwrap();
    assert_eq!((&answer["complete"], &answer["finished"]), (&Value::Bool(false), &Value::Bool(false)));
    assert!(!names(desk.path()).iter().any(|name| name.to_string_lossy().starts_with('.')));
}

#[test]
fn words_of_a_list_are_found_in_any_case_and_code_page_and_shown_around() {
    let desk = Desk::new();
    let list = desk.file("words.txt", "Übergabe\r\n\r\n  Straße \r\n".as_bytes());
    let source = desk.file("disk.raw", &[b"x" as &[u8], b"\xfcBERGABE,", "STRAßE\"".as_bytes(), &[0; 600]].concat());
    let args = ["search", &source, &list, "--ignore-case", "--encoding", "utf-8,cp1252", "--context", "3", "--out"];
    cheetah(&[&args[..], &[&desk.arg("hits")]].concat()).ok();
    let expected = [
        "1,8,Übergabe,windows-1252,üBERGABE,\"xüBERGABE,ST\",",
        "10,7,Straße,utf-8,STRAßE,\"BE,STRAßE\"\"\\x00\\x00\",",
    ];
    assert_eq!(rows(&desk.at("hits")), expected);
}

#[test]
fn an_order_that_makes_no_sense_is_refused_before_anything_is_written() {
    let desk = Desk::new();
    let source = desk.file("disk.raw", &[0; 4096]);
    let out = desk.arg("hits");
    let search = |more: &[&str]| -> Ran { cheetah(&[&["search", &source, "--out", &out], more].concat()) };
    search(&[]).says(2, &["--word", "--regex"]);
    search(&["--regex", "a+"]).says(2, &["'a+'", "{1,64}"]);
    search(&["--regex", "("]).says(2, &["unclosed group"]);
    search(&["--find", "mail"]).ended_with(2);
    search(&["--word", "x", "--encoding", "cp9999"]).ended_with(2);
    search(&[&desk.file("empty.txt", b"\n")]).says(2, &["empty.txt", "no words"]);
    assert!(!desk.at("hits").exists());
    search(&["--word", "x"]).ok();
    search(&["--word", "y"]).says(2, &["another search", "the words", "another folder"]);
}

#[test]
fn what_is_left_of_known_files_is_found_at_every_sector_and_at_the_nodes_too() {
    const BLOCK: usize = 4096;
    let desk = Desk::new();
    let nodes: Vec<_> = (0..3).map(|_| Node::start_with("8MiB", "127.0.0.1:0", &["--scan", "2"])).collect();
    fs::create_dir_all(desk.at("known/deep")).unwrap();
    let (first, second) = (noise(40 * BLOCK as u64 + 77, 11), noise(10 * BLOCK as u64, 13));
    fs::write(desk.at("known/first.jpg"), &first).unwrap();
    fs::write(desk.at("known/deep/second.jpg"), &second).unwrap();
    fs::write(desk.at("known/third.jpg"), noise(10 * BLOCK as u64, 15)).unwrap();
    fs::write(desk.at("known/zeros"), vec![0; 10 * BLOCK]).unwrap();
    let mut content = noise(6 * MIB, 48);
    let mut put = |at: usize, what: &[u8]| content[at..at + what.len()].copy_from_slice(what);
    // A file in two fragments whose middle is gone, one between clusters, a single block, and one that begins at no sector.
    put(64 * BLOCK, &first[..10 * BLOCK]);
    put(200 * BLOCK, &first[30 * BLOCK..]);
    put(300 * BLOCK + 512, &second);
    put(500 * BLOCK, &first[..BLOCK]);
    put(700 * BLOCK + 100, &second);
    let disk = desk.file("disk.raw", &content);
    let known = desk.arg("known");
    let searched = |source: &str, out: &str, more: &[&str]| {
        let args = ["search", source, "--known", &known, "--out", &desk.arg(out)];
        let answer = cheetah(&[&args[..], more].concat()).ok().json();
        let table = |name: &str| fs::read_to_string(desk.at(out).join(name)).unwrap();
        (answer, table("known-runs.csv"), table("known-files.csv"))
    };
    let (answer, runs, files) = searched(&disk, "found", &[]);
    let run = |at: usize, blocks: usize, file: &str, from: usize| {
        format!("{at},{},{known}/{file},{}\n", blocks * BLOCK, from * BLOCK)
    };
    let expected = [
        run(64 * BLOCK, 10, "first.jpg", 0),
        run(200 * BLOCK, 10, "first.jpg", 30),
        run(300 * BLOCK + 512, 10, "deep/second.jpg", 0),
    ];
    assert_eq!(runs, format!("offset,length,file,file_offset\n{}", expected.concat()));
    let of = |name: &str, blocks: u64, found: u64| format!("{known}/{name},{blocks},{found}\n");
    let expected =
        [of("deep/second.jpg", 10, 10), of("first.jpg", 40, 20), of("third.jpg", 10, 0), of("zeros", 0, 0)].concat();
    assert_eq!(files, format!("file,blocks,found\n{expected}"));
    assert_eq!((number(&answer["known"], "runs"), number(&answer["known"], "singles")), (3, 1), "{answer}");
    assert_eq!(number(&answer, "hits"), 0, "{answer}");

    let drive = desk.drive("striped", &nodes.iter().collect::<Vec<_>>(), &disk, &[]);
    let (answer, at_nodes, _) = searched(&drive, "of-stripe", &["--at-nodes"]);
    assert_eq!(at_nodes, runs);
    assert!(answer["at_nodes"]["node_bytes"].as_object().unwrap().len() == 3, "{answer}");
    let none = cheetah(&["search", &disk, "--known", &desk.arg("known/zeros"), "--out", &desk.arg("none")]);
    none.says(2, &["known files", "larger files"]);
}

#[test]
fn known_files_in_folders_that_are_too_deep_are_refused_until_a_deep_folder_is_named() {
    let desk = Desk::new();
    let deep = format!("known{}", "/d".repeat(64));
    fs::create_dir_all(desk.at(&deep)).unwrap();
    let content = noise(16 * KIB, 21);
    fs::write(desk.at(&deep).join("file"), &content).unwrap();
    let disk = desk.file("disk.raw", &content);
    let search =
        |known: &str| -> Ran { cheetah(&["search", &disk, "--known", &desk.arg(known), "--out", &desk.arg("out")]) };
    search("known").says(2, &["64 folders deep", "name it by itself"]);
    assert!(!desk.at("out").exists());
    let answer = search(&deep).ok().json();
    assert_eq!(number(&answer["known"], "runs"), 1, "{answer}");
}

/// Writes compressed data with a word in them into a folder, at known places of what they hold.
pub const COMPRESS: &str = r"
import gzip, io, os, sys, zipfile, zlib
os.chdir(sys.argv[1])
text = b' ' * 1000 + b'Geheimnis' + b' ' * 1000
inner = gzip.compress(bytes(7) + text)
open('a.gz', 'wb').write(gzip.compress(text))
with zipfile.ZipFile('b.docx', 'w', zipfile.ZIP_DEFLATED) as archive:
    archive.writestr('word/document.xml', text)
    archive.writestr('attached.bin', text + inner)
stream = zlib.compress(text)
open('c.pdf', 'wb').write(b'%PDF-1.4\n1 0 obj\n<</Filter/FlateDecode>>\nstream\r\n' + stream + b'\r\nendstream\nendobj\n')
open('d.gz', 'wb').write(gzip.compress(text + os.urandom(5000))[:3000])
open('e.gz', 'wb').write(gzip.compress(bytes(40 << 20)))
";

#[test]
fn compressed_data_are_searched_to_any_depth_and_damaged_ones_up_to_the_damage() {
    if !need::programs(&["python3"]) {
        return;
    }
    let desk = Desk::new();
    let nodes: Vec<_> = (0..3).map(|_| Node::start_with("8MiB", "127.0.0.1:0", &["--scan", "2"])).collect();
    fs::create_dir(desk.at("files")).unwrap();
    let mut python = std::process::Command::new("python3");
    python.args(["-c", COMPRESS, &desk.arg("files")]);
    run(python).ok();
    let mut content = noise(6 * MIB, 47);
    for (nth, name) in ["a.gz", "b.docx", "c.pdf", "d.gz", "e.gz"].iter().enumerate() {
        let (at, file) = (MIB as usize * nth + 777, fs::read(desk.at("files").join(name)).unwrap());
        content[at..at + file.len()].copy_from_slice(&file);
    }
    let disk = desk.file("disk.raw", &content);
    let searched = |source: &str, out: &str, more: &[&str]| {
        let args =
            ["search", source, "--word", WORD, "--encoding", "utf-8", "--inside", "all", "--out", &desk.arg(out)];
        // One file is cut at a limit.
        let ran = cheetah(&[&args[..], more].concat()).says(3, &["1 places", "not searched to the end"]);
        let answer: Value = serde_json::from_str(ran.out().lines().next().unwrap()).unwrap();
        (answer, rows(&desk.at(out)))
    };
    let (answer, found) = searched(&disk, "hits", &[]);
    let places: Vec<_> =
        found.iter().map(|row| (row.split(',').next().unwrap(), row.rsplit(',').next().unwrap())).collect();
    let docx =
        content[MIB as usize + 778..].windows(4).position(|bytes| bytes == b"PK\x03\x04").unwrap() as u64 + MIB + 778;
    let docx = docx.to_string();
    assert_eq!(
        places,
        [
            ("777", "GZIP-1000"),
            ("1049353", "ZIP-1000"),
            (docx.as_str(), "ZIP-1000"),
            (docx.as_str(), "ZIP-2009-GZIP-1007"),
            ("2097970", "PDF-1000"),
            ("3146505", "GZIP-1000"),
        ]
    );
    let inside = &answer["inside"];
    assert_eq!(["hits", "cut", "damaged"].map(|count| number(inside, count)), [6, 1, 1], "{answer}");
    assert_eq!((&answer["complete"], &answer["finished"]), (&Value::Bool(false), &Value::Bool(true)), "{answer}");
    let truncated = answer["truncated"].as_array().unwrap();
    let first = (number(&truncated[0], "offset"), truncated[0]["limit"].as_str());
    assert_eq!((truncated.len(), first), (1, (4 * MIB + 777, Some("size"))), "{answer}");
    let bytes = number(&answer, "truncated_bytes");
    assert!(bytes > 0 && bytes == number(&truncated[0], "len"), "{answer}");
    let table = fs::read_to_string(desk.at("hits/truncated.csv")).unwrap();
    assert_eq!(table, format!("offset,length,limit\n{},{bytes},size\n", 4 * MIB + 777));
    assert!(fs::read_to_string(desk.at("hits/report.html")).unwrap().contains("Searched only partly"));
    assert_eq!((number(&answer, "hits"), answer["patterns"].as_array().unwrap().len()), (6, 1), "{answer}");
    let features = fs::read_to_string(desk.at("hits/features/find.txt")).unwrap();
    assert!(features.contains(&format!("\n{docx}-ZIP-2009-GZIP-1007\tGeheimnis\t")), "{features}");

    let drive = desk.drive("striped", &nodes.iter().collect::<Vec<_>>(), &disk, &[]);
    assert_eq!(searched(&drive, "of-stripe", &["--at-nodes"]).1, found);
}

/// Serves a disk of which a place can be read once: when a search reads it, in large parts, and not again to unpack what begins there.
fn readable_once(desk: &Desk, disk: &str, at: u64) -> Peer {
    let seen = desk.arg("seen");
    let read = format!(
        "pread=if [ $4 -le {at} ] && [ $(($4 + $3)) -gt {at} ]; then \
           if [ $3 -ge 65536 ]; then touch {seen}; elif [ -e {seen} ]; then echo 'EIO bad sector' >&2; exit 1; fi; \
         fi; dd if={disk} iflag=skip_bytes,count_bytes skip=$4 count=$3 bs=1M status=none"
    );
    let size = format!("get_size=echo {}", fs::metadata(disk).unwrap().len());
    Peer::nbdkit_unix(desk, &["eval", &size, &read])
}

#[test]
fn compressed_data_that_can_no_longer_be_read_end_the_search_with_exit_code_3() {
    if !need::programs(&["nbdkit", "python3"]) {
        return;
    }
    let desk = Desk::new();
    fs::create_dir(desk.at("files")).unwrap();
    let mut python = std::process::Command::new("python3");
    python.args(["-c", COMPRESS, &desk.arg("files")]);
    run(python).ok();
    let packed = fs::read(desk.at("files/a.gz")).unwrap();
    let (mut content, at) = (noise(6 * MIB, 49), 3 * MIB + 777);
    content[at as usize..at as usize + packed.len()].copy_from_slice(&packed);
    let disk = desk.file("disk.raw", &content);
    let search = |source: &str, out: &str| {
        cheetah(&["search", source, "--word", WORD, "--inside", "gzip", "--out", &desk.arg(out)])
    };
    let of_disk = search(&disk, "of-disk").ok().json();
    assert_eq!((number(&of_disk, "hits"), number(&of_disk["inside"], "unreadable")), (1, 0), "{of_disk}");

    let peer = readable_once(&desk, &disk, at);
    let ran = search(&peer.uri, "of-peer").says(3, &["1 places", "compressed data were not searched to the end"]);
    let answer: Value = serde_json::from_str(ran.out().lines().next().unwrap()).unwrap();
    assert_eq!((&answer["complete"], number(&answer["inside"], "unreadable")), (&Value::Bool(false), 1), "{answer}");
    assert_eq!(number(&answer, "hits"), 0, "{answer}");
}

/// Writes files of several formats into a folder, with Python's own libraries.
pub const MAKE_FILES: &str = r"
import gzip, os, sqlite3, struct, sys, zipfile, zlib
os.chdir(sys.argv[1])
def chunk(kind, body):
    return struct.pack('>I', len(body)) + kind + body + struct.pack('>I', zlib.crc32(kind + body))
pixels = b''.join(b'\0' + os.urandom(300) for _ in range(100))
header = struct.pack('>IIBBBBB', 100, 100, 8, 2, 0, 0, 0)
open('a.png', 'wb').write(b'\x89PNG\r\n\x1a\n' + chunk(b'IHDR', header) + chunk(b'IDAT', zlib.compress(pixels)) + chunk(b'IEND', b''))
with zipfile.ZipFile('b.zip', 'w', zipfile.ZIP_DEFLATED) as archive:
    archive.writestr('letter.txt', 'a letter ' * 1000)
    archive.writestr('noise.bin', os.urandom(5000))
open('c.gz', 'wb').write(gzip.compress(os.urandom(9000) + bytes(20000)))
base = sqlite3.connect('d.sqlite')
base.execute('create table messages (text)')
base.executemany('insert into messages values (?)', [('message %d' % number,) for number in range(2000)])
base.commit()
base.close()
";

#[test]
fn files_are_carved_whole_and_other_tools_carve_the_same() {
    if !need::programs(&["python3", "foremost"]) {
        return;
    }
    let desk = Desk::new();
    fs::create_dir(desk.at("files")).unwrap();
    let mut python = std::process::Command::new("python3");
    python.args(["-c", MAKE_FILES, &desk.arg("files")]);
    run(python).ok();
    let mut content = noise(4 * MIB, 46);
    let names = ["a.png", "b.zip", "c.gz", "d.sqlite"];
    let files = names.map(|name| fs::read(desk.at("files").join(name)).unwrap());
    for (nth, file) in files.iter().enumerate() {
        let at = MIB as usize * nth + 512 * 3;
        content[at..at + file.len()].copy_from_slice(file);
    }
    let disk = desk.file("disk.raw", &content);
    let args = ["search", &disk, "--headers", "png,zip,gzip,sqlite", "--carve", "--out", &desk.arg("carved")];
    let answer = cheetah(&args).ok().json();
    assert_eq!(number(&answer["carved"], "files"), 4, "{answer}");
    let carved = desk.at("carved").join("carved");
    for (nth, (file, extension)) in files.iter().zip(["png", "zip", "gz", "sqlite"]).enumerate() {
        let name = format!("{:014}.{extension}", MIB * nth as u64 + 512 * 3);
        assert!(fs::read(carved.join(&name)).unwrap() == *file, "{name}");
    }
    assert_eq!(fs::read_to_string(carved.join("carved.csv")).unwrap().lines().count(), 5);

    let mut foremost = std::process::Command::new("foremost");
    foremost.args(["-t", "png,zip", "-i", &disk, "-o", &desk.arg("foremost")]);
    run(foremost).ok();
    for (extension, file) in [("png", &files[0]), ("zip", &files[1])] {
        let found = fs::read_dir(desk.at("foremost").join(extension)).unwrap().map(|entry| entry.unwrap().path());
        assert!(found.map(|path| fs::read(path).unwrap()).any(|bytes| bytes == *file), "{extension}");
    }
}

#[test]
fn carving_needs_headers_and_a_folder() {
    let desk = Desk::new();
    let disk = desk.file("disk.raw", &[0; 4096]);
    for args in [&["--carve", "--word", "x", "--out", "out"][..], &["--carve", "--headers", "png"]] {
        assert_eq!(cheetah(&[&["search", &disk], args].concat()).code, Some(2));
    }
    let refused = cheetah(&["search", &disk, "--headers", "jpg"]);
    assert_eq!(refused.code, Some(2));
}
