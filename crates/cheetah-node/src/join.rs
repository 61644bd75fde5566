//! Joining a drive: the node offers itself to an examiner until it is accepted.

use std::sync::Arc;
use std::time::Duration;

use hyper::Method;
use tokio::time::sleep;

use crate::control::ControlClient;
use crate::node::Shared;

const RETRY_FIRST: Duration = Duration::from_millis(250);
const RETRY_LONGEST: Duration = Duration::from_secs(5);

/// Offers `node` to `examiner` (`host:port`) until it says yes. The examiner may start long after the node, so
/// failures are no news after the first.
pub(crate) async fn join(examiner: String, node: Arc<Shared>) {
    let client = ControlClient::new(&examiner);
    let mut wait = RETRY_FIRST;
    let mut said = String::new();
    loop {
        match client.post(Method::POST, "/v1/join", &node.offer()).await {
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
