//! No routes: nothing is sent through a certain interface.

use std::net::IpAddr;

use crate::route::{Route, RouteError};

impl Route {
    /// Fails: what is known of a route is of use for raw sockets only.
    ///
    /// # Errors
    ///
    /// Always.
    pub fn to(remote: IpAddr) -> Result<Self, RouteError> {
        match remote {
            IpAddr::V6(address) if address.is_unicast_link_local() => Err(RouteError::LinkLocal(remote)),
            _ => Err(RouteError::NotOffered),
        }
    }
}

/// Whether the interface is one end of a virtual pair. There are none.
pub(crate) const fn is_virtual_pair(_index: u32) -> bool {
    false
}

/// The queue discipline that shapes the traffic of an interface. There are none.
pub(crate) const fn shaper(_index: u32) -> Option<String> {
    None
}
