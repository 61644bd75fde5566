//! Reading a drive without one of its members, for the seal above it, which can tell whether content is right.

use std::sync::Arc;

use cheetah_device::{ByteRange, Data, Device as _};
use cheetah_redundancy::{Alternative, Redundant};
use cheetah_seal::device as seal;
use futures::FutureExt as _;
use futures::future::BoxFuture;

use crate::file::{Set, places};

/// Reads ranges of a drive without one of the members that hold them. Members are numbered as the nodes of the drive.
pub(super) struct WithoutOne {
    pub sets: Vec<Set>,
    pub arrays: Vec<Arc<Redundant>>,
}

impl WithoutOne {
    async fn read_without(&self, range: ByteRange) -> Vec<Alternative> {
        let pieces = places::in_sets(&self.sets, range);
        let mut found = Vec::new();
        for (at, (set, piece)) in pieces.iter().enumerate() {
            for Alternative { without, data } in self.arrays[*set].alternatives(*piece).await {
                // The other pieces are read as usual: one member at a time returns wrong bytes.
                let before = self.join(&pieces[..at]).await;
                let after = self.join(&pieces[at + 1..]).await;
                if let (Ok(mut whole), Ok(after)) = (before, after) {
                    whole.append(data);
                    whole.append(after);
                    found.push(Alternative { without: self.first_member(*set) + without, data: whole });
                }
            }
        }
        found
    }

    async fn restore_at(&self, range: ByteRange, data: &Data, member: usize) -> cheetah_device::Result<()> {
        let mut at = 0;
        for (set, piece) in places::in_sets(&self.sets, range) {
            let own = data.slice(at, piece.len);
            at += piece.len;
            let first = self.first_member(set);
            if (first..first + self.sets[set].nodes.len()).contains(&member) {
                self.arrays[set].restore(piece, own, member - first).await?;
            }
        }
        Ok(())
    }

    /// The name of a member.
    fn name(&self, member: usize) -> Arc<str> {
        let set = (0..self.sets.len()).rev().find(|set| self.first_member(*set) <= member).unwrap_or(0);
        self.arrays[set].members().name(member - self.first_member(set)).clone()
    }

    fn first_member(&self, set: usize) -> usize {
        self.sets[..set].iter().map(|set| set.nodes.len()).sum()
    }

    async fn join(&self, pieces: &[(usize, ByteRange)]) -> cheetah_device::Result<Data> {
        let mut whole = Data::new();
        for (set, piece) in pieces {
            whole.append(self.arrays[*set].read(*piece).await?);
        }
        Ok(whole)
    }
}

impl seal::Alternatives for WithoutOne {
    fn read(&self, range: ByteRange) -> BoxFuture<'_, Vec<seal::Alternative>> {
        async move {
            let found = self.read_without(range).await.into_iter();
            found
                .map(|found| seal::Alternative {
                    without: found.without,
                    name: self.name(found.without),
                    data: found.data,
                })
                .collect()
        }
        .boxed()
    }

    fn restore(&self, range: ByteRange, data: Data, member: usize) -> BoxFuture<'_, cheetah_device::Result<()>> {
        async move { self.restore_at(range, &data, member).await }.boxed()
    }
}
