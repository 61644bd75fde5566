//! A volume that is opened in place of its source, by its name.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use cheetah_device::ByteRange;
use cheetah_drive::Session;
use cheetah_testing::raid::{disk, raid5};

use crate::access::Access;
use crate::opened::OpenedSource;
use crate::volume::{Shown, WhichVolume};

/// The type of a partition that is a member.
const RAID: u8 = 0xfd;

/// How to open a volume by its name, with another source.
fn named(name: &str, other: &Path) -> Access {
    let session = Session::new(Default::default(), Arc::default(), Duration::from_secs(60));
    Access {
        in_order: false,
        shown: Shown::Volume(WhichVolume::Named(name.to_owned())),
        with: vec![other.to_str().unwrap().to_owned()],
        ..Access::read_once(session)
    }
}

#[tokio::test]
async fn a_volume_over_two_sources_is_opened_in_place_of_the_first() {
    let folder = tempfile::tempdir().unwrap();
    let content: Vec<u8> = (0..300_u32 << 10).map(|at| (at % 251) as u8).collect();
    let inner = disk(&[(0x83, &content)]);
    let members = raid5("home", &inner);
    let (first, second) = (folder.path().join("first.raw"), folder.path().join("second.raw"));
    std::fs::write(&first, disk(&[(RAID, &members[0])])).unwrap();
    std::fs::write(&second, &members[2]).unwrap();
    let first = first.to_str().unwrap();
    for (name, expected) in [("md_home", &inner), ("md_home.p1", &content)] {
        let opened = OpenedSource::open(first, &named(name, &second)).await.unwrap();
        assert_eq!(opened.name, format!("first.{name}"));
        assert_eq!(opened.volume.as_ref().map(|volume| volume.name.as_str()), Some(name));
        let range = ByteRange::new(0, expected.len() as u64);
        assert!(opened.device.read(range).await.unwrap().into_bytes() == expected[..]);
        opened.close().await.unwrap();
    }
    for (name, other) in [("md_none", &second), ("md_home", &folder.path().join("none"))] {
        let Err(error) = OpenedSource::open(first, &named(name, other)).await else { panic!("{name} was opened") };
        assert_eq!(error.is_misuse(), name == "md_none", "{error}");
    }
}
