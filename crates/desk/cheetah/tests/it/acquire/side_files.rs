//! Foreign files and links at the places of Cheetah's side files.

use std::os::unix::fs::symlink;

use super::*;

/// The names of all files but the disk and the key.
fn left(examiner: &Examiner) -> Vec<String> {
    let entries = fs::read_dir(examiner.desk.path()).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<_> = names.filter(|name| !["disk.img", "key"].contains(&name.as_str())).collect();
    names.sort();
    names
}

#[test]
fn a_link_or_a_foreign_file_where_a_side_file_belongs_is_refused_and_left_alone() {
    let examiner = Examiner::new();
    let (disk, _) = examiner.desk.image("disk.img", MIB);
    let raw = examiner.desk.arg("x.raw");
    let diary = examiner.desk.file("diary", b"Dear diary");
    for side in ["acquire", "map", "report.txt"] {
        let name = format!("x.raw.{side}");
        symlink(&diary, examiner.desk.at(&name)).unwrap();
        for more in [&[][..], &["--restart"], &["--force"]] {
            examiner.acquire(&[&[disk.as_str(), &raw], more].concat()).says(2, &[&name, "symbolic link"]);
        }
        fs::remove_file(examiner.desk.at(&name)).unwrap();
        examiner.desk.file(&name, b"Dear diary");
        for more in [&[][..], &["--restart"], &["--force"]] {
            examiner.acquire(&[&[disk.as_str(), &raw], more].concat()).says(2, &[&name, "left alone"]);
        }
        assert_eq!(examiner.read(&name), b"Dear diary");
        assert_eq!(left(&examiner), ["diary".to_owned(), name.clone()], "nothing was begun");
        fs::remove_file(examiner.desk.at(&name)).unwrap();
    }
    assert_eq!(examiner.read("diary"), b"Dear diary");
    examiner.acquire(&[&disk, &raw]).ok();
}

#[test]
fn a_repeated_destination_is_refused_and_leaves_nothing_behind() {
    let examiner = Examiner::new();
    let (disk, _) = examiner.desk.image("disk.img", MIB);
    let raw = examiner.desk.arg("z.raw");
    let dotted = format!("{}/./z.raw", examiner.desk.path().display());
    examiner.acquire(&[&disk, &raw, &dotted]).says(2, &["z.raw", "once"]);
    assert!(left(&examiner).is_empty(), "{:?}", left(&examiner));
}

#[test]
fn the_loser_of_two_acquisitions_into_one_image_leaves_nothing_behind() {
    let examiner = Examiner::new();
    let (disk, _) = examiner.desk.image("disk.img", 6 * MIB);
    let agent = Service::start(&["serve", &disk, "--listen", "127.0.0.1:0", "--rate-max", "1MiB"]);
    let source = text(&agent.ready, "uri");
    let (z, a) = (examiner.desk.arg("z.raw"), examiner.desk.arg("a.raw"));
    let mut winner = examiner.start(&[source, &z]);
    examiner.wait_for("z.raw.partial");
    examiner.acquire(&[source, &a, &z]).says(2, &["z.raw.partial"]);
    assert!(left(&examiner).iter().all(|name| name.starts_with("z.raw")), "{:?}", left(&examiner));
    winner.kill().unwrap();
    winner.wait().unwrap();
}

#[test]
fn a_map_or_a_custody_log_behind_a_link_is_never_read() {
    let examiner = Examiner::new();
    let (disk, _) = examiner.desk.image("disk.img", MIB);
    let raw = examiner.desk.arg("x.raw");
    examiner.acquire(&[&disk, &raw]).ok();
    // A true log and a true map, which belong elsewhere.
    fs::rename(examiner.desk.at("x.raw.custody"), examiner.desk.at("elsewhere.custody")).unwrap();
    examiner.desk.file("elsewhere.map", b"0x0 ? 1\n0x0 0x100000 -\n");
    for side in ["custody", "map"] {
        let (link, target) = (format!("x.raw.{side}"), examiner.desk.at(&format!("elsewhere.{side}")));
        symlink(&target, examiner.desk.at(&link)).unwrap();
        cheetah(&["verify", &raw]).says(2, &[&link, "symbolic link"]);
        fs::remove_file(&target).unwrap();
        cheetah(&["verify", &raw]).says(2, &[&link, "symbolic link"]);
        fs::remove_file(examiner.desk.at(&link)).unwrap();
    }
    examiner.desk.file("elsewhere.map", b"0x0 ? 1\n0x0 0x100000 -\n");
    symlink(examiner.desk.at("elsewhere.map"), examiner.desk.at("x.raw.map")).unwrap();
    cheetah(&["acquire", &raw, &examiner.desk.arg("y.raw")]).says(2, &["x.raw.map", "symbolic link"]);
}

#[test]
fn restart_and_discard_remove_only_what_an_acquisition_began() {
    let examiner = Examiner::new();
    let (disk, _) = examiner.desk.image("disk.img", MIB);
    let other = examiner.desk.arg("other.E01");
    examiner.acquire(&[&disk, &other]).ok();
    let finished = examiner.read("other.E01");
    let foreign: [&[u8]; 4] = [b"Dear diary", &[7; 5000], &finished, b"EVF\x09\x0d\x0a\xff\x00 of another program"];
    for name in ["x.raw", "x.E01"] {
        let (to, partial) = (examiner.desk.arg(name), format!("{name}.partial"));
        let refused = |what: &str| {
            for option in ["--restart", "--discard"] {
                examiner.acquire(&[&disk, &to, option]).says(2, &[&partial, "left alone"]);
                assert!(examiner.desk.at(&partial).symlink_metadata().is_ok(), "{what} {option}");
            }
        };
        for (index, content) in foreign.iter().enumerate() {
            // Without its content, a short file that begins as an E01 does may be what a crash left of one.
            if name == "x.E01" && index == 3 {
                continue;
            }
            examiner.desk.file(&partial, content);
            refused("a file");
            assert!(examiner.read(&partial) == *content);
            fs::remove_file(examiner.desk.at(&partial)).unwrap();
        }
        let diary = examiner.desk.file("diary", &[0; 100]);
        fs::hard_link(&diary, examiner.desk.at(&partial)).unwrap();
        refused("a hard link");
        fs::remove_file(examiner.desk.at(&partial)).unwrap();
        symlink(&diary, examiner.desk.at(&partial)).unwrap();
        refused("a symbolic link");
        fs::remove_file(examiner.desk.at(&partial)).unwrap();
        // What a crash leaves is removed.
        examiner.desk.file(&partial, b"");
        examiner.acquire(&[&disk, &to, "--restart"]).ok();
    }
}

#[test]
fn a_further_segment_that_is_another_file_keeps_the_whole_set() {
    let examiner = Examiner::new();
    let (disk, _) = examiner.desk.image("disk.img", 4 * MIB);
    let agent = Service::start(&["serve", &disk, "--listen", "127.0.0.1:0", "--rate-max", "1MiB"]);
    let (source, to) = (text(&agent.ready, "uri"), examiner.desk.arg("x.E01"));
    let args = [source, &to, "--segment-size", "1MiB", "--level", "none"];
    let mut running = examiner.start(&args);
    examiner.wait_for("x.E02.partial");
    running.kill().unwrap();
    running.wait().unwrap();
    let third = (2..20).map(|number| format!("x.E{number:02}.partial")).find(|name| !examiner.desk.at(name).exists());
    let third = third.unwrap();
    examiner.desk.file(&third, b"Dear diary");
    examiner.acquire(&[&args[..], &["--restart"]].concat()).says(2, &[&third, "left alone"]);
    assert!(examiner.desk.at("x.E01.partial").exists() && examiner.desk.at("x.E02.partial").exists());
    fs::remove_file(examiner.desk.at(&third)).unwrap();
    examiner.acquire(&[&disk, &to, "--restart"]).ok();
}
