//! Drives that are searched while they are filled.

use super::*;

const WORD: &str = "Geheimnis";
/// A place that the source does not return before it may, and the places of the word: in front of it, in it and behind it.
const HELD: u64 = 16 * MIB;
const PLACES: [u64; 5] = [100, MIB - 4, 10 * MIB + 7, HELD + 1000, 24 * MIB - WORD.len() as u64];

/// Serves a disk. Requests of a fill for the place that is held wait as long as there is a file of this name.
fn holding(desk: &Desk, disk: &str, held_by: &str) -> Peer {
    // Smaller ones are those of a program that looks at the disk.
    let read = format!(
        "pread=if [ $3 -ge 65536 ] && [ $4 -le {HELD} ] && [ $(($4 + $3)) -gt {HELD} ]; then \
           while [ -e {held_by} ]; do sleep 0.2; done; \
         fi; dd if={disk} iflag=skip_bytes,count_bytes skip=$4 count=$3 bs=1M status=none"
    );
    let size = format!("get_size=echo {}", std::fs::metadata(disk).unwrap().len());
    Peer::nbdkit_unix(desk, &["-r", "eval", "thread_model=echo parallel", &size, &read])
}

/// The hits among what a search printed, and its answer.
fn hits(lines: impl IntoIterator<Item = String>) -> (Vec<Value>, Value) {
    let mut values: Vec<Value> = lines.into_iter().map(|line| serde_json::from_str(&line).unwrap()).collect();
    let answer = values.pop().unwrap();
    assert!(values.iter().all(|value| value["event"] == "hit"), "{values:?}");
    (values, answer)
}

#[test]
fn the_first_hits_in_a_lazy_drive_are_printed_before_it_is_full() {
    if !need::programs(&["nbdkit"]) {
        return;
    }
    let (desk, nodes) = (Desk::new(), three("16MiB"));
    let mut content = noise(24 * MIB, 45);
    for at in PLACES {
        content[at as usize..at as usize + WORD.len()].copy_from_slice(WORD.as_bytes());
    }
    let disk = desk.file("disk.raw", &content);
    let of_disk = cheetah(&["search", &disk, "--word", WORD]).ok();
    let (expected, _) = hits(of_disk.out().lines().map(str::to_owned));
    assert_eq!(expected.iter().map(|hit| number(hit, "offset")).collect::<Vec<_>>(), PLACES);

    let source = holding(&desk, &disk, &desk.arg("held"));
    let drive = create(&desk, &nodes, &source.uri);
    let held = desk.file("held", b"");
    let args = [&["search", &drive, "--word", WORD, "--workers", "2"][..], &PATIENTLY].concat();
    // It has printed a hit.
    let mut search = Service::start_on(&args, "hit");
    assert_eq!(search.ready, expected[0]);
    let covered = cheetah(&["status", &drive]).ok().json()["covered"].clone();
    assert!(number(&covered, "unread_bytes") > 0, "{covered}");
    assert!(text(&covered, "filler").contains("process"), "{covered}");
    std::fs::remove_file(held).unwrap();

    let (found, answer) = hits(std::iter::from_fn(|| search.next_line()));
    assert_eq!([&[search.ready.clone()], &found[..]].concat(), expected);
    assert_eq!((&answer["complete"], &answer["finished"]), (&true.into(), &true.into()), "{answer}");
    assert_eq!((number(&answer, "searched_bytes"), number(&answer, "hits")), (24 * MIB, 5), "{answer}");
    let (code, _) = search.wait();
    assert_eq!(code, Some(0));
}
