//! Finding the newest map of a drive.

use std::time::Duration;

use cheetah_error::{Error, Result};
use futures::future::join_all;

use super::map::DriveMap;
use crate::file::{DriveFile, SetNode};
use crate::node::export::NodeExport;

/// How often a newer map may name nodes that were not asked yet.
const ROUNDS_MAX: usize = 8;

/// The newest map that was found.
pub(crate) struct Newest {
    pub map: DriveMap,
    /// The nodes that answered and hold their part of the drive, by index.
    pub answered: Vec<bool>,
}

/// Asks the nodes that the drive file names, and those that newer maps name. A node that does not answer within `timeout` is
/// left out.
pub(crate) async fn newest(file: &DriveFile, timeout: Duration) -> Result<Newest> {
    let mut best = DriveMap::of_file(file);
    for _ in 0..ROUNDS_MAX {
        let asked = best.clone();
        let answers = join_all(asked.nodes.iter().map(|node| ask(file, node, timeout))).await;
        let mut answered = Vec::new();
        for answer in answers {
            match answer? {
                Answer::Map(map) => {
                    answered.push(true);
                    if map.map.epoch > best.map.epoch || best.map.epoch == file.epoch && map.map.epoch == file.epoch {
                        best = *map;
                    }
                }
                Answer::NoMap => answered.push(true),
                Answer::Nothing => answered.push(false),
            }
        }
        if best.nodes == asked.nodes {
            return Ok(Newest { map: best, answered });
        }
    }
    Err(Error::failed(format!("{}: its nodes name ever newer nodes; is another process repairing it?", file.name)))
}

/// Brings a drive file up to date with the newest map. Files of drives without redundancy are left as they are.
pub(crate) async fn refresh(file: &DriveFile, timeout: Duration) -> Result<DriveFile> {
    let mut file = file.clone();
    if file.is_redundant() {
        newest(&file, timeout).await?.map.update(&mut file);
    }
    Ok(file)
}

enum Answer {
    Map(Box<DriveMap>),
    /// The export exists and holds no map: nothing was written since the drive was made.
    NoMap,
    Nothing,
}

async fn ask(file: &DriveFile, node: &SetNode, timeout: Duration) -> Result<Answer> {
    let Some(export) = NodeExport::of(node, timeout) else { return Ok(Answer::Nothing) };
    match export.control.map(&export.name).await {
        Ok(Some(stored)) => match DriveMap::parse(&stored.map, file) {
            Ok(map) => Ok(Answer::Map(Box::new(map))),
            Err(why) => Err(Error::failed(format!("{}: node {}: {why}", file.name, node.name))),
        },
        Ok(None) => Ok(Answer::NoMap),
        Err(error) => {
            tracing::debug!("node {} gives no map: {error}", node.name);
            Ok(Answer::Nothing)
        }
    }
}
