//! Systems of which only ordinary sockets are used: Windows, and those like FreeBSD. Round trips are measured by connecting,
//! and a far end that cooperates measures the rest.

pub mod capture;
pub mod clock;
pub mod route;
pub mod send;
pub mod socket;
