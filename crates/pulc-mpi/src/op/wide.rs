//! Floating-point numbers that Rust has no type for, computed in integers: `long double` of x86-64 (64 bits of precision), IEEE
//! binary128, binary16 and bfloat16. Used by the lanes of reductions and by external32.
//!
//! Why in software: the processor's x87 unit would need inline assembly in the middle of generic code and a `long double` of
//! another machine (aarch64: binary128) other code; here one routine serves every format, rounds to nearest even like the
//! hardware, gives the same bits everywhere, and is tested against the hardware's own numbers in the formats that both have.
//!
//! Source: IEEE 754-2019, sections 3 and 4; the x87 layout is in the processor manuals (explicit leading bit).

/// How a number is laid out in bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Format {
    /// Bits of the significand, the leading one included.
    precision: u32,
    exponent_bits: u32,
    /// The leading one is stored.
    explicit: bool,
}

pub const HALF: Format = Format { precision: 11, exponent_bits: 5, explicit: false };
pub const BRAIN: Format = Format { precision: 8, exponent_bits: 8, explicit: false };
pub const X87: Format = Format { precision: 64, exponent_bits: 15, explicit: true };
pub const QUAD: Format = Format { precision: 113, exponent_bits: 15, explicit: false };
/// The hardware's formats: for tests.
#[cfg(test)]
pub const SINGLE: Format = Format { precision: 24, exponent_bits: 8, explicit: false };
#[cfg(test)]
pub const DOUBLE: Format = Format { precision: 53, exponent_bits: 11, explicit: false };

impl Format {
    const fn bias(&self) -> i32 {
        (1 << (self.exponent_bits - 1)) - 1
    }

    /// Exponent of the smallest normal number.
    const fn least(&self) -> i32 {
        1 - self.bias()
    }

    const fn exponent_mask(&self) -> u32 {
        (1 << self.exponent_bits) - 1
    }

    /// Stored bits of the significand.
    const fn stored(&self) -> u32 {
        if self.explicit { self.precision } else { self.precision - 1 }
    }
}

/// A number in no format: sign and magnitude.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Wide {
    is_negative: bool,
    magnitude: Magnitude,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Magnitude {
    Zero,
    /// `fraction * 2^(exponent - TOP)`, with bit TOP as the highest one of the fraction. The lowest bit also stands for everything
    /// that was shifted out: formats are short enough that it never decides more than a rounding.
    Finite {
        exponent: i32,
        fraction: u128,
    },
    Infinite,
    Nan,
}

use Magnitude::{Finite, Infinite, Nan, Zero};

/// One bit is left for the carry of a sum.
const TOP: u32 = 126;

impl Wide {
    const NAN: Wide = Wide { is_negative: false, magnitude: Nan };

    /// From the bits of a number in memory.
    #[inline(always)]
    pub fn decode(bits: u128, format: &Format) -> Wide {
        let stored = format.stored();
        let field = (bits >> stored) as u32 & format.exponent_mask();
        let is_negative = bits >> (stored + format.exponent_bits) & 1 == 1;
        let significand = bits & ((1 << stored) - 1);
        let below_one = significand & ((1 << (format.precision - 1)) - 1);
        let magnitude = if field == format.exponent_mask() {
            if below_one == 0 { Infinite } else { Nan }
        } else if field == 0 {
            normal(format.least(), significand, format.precision)
        } else if format.explicit && significand >> (format.precision - 1) == 0 {
            // No number since the 80387: the hardware calls such operands invalid.
            Nan
        } else {
            normal(field as i32 - format.bias(), below_one | 1 << (format.precision - 1), format.precision)
        };
        Wide { is_negative, magnitude }
    }

    /// The bits of the nearest number of the format; of two equally near ones that with an even significand.
    #[inline(always)]
    pub fn encode(self, format: &Format) -> u128 {
        let stored = format.stored();
        let mask = u128::from(format.exponent_mask());
        let leading = 1u128 << (format.precision - 1);
        let (field, significand) = match self.rounded(format).magnitude {
            Zero => (0, 0),
            Finite { exponent, fraction } if exponent < format.least() => {
                (0, fraction >> (TOP + 1 - format.precision + (format.least() - exponent) as u32))
            }
            Finite { exponent, fraction } => {
                ((exponent + format.bias()) as u128, fraction >> (TOP + 1 - format.precision))
            }
            Infinite => (mask, leading),
            Nan => (mask, leading | leading >> 1),
        };
        let significand = if format.explicit { significand } else { significand & (leading - 1) };
        u128::from(self.is_negative) << (stored + format.exponent_bits) | field << stored | significand
    }

    /// Rounded to the format: what an operation of that format gives.
    #[inline(always)]
    pub fn rounded(self, format: &Format) -> Wide {
        let Finite { exponent, fraction } = self.magnitude else { return self };
        // Below the smallest normal number there are fewer bits.
        let missing = (format.least() - exponent).clamp(0, 128) as u32;
        let drop = (TOP + 1 - format.precision + missing).min(TOP + 2);
        let half = 1u128 << (drop - 1);
        let (kept, rest) = match drop {
            128 => (0, fraction),
            _ => (fraction >> drop, fraction & ((1 << drop) - 1)),
        };
        let up = rest > half || rest == half && kept & 1 == 1;
        let kept = kept + u128::from(up);
        let magnitude = if kept == 0 {
            Zero
        } else {
            let over = (kept.ilog2() + drop).saturating_sub(TOP);
            let exponent = exponent + over as i32;
            if exponent > format.bias() { Infinite } else { Finite { exponent, fraction: kept << (drop - over) } }
        };
        Wide { magnitude, ..self }
    }

    pub fn negated(self) -> Wide {
        Wide { is_negative: !self.is_negative, ..self }
    }

    /// The sum, not rounded.
    #[inline(always)]
    pub fn plus(self, other: Wide) -> Wide {
        let (big, small) = if self.is_below_in_size(other) { (other, self) } else { (self, other) };
        let magnitude = match (big.magnitude, small.magnitude) {
            (Nan, _) | (_, Nan) => return Wide::NAN,
            (Infinite, Infinite) if big.is_negative != small.is_negative => return Wide::NAN,
            (Zero, _) => return Wide { is_negative: big.is_negative && small.is_negative, magnitude: Zero },
            (Infinite, _) | (_, Zero | Infinite) => return big,
            (Finite { exponent, fraction }, Finite { exponent: less, fraction: addend }) => {
                let addend = shifted(addend, (exponent - less) as u32);
                if big.is_negative == small.is_negative {
                    carried(exponent, fraction + addend)
                } else {
                    normal(exponent, fraction - addend, TOP + 1)
                }
            }
        };
        // What cancels out is positive.
        Wide { is_negative: big.is_negative && magnitude != Zero, magnitude }
    }

    pub fn minus(self, other: Wide) -> Wide {
        self.plus(other.negated())
    }

    /// The product, not rounded.
    #[inline(always)]
    pub fn times(self, other: Wide) -> Wide {
        let is_negative = self.is_negative != other.is_negative;
        let magnitude = match (self.magnitude, other.magnitude) {
            (Nan, _) | (_, Nan) | (Zero, Infinite) | (Infinite, Zero) => return Wide::NAN,
            (Zero, _) | (_, Zero) => Zero,
            (Infinite, _) | (_, Infinite) => Infinite,
            (Finite { exponent: a, fraction: x }, Finite { exponent: b, fraction: y }) => {
                let (high, low) = product(x, y);
                // The leading one of the product is bit 2 * TOP or the next one.
                carried(a + b, high << 2 | low >> TOP | u128::from(low << 2 != 0))
            }
        };
        Wide { is_negative, magnitude }
    }

    /// Whether it is smaller; false if one is no number.
    #[inline(always)]
    pub fn is_less(self, other: Wide) -> bool {
        match (self.magnitude, other.magnitude) {
            (Nan, _) | (_, Nan) | (Zero, Zero) => false,
            _ if self.is_negative != other.is_negative => self.is_negative,
            _ if self.is_negative => other.is_below_in_size(self),
            _ => self.is_below_in_size(other),
        }
    }

    pub fn is_equal(self, other: Wide) -> bool {
        match (self.magnitude, other.magnitude) {
            (Nan, _) | (_, Nan) => false,
            (Zero, Zero) => true,
            _ => self == other,
        }
    }

    fn is_below_in_size(self, other: Wide) -> bool {
        match (self.magnitude, other.magnitude) {
            (Finite { exponent: a, fraction: x }, Finite { exponent: b, fraction: y }) => (a, x) < (b, y),
            (Zero, Finite { .. } | Infinite) | (Finite { .. }, Infinite) => true,
            _ => false,
        }
    }
}

/// `significand * 2^(exponent - (precision - 1))`.
#[inline(always)]
fn normal(exponent: i32, significand: u128, precision: u32) -> Magnitude {
    if significand == 0 {
        return Zero;
    }
    let leading = significand.ilog2();
    let exponent = exponent + leading as i32 - (precision as i32 - 1);
    Finite { exponent, fraction: if leading > TOP { significand } else { significand << (TOP - leading) } }
}

/// A fraction that may have grown by one bit.
#[inline(always)]
fn carried(exponent: i32, fraction: u128) -> Magnitude {
    if fraction >> (TOP + 1) == 1 {
        Finite { exponent: exponent + 1, fraction: fraction >> 1 | fraction & 1 }
    } else {
        Finite { exponent, fraction }
    }
}

/// Shifts right; what falls out stays visible in the lowest bit.
#[inline(always)]
fn shifted(fraction: u128, by: u32) -> u128 {
    match by {
        0 => fraction,
        1..=127 => fraction >> by | u128::from(fraction << (128 - by) != 0),
        _ => 1,
    }
}

/// High and low half of a product.
#[inline(always)]
fn product(x: u128, y: u128) -> (u128, u128) {
    const MASK: u128 = u64::MAX as u128;
    let (x1, x0, y1, y0) = (x >> 64, x & MASK, y >> 64, y & MASK);
    let low = x0 * y0;
    let middle = x1 * y0 + (low >> 64);
    let other = x0 * y1 + (middle & MASK);
    (x1 * y1 + (middle >> 64) + (other >> 64), other << 64 | low & MASK)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn double(value: f64) -> Wide {
        Wide::decode(u128::from(value.to_bits()), &DOUBLE)
    }

    fn back(wide: Wide) -> f64 {
        f64::from_bits(wide.encode(&DOUBLE) as u64)
    }

    fn same(ours: f64, hardware: f64) -> bool {
        ours.to_bits() == hardware.to_bits() || ours.is_nan() && hardware.is_nan()
    }

    /// All bit patterns, and pairs that are near each other or near the ends of the range.
    fn doubles() -> impl Strategy<Value = (f64, f64)> {
        let all = any::<u64>().prop_map(f64::from_bits);
        let near = (any::<f64>(), -60i32..60, any::<u64>()).prop_map(|(x, shift, bits)| {
            let other = x * 2f64.powi(shift) * (1.0 + (bits as f64) * 2f64.powi(-66));
            (x, if bits & 1 == 0 { other } else { -other })
        });
        let tiny = (0u64..1 << 54, any::<bool>())
            .prop_map(|(bits, negative)| f64::from_bits(bits | u64::from(negative) << 63));
        prop_oneof![
            (all.clone(), all),
            near,
            (tiny.clone(), tiny),
            (
                any::<f64>(),
                prop::sample::select(vec![0.0, -0.0, f64::INFINITY, f64::NEG_INFINITY, f64::NAN, 1.0, f64::MAX])
            ),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 20 } else { 4000 }))]

        #[test]
        fn sums_products_and_order_are_those_of_the_hardware((a, b) in doubles()) {
            let (x, y) = (double(a), double(b));
            prop_assert!(same(back(x), a), "{a:e}");
            prop_assert!(same(back(x.plus(y)), a + b), "{a:e} + {b:e} = {:e}, not {:e}", a + b, back(x.plus(y)));
            prop_assert!(same(back(x.minus(y)), a - b), "{a:e} - {b:e}");
            prop_assert!(same(back(x.times(y)), a * b), "{a:e} * {b:e} = {:e}, not {:e}", a * b, back(x.times(y)));
            prop_assert_eq!(x.is_less(y), a < b);
            prop_assert_eq!(x.is_equal(y), a == b);
            let single = f32::from_bits(x.encode(&SINGLE) as u32);
            prop_assert!(same(f64::from(single), f64::from(a as f32)), "{a:e} as f32");
        }

        #[test]
        fn every_double_passes_through_the_longer_formats_unchanged(bits in any::<u64>()) {
            let value = f64::from_bits(bits);
            for format in [&X87, &QUAD] {
                prop_assert!(same(back(Wide::decode(double(value).encode(format), format)), value));
            }
        }

        #[test]
        fn every_half_and_every_long_number_is_its_own_rounding(bits in any::<u128>()) {
            for (format, width) in [(&HALF, 16), (&BRAIN, 16), (&QUAD, 128)] {
                let bits = bits & (u128::MAX >> (128 - width));
                let wide = Wide::decode(bits, format);
                if wide.magnitude != Nan {
                    prop_assert_eq!(wide.encode(format), bits);
                }
            }
        }
    }

    #[test]
    fn known_numbers_have_the_bits_of_the_manuals() {
        assert_eq!(double(1.0).encode(&X87), 0x3fff_8000_0000_0000_0000);
        assert_eq!(double(-2.0).encode(&X87), 0xc000_8000_0000_0000_0000);
        assert_eq!(double(f64::INFINITY).encode(&X87), 0x7fff_8000_0000_0000_0000);
        assert_eq!(double(1.0).encode(&QUAD), 0x3fff << 112);
        assert_eq!(double(1.5).encode(&HALF), 0x3e00);
        assert_eq!(double(65504.0).encode(&HALF), 0x7bff);
        assert_eq!(double(65520.0).encode(&HALF), 0x7c00, "rounds to infinity");
        assert_eq!(double(6e-8).encode(&HALF), 1, "the smallest subnormal");
        // 2^64 - 1 needs all 64 bits.
        let all = double(2f64.powi(63)).plus(double(2f64.powi(63)).minus(double(1.0))).rounded(&X87);
        assert_eq!(all.encode(&X87), 0x403e_ffff_ffff_ffff_ffff);
        assert_eq!(all.plus(double(0.5)).encode(&X87), 0x403f_8000_0000_0000_0000, "a tie goes to the even one");
    }
}
