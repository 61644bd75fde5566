//! The log, on stderr.

use std::fmt::Debug;
use std::io::{IsTerminal, Result, Write};

use tracing::field::Field;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::format::{Writer, debug_fn};

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
        .with_writer(|| OneLineEach)
        // It would report its own errors with eprintln!, which panics where stderr cannot be written.
        .log_internal_errors(false)
        .with_ansi(std::io::stderr().is_terminal())
        .with_target(verbose > 1)
        .fmt_fields(debug_fn(field))
        .compact()
        .try_init();
}

/// Writes a field of an event. The message comes first; the next step of a warning follows it in words.
fn field(writer: &mut Writer<'_>, field: &Field, value: &dyn Debug) -> std::fmt::Result {
    match field.name() {
        "message" => write!(writer, "{value:?}"),
        "next" => match serde_json::from_str(&format!("{value:?}")) {
            Ok(next) => write!(writer, "; {}", cheetah_words::clause(&next)),
            Err(_) => Ok(()),
        },
        // What the crate `log` adds.
        name if name.starts_with("log.") => Ok(()),
        name => write!(writer, " {name}={value:?}"),
    }
}

/// Writes each event as one line: it may quote a peer, which must not add lines of its own.
struct OneLineEach;

impl Write for OneLineEach {
    /// Each call has one event.
    fn write(&mut self, event: &[u8]) -> Result<usize> {
        stderr::Queued.write_all(&on_one_line(event))?;
        Ok(event.len())
    }

    fn flush(&mut self) -> Result<()> {
        stderr::Queued.flush()
    }
}

/// Returns an event with the newlines before its last one shown as escapes.
fn on_one_line(event: &[u8]) -> Vec<u8> {
    let text = event.strip_suffix(b"\n").unwrap_or(event);
    let mut line = Vec::with_capacity(event.len());
    for byte in text {
        match byte {
            b'\n' => line.extend_from_slice(b"\\n"),
            b'\r' => line.extend_from_slice(b"\\r"),
            byte => line.push(*byte),
        }
    }
    line.push(b'\n');
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_one_line_whatever_it_quotes() {
        assert_eq!(on_one_line(b"read failed: bad\nerror: none\r\n"), b"read failed: bad\\nerror: none\\r\n");
        assert_eq!(on_one_line(b"cut off"), b"cut off\n");
    }
}
