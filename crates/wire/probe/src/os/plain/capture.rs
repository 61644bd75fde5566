//! No captures, and no datagram sockets with errors and times. The types have no values.

use std::convert::Infallible;
use std::io;
use std::net::{IpAddr, SocketAddr};

use crate::capture::datagram::DatagramAnswer;
use crate::capture::{CaptureError, Captured};
use crate::clock::Nanos;
use crate::route::Route;

/// Receives whole frames from a host, where there are raw sockets.
#[derive(Debug)]
pub struct Capture(Infallible);

impl Capture {
    /// Fails: there are no raw sockets.
    ///
    /// # Errors
    ///
    /// Always.
    pub fn open(_route: &Route) -> Result<Self, CaptureError> {
        Err(CaptureError::NotOffered)
    }

    /// Receives the next frame.
    pub fn recv_until(&mut self, _deadline: Nanos) -> Result<Option<Captured<'_>>, CaptureError> {
        match self.0 {}
    }

    /// Returns the number of frames dropped.
    pub fn dropped(&mut self) -> u64 {
        match self.0 {}
    }
}

/// A datagram socket connected to one host, where its kernel reports ICMP errors.
#[derive(Debug)]
pub struct Datagram(Infallible);

impl Datagram {
    /// Fails: there are no such sockets.
    ///
    /// # Errors
    ///
    /// Always.
    pub fn icmp(_remote: IpAddr) -> Result<Self, CaptureError> {
        Err(CaptureError::NotOffered)
    }

    /// Fails: there are no such sockets.
    ///
    /// # Errors
    ///
    /// Always.
    pub fn udp(_remote: IpAddr, _port: u16) -> Result<Self, CaptureError> {
        Err(CaptureError::NotOffered)
    }

    /// Returns the local address.
    pub fn local(&self) -> io::Result<SocketAddr> {
        match self.0 {}
    }

    /// Sets the time to live.
    pub fn set_ttl(&self, _ttl: u8) -> io::Result<()> {
        match self.0 {}
    }

    /// Disables fragmentation.
    pub fn set_dont_fragment(&self) -> io::Result<()> {
        match self.0 {}
    }

    /// Sends a message.
    pub fn send(&self, _message: &[u8]) -> io::Result<Nanos> {
        match self.0 {}
    }

    /// Receives the next answer.
    pub fn recv_until(&mut self, _deadline: Nanos) -> Result<Option<DatagramAnswer<'_>>, CaptureError> {
        match self.0 {}
    }
}
