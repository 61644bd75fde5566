//! Images and their content.

use std::io::Read as _;
use std::path::Path;
use std::sync::Arc;

use cheetah_device::memory::Memory;
use cheetah_device::{ByteRange, DynDevice};
use cheetah_testing::evidence;
use cheetah_unlock::{Candidate, Keys, OpenedVolume, OpenedVolumes, Place, Refusal, StillLocked, Unlocked, Unlocking};
use cheetah_volume::partition::read_partitions;
use sha2::{Digest as _, Sha256};

/// The content of a packed real image; `None` if it is missing.
pub fn unpacked(name: &str) -> Option<Vec<u8>> {
    let packed = std::fs::read(evidence(&format!("locked/{name}.gz"))?).unwrap();
    let mut content = Vec::new();
    flate2::read::GzDecoder::new(&packed[..]).read_to_end(&mut content).unwrap();
    Some(content)
}

pub fn device(content: &[u8]) -> DynDevice {
    Arc::new(Memory::new(content.to_vec()))
}

/// The volumes of an image, after keys were tried on them.
pub struct Tried {
    pub opened: Vec<OpenedVolume>,
    pub locked: Vec<StillLocked>,
    layer: OpenedVolumes,
}

impl Tried {
    pub fn over(&self, below: DynDevice) -> DynDevice {
        self.layer.over(below)
    }
}

/// Tries the lines of `keys` on the volumes of an image.
pub async fn tried(device: &DynDevice, keys: &[u8]) -> Tried {
    unlock(device, &Keys::parse(keys).unwrap()).await
}

/// Tries keys on a device, or on its partitions if it has no known format.
pub async fn unlock(device: &DynDevice, keys: &Keys) -> Tried {
    let range = ByteRange::new(0, device.geometry().size);
    let mut volumes = vec![Candidate::examine(device, Place { range, ..Place::default() }).await];
    if volumes[0].content.formats.is_empty() {
        let partitions = read_partitions(&**device, None).await;
        volumes.truncate(usize::from(partitions.is_empty()));
        for one in partitions {
            let place = Place { partition: Some(one.number), range: one.range, ..Place::default() };
            volumes.push(Candidate::examine(device, place).await);
        }
    }
    let mut unlocking = Unlocking::new(keys).await;
    let layer = unlocking.unlock(device, &volumes).await;
    let Unlocked { opened, locked } = unlocking.finish();
    Tried { opened, locked, layer }
}

/// The content of the only volume, what opened it, and the layer over the whole device.
pub async fn opened(device: &DynDevice, keys: &[u8]) -> (Vec<u8>, String, DynDevice) {
    let unlocked = tried(device, keys).await;
    let locked: Vec<_> = unlocked.locked.iter().map(ToString::to_string).collect();
    let [volume] = &unlocked.opened[..] else { panic!("{locked:?}") };
    let layer = unlocked.over(device.clone());
    (read(&layer, volume.range()).await, volume.protector.clone(), layer)
}

/// Why the only volume stays locked.
pub async fn refused(device: &DynDevice, keys: &[u8]) -> Refusal {
    let unlocked = tried(device, keys).await;
    assert!(unlocked.opened.is_empty());
    let [volume] = &unlocked.locked[..] else { panic!("{:?}", unlocked.locked) };
    let size = device.geometry().size;
    let layer = unlocked.over(device.clone());
    assert!(read(&layer, ByteRange::new(0, size)).await == read(device, ByteRange::new(0, size)).await);
    volume.why.clone()
}

pub async fn read(device: &DynDevice, range: ByteRange) -> Vec<u8> {
    device.read(range).await.unwrap().into_bytes().into()
}

pub fn sha256(content: &[u8]) -> String {
    Sha256::digest(content).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Runs a program to its end, with an input, and returns what it printed.
pub fn run(program: &str, args: &[&str], input: &[u8]) -> String {
    use std::io::Write as _;
    use std::process::{Command, Stdio};
    let path = cheetah_testing::find(program).unwrap();
    let mut command = Command::new(path);
    command.args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(input).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{program} {args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// A path as an argument.
pub fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}
