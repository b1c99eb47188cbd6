//! Logarithm and exponential from basic arithmetic.
//!
//! The functions of the standard library may differ in the last digit between platforms and
//! versions; a seeded load must not. Addition, multiplication, division and square root are
//! correctly rounded everywhere.

use std::f64::consts::{LN_2, SQRT_2};

/// The natural logarithm of a positive normal number. Any other argument counts as the smallest of
/// them.
pub(crate) fn ln(x: f64) -> f64 {
    let x = if x.is_normal() && x > 0.0 {
        x
    } else {
        f64::MIN_POSITIVE
    };
    let bits = x.to_bits();
    let mut exponent = ((bits >> 52) & 0x7ff) as i32 - 1023;
    let mut mantissa = f64::from_bits((bits & ((1 << 52) - 1)) | (1023 << 52));
    if mantissa > SQRT_2 {
        mantissa /= 2.0;
        exponent += 1;
    }
    // ln m = 2 atanh((m − 1) / (m + 1)); |s| < 0.172 makes the series short.
    let s = (mantissa - 1.0) / (mantissa + 1.0);
    let square = s * s;
    let series = (0..12)
        .rev()
        .fold(0.0, |sum, k| sum * square + 1.0 / f64::from(2 * k + 1));
    f64::from(exponent) * LN_2 + 2.0 * s * series
}

/// The exponential of `x`, clamped to the range of an `f64`.
pub(crate) fn exp(x: f64) -> f64 {
    let x = if x.is_nan() {
        0.0
    } else {
        x.clamp(-700.0, 700.0)
    };
    let doublings = (x / LN_2).round();
    let rest = x - doublings * LN_2;
    let series = (1..=16)
        .rev()
        .fold(1.0, |sum, k| 1.0 + sum * rest / f64::from(k));
    let scale = f64::from_bits(((doublings as i64 + 1023) as u64) << 52);
    series * scale
}

/// `x` to the power of `y`, for positive `x`.
pub(crate) fn pow(x: f64, y: f64) -> f64 {
    exp(y * ln(x))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn close(ours: f64, theirs: f64) -> bool {
        (ours - theirs).abs() <= 1e-12 * theirs.abs().max(1.0)
    }

    proptest! {
        #[test]
        fn agrees_with_the_standard_library(x in 1e-300..1e300f64, y in -600.0..600.0f64) {
            prop_assert!(close(ln(x), x.ln()));
            prop_assert!((exp(y) / y.exp() - 1.0).abs() < 1e-12);
        }

        #[test]
        fn answers_for_every_number(x in any::<f64>()) {
            prop_assert!(ln(x).is_finite() && exp(x).is_finite());
        }
    }

    #[test]
    fn known_values() {
        assert!(close(ln(1.0), 0.0) && close(exp(0.0), 1.0));
        assert!(close(exp(1.0), std::f64::consts::E));
        assert!(close(pow(2.0, 10.0), 1024.0));
    }
}
