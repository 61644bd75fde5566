//! Block devices: what needs no kernel module. `workshop/boot/tests/test_attach.py` tests the rest in a guest.

use std::path::Path;

use crate::support::need;
use crate::support::run::{cheetah, cheetah_plain};

#[test]
fn only_whole_devices_that_can_be_attached_can_be_detached() {
    for device in ["/dev/sda", "/dev/nbd0p1", "/mnt/case42"] {
        cheetah_plain(&["detach", device])
            .says(1, &[device, "is not a device that can be attached", "such as /dev/nbd0"]);
    }
    cheetah_plain(&["attach", "disk.raw", "--resume", "/dev/nbd0", "--overlay", "memory"]).says(2, &["--overlay"]);
}

#[test]
fn attaching_without_root_or_without_the_kernels_driver_fails_with_the_next_step() {
    let step = match need::is_root() {
        true if Path::new("/sys/module/nbd").exists() => {
            return need::skip("needs a kernel without nbd, or another user");
        }
        true => "load_nbd_or_mount",
        false => "root_or_mount",
    };
    let failed = cheetah(&["attach", "disk.raw"]).ended_with(1).json();
    let has_step = failed["next"].as_array().is_some_and(|steps| steps.iter().any(|next| next["step"] == step));
    assert!(has_step, "{failed}");
}
