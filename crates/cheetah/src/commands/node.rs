//! `cheetah node`: this machine's memory, lent.

use std::net::SocketAddr;

use cheetah_control::api::NodeReceipt;
use cheetah_device::Size;
use cheetah_node::{Node, NodeConfig, NodeError};
use serde_json::json;

use crate::failure::{Failure, Result};
use crate::signals::Stop;
use crate::ui::Ui;

/// What `node` is told.
#[derive(Debug, clap::Args)]
#[command(about = "Lend this machine's memory")]
#[command(long_about = "Lends this machine's memory, until it is stopped (Ctrl-C, SIGTERM).

The memory is locked, kept out of core dumps, and wiped when a drive gives it back and when the node stops; the \
receipt printed then says that it was read back as zeros. Each start is a new node: what was lent before is gone, \
and drives that were on it notice.

  cheetah node --memory 12GiB --listen 192.168.1.7:10809 --insecure
  cheetah node --memory 12GiB --listen 192.168.1.7:10809 --insecure \\
      --join examiner:10811")]
pub struct Args {
    /// How much to lend
    #[arg(long, value_name = "SIZE")]
    memory: Size,

    /// Where to listen for drives (NBD)
    #[arg(
        long,
        value_name = "ADDRESS:PORT",
        value_parser = crate::commands::listen::address,
        default_value = "127.0.0.1:10809",
    )]
    listen: SocketAddr,

    /// Where to listen for control and metrics (HTTP); the port after the one for drives unless told
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = crate::commands::listen::address)]
    http: Option<SocketAddr>,

    /// Offer the memory to whoever waits there (cheetah create --wait), until it is accepted; repeatable
    #[arg(long, value_name = "EXAMINER:PORT")]
    join: Vec<String>,

    /// What to call this node; the host's name unless told
    #[arg(long, default_value = "", hide_default_value = true)]
    name: String,

    /// Announce the node by mDNS, so that --nodes auto finds it; the default where it listens beyond loopback
    #[arg(long, overrides_with = "no_announce")]
    announce: bool,

    /// Do not announce it
    #[arg(long)]
    no_announce: bool,

    /// Listen beyond loopback, although nothing is encrypted yet: whoever reaches the port can read and write
    #[arg(long)]
    insecure: bool,

    /// Take no part in measurements of the way here (cheetah probe)
    #[arg(long)]
    no_probe: bool,
}

/// Runs it.
pub async fn run(args: Args, ui: Ui) -> Result<()> {
    let mut stop = Stop::catch()?;
    let announce = args.announce || !(args.no_announce || args.listen.ip().is_loopback());
    let config = NodeConfig {
        http_listen: args.http,
        name: args.name,
        join: args.join,
        announce,
        insecure: args.insecure,
        probe: !args.no_probe,
        ..NodeConfig::new(args.memory.0, args.listen)
    };
    let node = Node::start(config).map_err(|error| match error {
        NodeError::Exposed(_) => Failure::misused(error),
        _ => Failure::failed(error),
    })?;
    say_ready(&node, ui);
    let signal = stop.asked().await;
    ui.say(format_args!("{signal}: wiping what was lent"));
    let receipt = node.shutdown().await;
    let text = describe(&receipt);
    let mut value = json!(receipt);
    value["event"] = "wiped".into();
    value["receipt"] = text.as_str().into();
    ui.answer(format_args!("node {}: {text}", receipt.node), &value);
    if receipt.verified_zero {
        return Ok(());
    }
    Err(Failure::failed("the memory could not be wiped in full; switch the machine off to be sure"))
}

fn say_ready(node: &Node, ui: Ui) {
    let status = node.status();
    let (nbd, http) = (node.nbd_address(), node.http_address());
    if !status.memory.locked {
        ui.warn(
            "the memory is NOT LOCKED, so that evidence may reach a swap device: run as root, give the program \
             CAP_IPC_LOCK, or raise the limit (ulimit -l unlimited, LimitMEMLOCK=)",
        );
    }
    let lent = Size(status.memory.lent_bytes);
    let value = json!({
        "event": "ready", "name": status.name, "nbd": nbd, "http": http, "instance": status.instance,
        "lent_bytes": lent.0, "usable_bytes": status.memory.usable_bytes, "locked": status.memory.locked,
    });
    ui.answer(format_args!("node {} lends {lent}: drives on {nbd}, control on http://{http}", status.name), &value);
}

/// What the receipt says, in a line.
fn describe(receipt: &NodeReceipt) -> String {
    const CHUNK_BYTES: u64 = 64 << 10;
    let wiped = receipt.wiped_total_bytes;
    if wiped == 0 {
        return format!("nothing to wipe: none of {} was written to", Size(receipt.lent_bytes));
    }
    let verified = if receipt.verified_zero { "verified zero" } else { "NOT verified zero" };
    format!("wiped {} in {} chunks, {verified}", Size(wiped), wiped.div_ceil(CHUNK_BYTES))
}
