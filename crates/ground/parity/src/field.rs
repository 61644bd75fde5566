//! The field GF(2^8) with the polynomial x^8 + x^4 + x^3 + x^2 + 1 (0x11D), in which 2 generates every element but 0.
//! Addition is XOR.

/// The polynomial without x^8, which is added when a doubling overflows.
pub(crate) const POLYNOMIAL: u8 = 0x1d;
/// The number of distinct powers of 2.
pub(crate) const POWERS_MAX: usize = 255;

/// The products of a constant with each low nibble and with each high nibble. A product with any byte is the sum of two
/// of them.
#[derive(Clone, Copy)]
#[repr(C, align(32))]
pub(crate) struct Products {
    pub low: [u8; 16],
    pub high: [u8; 16],
}

/// The products of each constant.
pub(crate) static PRODUCTS: [Products; 256] = products();

const fn products() -> [Products; 256] {
    let mut products = [Products { low: [0; 16], high: [0; 16] }; 256];
    let mut constant = 0;
    while constant < 256 {
        let mut nibble = 0;
        while nibble < 16 {
            products[constant].low[nibble] = multiply_by_bits(constant as u8, nibble as u8);
            products[constant].high[nibble] = multiply_by_bits(constant as u8, (nibble << 4) as u8);
            nibble += 1;
        }
        constant += 1;
    }
    products
}

const fn multiply_by_bits(a: u8, b: u8) -> u8 {
    let mut product = 0;
    let mut bit = 8;
    while bit > 0 {
        bit -= 1;
        product = double(product) ^ (a * (b >> bit & 1));
    }
    product
}

const fn double(a: u8) -> u8 {
    (a << 1) ^ (POLYNOMIAL * (a >> 7))
}

pub(crate) fn multiply(a: u8, b: u8) -> u8 {
    let products = &PRODUCTS[usize::from(a)];
    products.low[usize::from(b & 15)] ^ products.high[usize::from(b >> 4)]
}

/// The element whose product with `a` is 1, which is a^254. 0 has none; its result is 0.
pub(crate) fn invert(a: u8) -> u8 {
    // The exponents are 1, 3, 7, …, 127.
    let power_127 = (0..6).fold(a, |power, _| multiply(multiply(power, power), a));
    multiply(power_127, power_127)
}

/// 2^exponent.
pub(crate) fn power(exponent: usize) -> u8 {
    (0..exponent % POWERS_MAX).fold(1, |power, _| double(power))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn products_by_table_equal_products_by_bits() {
        for (a, b) in (0..=255).flat_map(|a| (0..=255).map(move |b| (a, b))) {
            assert_eq!(multiply(a, b), multiply_by_bits(a, b), "{a} * {b}");
        }
    }

    #[test]
    fn every_element_but_zero_has_an_inverse_and_is_a_power_of_two() {
        assert!((1..=255).all(|a| multiply(a, invert(a)) == 1));
        let mut powers: Vec<u8> = (0..POWERS_MAX).map(power).collect();
        powers.sort();
        assert!(powers.into_iter().eq(1..=255));
    }
}
