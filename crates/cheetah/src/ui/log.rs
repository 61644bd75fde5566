//! The log, on stderr.

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;

use super::stderr;

/// Starts logging: warnings always, more with each `-v`. `CHEETAH_LOG` (tracing's filter syntax) overrides.
pub fn start(verbose: u8) {
    let level = match verbose {
        0 => "warn,mdns_sd=off",
        1 => "info,mdns_sd=warn",
        2 => "debug,mdns_sd=warn",
        _ => "trace",
    };
    let filter = EnvFilter::try_from_env("CHEETAH_LOG").unwrap_or_else(|_| EnvFilter::new(level));
    // Fails only if a log has been started already.
    let _ = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(|| stderr::Queued)
        // It would report its own errors with eprintln!, which panics where stderr cannot be written.
        .log_internal_errors(false)
        .with_ansi(std::io::stderr().is_terminal())
        .with_target(verbose > 1)
        .compact()
        .try_init();
}
