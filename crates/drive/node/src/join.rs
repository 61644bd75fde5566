//! Joining a drive: offering the node to an examiner until it is accepted.

use std::time::Duration;

use cheetah_device::supervise::panic_point;
use hyper::Method;
use tokio::time::sleep;

use crate::shared::Shared;
use cheetah_control::{ControlClient, routes};
use cheetah_tls::{Expected, Role};

const RETRY_FIRST: Duration = Duration::from_millis(250);
const RETRY_LONGEST: Duration = Duration::from_secs(5);

/// Offers `node` to `examiner` (`host:port`) until it accepts. The examiner may start long after the node, so it logs only
/// new errors.
pub(crate) async fn join(examiner: &str, node: &Shared) {
    panic_point("join");
    let client = ControlClient::new(examiner, node.credential.as_ref()).expecting(Expected::role(Role::Examiner));
    let mut wait = RETRY_FIRST;
    let mut said = String::new();
    loop {
        match client.post(Method::POST, routes::JOIN, &node.offer()).await {
            Ok(_) => {
                tracing::info!(%examiner, "joined");
                return;
            }
            Err(error) => {
                let error = error.to_string();
                if error != said {
                    tracing::info!(%examiner, %error, "not joined yet, trying on");
                    said = error;
                }
            }
        }
        sleep(wait).await;
        wait = (wait * 2).min(RETRY_LONGEST);
    }
}
