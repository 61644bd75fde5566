//! Block devices: what needs no kernel module. `workshop/boot/tests/test_attach.py` tests the rest in a guest.

use crate::support::run::cheetah_plain;

#[test]
fn only_whole_devices_that_can_be_attached_can_be_detached() {
    for device in ["/dev/sda", "/dev/nbd0p1", "/mnt/case42"] {
        cheetah_plain(&["detach", device])
            .says(1, &[device, "is not a device that can be attached", "such as /dev/nbd0"]);
    }
    cheetah_plain(&["attach", "disk.raw", "--resume", "/dev/nbd0", "--overlay", "memory"]).says(2, &["--overlay"]);
}
