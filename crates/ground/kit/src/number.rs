//! Whole numbers.

/// Returns the greatest common divisor; that of a number and 0 is the number.
pub const fn gcd(a: u64, b: u64) -> u64 {
    let (mut a, mut b) = (a, b);
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_greatest_common_divisor_divides_both() {
        for (a, b, divisor) in [(12, 18, 6), (18, 12, 6), (7, 5, 1), (0, 9, 9), (9, 0, 9), (0, 0, 0)] {
            assert_eq!(gcd(a, b), divisor, "{a}, {b}");
        }
    }
}
