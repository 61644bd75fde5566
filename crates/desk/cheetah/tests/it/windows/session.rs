//! The end of a session with Windows.

use std::net::TcpStream;

use super::wine::{Alone, UNSEEN_WINDOWS, Windows};
use crate::support::{Desk, MIB, cheetah, until};

#[test]
fn a_node_of_windows_whose_session_ends_wipes_and_prints_its_receipt() {
    let Some(windows) = Windows::find() else { return };
    let Some(alone) = Alone::new(windows, "session", UNSEEN_WINDOWS) else { return };
    let desk = Desk::new();
    let mut node = alone.windows.node(&desk);
    let (disk, _) = desk.image("disk.img", 5 * MIB);
    let drive = desk.drive("case", &[&node], &disk, &[]);
    cheetah(&["verify", &drive]).ok();
    until("the node has ended", || {
        // As when the user shuts down: every window is asked, and then told.
        let mut ending = alone.windows.wine();
        ending.args(["wineboot", "--end-session"]);
        Windows::to_its_end(ending).ok();
        TcpStream::connect(&node.nbd).is_err()
    });
    let (code, receipt) = node.service.wait();
    assert_eq!((code, receipt["verified_zero"].as_bool()), (Some(0), Some(true)), "{receipt}");
    assert!(receipt["wiped_total_bytes"].as_u64().unwrap() >= MIB, "{receipt}");
}
