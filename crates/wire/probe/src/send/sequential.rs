//! Sleeps until a packet is due, then sends it: the usual method, for comparison with the others.

use super::call::SendCall;
use super::packet::PacketSocket;
use super::realtime::Realtime;
use super::stamps::Stamps;
use super::{Backend, Departures, ETHERNET_BYTES, Options, SendError, Sender, Train, wait};
use crate::clock::Nanos;
use crate::route::Route;

/// Sleeps and sends.
pub(super) struct Sequential {
    socket: PacketSocket,
    interface: String,
    frame_bytes_max: usize,
    options: Options,
    stamps: Stamps,
    notes: Vec<String>,
}

impl Sequential {
    pub(super) fn open(route: &Route, options: Options) -> Result<Self, SendError> {
        let socket = PacketSocket::sending(route.index)
            .map_err(|error| SendError::opening(Backend::Sequential, &route.interface, error))?;
        let (interface, frame_bytes_max) = (route.interface.clone(), route.mtu as usize + ETHERNET_BYTES);
        Ok(Self { socket, interface, frame_bytes_max, options, stamps: Stamps::default(), notes: Vec::new() })
    }
}

impl Sender for Sequential {
    fn backend(&self) -> Backend {
        Backend::Sequential
    }

    fn frame_bytes_max(&self) -> usize {
        self.frame_bytes_max
    }

    fn notes(&self) -> &[String] {
        &self.notes
    }

    fn send(&mut self, train: &Train) -> Result<Departures, SendError> {
        train.check(self.frame_bytes_max)?;
        let sending = |error| SendError::sending(&self.interface, error);
        self.stamps.restart(&self.socket).map_err(sending)?;
        let mut calls = Vec::with_capacity(train.frames.len());
        {
            let realtime = self.options.realtime.then(|| Realtime::enter(self.options.cpu));
            for (frame, due) in train.frames.iter().zip(&train.due) {
                wait::sleep_until(*due);
                let before = Nanos::now();
                self.socket.send(frame).map_err(sending)?;
                calls.push(SendCall { packets: 1, before, after: Nanos::now() });
            }
            self.notes = realtime.map(Realtime::leave).unwrap_or_default();
        }
        Ok(match self.stamps.collect(&self.socket, calls.len()) {
            Some(left) => Departures::stamped(left),
            None => Departures::called(&calls),
        })
    }
}
