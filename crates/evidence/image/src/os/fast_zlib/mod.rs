//! The fastest compression of chunks that a library offers on this system, each into a zlib stream (RFC 1950) of its own.

#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod igzip;
#[cfg(any(test, not(all(target_os = "linux", target_arch = "x86_64"))))]
mod libdeflate;
#[cfg(test)]
mod tests;

#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
pub(crate) use igzip::FastZlib;
#[cfg(not(all(target_os = "linux", target_arch = "x86_64")))]
pub(crate) use libdeflate::FastZlib;
