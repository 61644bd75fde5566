//! Serial number arithmetic (RFC 1982) for CmdSN and StatSN.

/// Whether `a` is later than `b`.
pub const fn after(a: u32, b: u32) -> bool {
    a != b && a.wrapping_sub(b) < 1 << 31
}

#[cfg(test)]
mod tests {
    use super::after;

    #[test]
    fn order_survives_wrapping() {
        assert!(after(1, 0) && after(0, u32::MAX) && after(5, u32::MAX - 5));
        assert!(!after(0, 0) && !after(0, 1) && !after(u32::MAX, 0));
    }
}
