//! The arithmetic of reductions on single elements: what sum, minimum, logical and so on mean for each kind of number. Pure; the
//! loops are in `op::apply`, the choice in `op::kernel`.
//!
//! Source: MPI-5.0, sections 6.9.2 (operations) and 6.9.4 (minimum and maximum with place). Integers wrap.

use crate::op::apply::{Combine, Complex, Pair, Sixteen};
use crate::op::wide::{BRAIN, Format, HALF, QUAD, Wide, X87};

/// Operations, as types: each loop is compiled for one.
pub(crate) struct Sum;
pub(crate) struct Product;
pub(crate) struct Minimum;
pub(crate) struct Maximum;
pub(crate) struct BitAnd;
pub(crate) struct BitOr;
pub(crate) struct BitXor;
pub(crate) struct LogicalAnd;
pub(crate) struct LogicalOr;
pub(crate) struct LogicalXor;
pub(crate) struct MinimumPlace;
pub(crate) struct MaximumPlace;

macro_rules! integers {
    ($($number:ty)*) => {$(
        impl Combine<$number> for Sum {
            #[inline(always)]
            fn combine(left: $number, right: $number) -> $number {
                left.wrapping_add(right)
            }
        }
        impl Combine<$number> for Product {
            #[inline(always)]
            fn combine(left: $number, right: $number) -> $number {
                left.wrapping_mul(right)
            }
        }
        impl Combine<$number> for BitAnd {
            #[inline(always)]
            fn combine(left: $number, right: $number) -> $number {
                left & right
            }
        }
        impl Combine<$number> for BitOr {
            #[inline(always)]
            fn combine(left: $number, right: $number) -> $number {
                left | right
            }
        }
        impl Combine<$number> for BitXor {
            #[inline(always)]
            fn combine(left: $number, right: $number) -> $number {
                left ^ right
            }
        }
        impl Combine<$number> for LogicalAnd {
            #[inline(always)]
            fn combine(left: $number, right: $number) -> $number {
                (left != 0 && right != 0) as $number
            }
        }
        impl Combine<$number> for LogicalOr {
            #[inline(always)]
            fn combine(left: $number, right: $number) -> $number {
                (left != 0 || right != 0) as $number
            }
        }
        impl Combine<$number> for LogicalXor {
            #[inline(always)]
            fn combine(left: $number, right: $number) -> $number {
                ((left != 0) != (right != 0)) as $number
            }
        }
    )*};
}

macro_rules! floats {
    ($($number:ty)*) => {$(
        impl Combine<$number> for Sum {
            #[inline(always)]
            fn combine(left: $number, right: $number) -> $number {
                left + right
            }
        }
        impl Combine<$number> for Product {
            #[inline(always)]
            fn combine(left: $number, right: $number) -> $number {
                left * right
            }
        }
    )*};
}

macro_rules! ordered {
    ($($number:ty)*) => {$(
        impl Combine<$number> for Minimum {
            #[inline(always)]
            fn combine(left: $number, right: $number) -> $number {
                if left < right { left } else { right }
            }
        }
        impl Combine<$number> for Maximum {
            #[inline(always)]
            fn combine(left: $number, right: $number) -> $number {
                if left > right { left } else { right }
            }
        }
        impl Ordered for $number {
            #[inline(always)]
            fn is_less(self, other: $number) -> bool {
                self < other
            }
            #[inline(always)]
            fn is_equal(self, other: $number) -> bool {
                self == other
            }
        }
    )*};
}

/// Numbers with an order.
pub(crate) trait Ordered: Copy {
    fn is_less(self, other: Self) -> bool;
    fn is_equal(self, other: Self) -> bool;
}

// Signed and unsigned integers differ in their order only.
integers!(u8 u16 u32 u64 u128);
floats!(f32 f64);
ordered!(u8 u16 u32 u64 u128 i8 i16 i32 i64 i128 f32 f64);

impl<N> Combine<Complex<N>> for Sum
where
    Sum: Combine<N>,
{
    #[inline(always)]
    fn combine(left: Complex<N>, right: Complex<N>) -> Complex<N> {
        Complex { re: Sum::combine(left.re, right.re), im: Sum::combine(left.im, right.im) }
    }
}

macro_rules! complex_floats {
    ($($number:ty)*) => {$(
        impl Combine<Complex<$number>> for Product {
            #[inline(always)]
            fn combine(left: Complex<$number>, right: Complex<$number>) -> Complex<$number> {
                Complex {
                    re: left.re * right.re - left.im * right.im,
                    im: left.re * right.im + left.im * right.re,
                }
            }
        }
    )*};
}

complex_floats!(f32 f64);

impl<V: Ordered, P: Ordered> Combine<Pair<V, P>> for MinimumPlace {
    #[inline(always)]
    fn combine(left: Pair<V, P>, right: Pair<V, P>) -> Pair<V, P> {
        if left.value.is_equal(right.value) {
            let place = if right.place.is_less(left.place) { right.place } else { left.place };
            return Pair { value: left.value, place };
        }
        if left.value.is_less(right.value) { left } else { right }
    }
}

impl<V: Ordered, P: Ordered> Combine<Pair<V, P>> for MaximumPlace {
    #[inline(always)]
    fn combine(left: Pair<V, P>, right: Pair<V, P>) -> Pair<V, P> {
        if left.value.is_equal(right.value) {
            let place = if right.place.is_less(left.place) { right.place } else { left.place };
            return Pair { value: left.value, place };
        }
        if right.value.is_less(left.value) { left } else { right }
    }
}

/// A number in memory that is computed in software.
pub(crate) trait Soft: Copy {
    const FORMAT: Format;
    fn bits(self) -> u128;
    fn of_bits(bits: u128) -> Self;
}

macro_rules! short_numbers {
    ($($(#[$text:meta])* $name:ident = $format:ident;)*) => {$(
        $(#[$text])*
        #[derive(Clone, Copy)]
        #[repr(transparent)]
        pub(crate) struct $name(pub u16);

        impl Soft for $name {
            const FORMAT: Format = $format;

            fn bits(self) -> u128 {
                u128::from(self.0)
            }

            fn of_bits(bits: u128) -> Self {
                $name(bits as u16)
            }
        }
    )*};
}

macro_rules! long_numbers {
    ($($(#[$text:meta])* $name:ident = $format:ident;)*) => {$(
        $(#[$text])*
        #[derive(Clone, Copy)]
        #[repr(transparent)]
        pub(crate) struct $name(pub Sixteen);

        impl Soft for $name {
            const FORMAT: Format = $format;

            fn bits(self) -> u128 {
                self.0.bits()
            }

            fn of_bits(bits: u128) -> Self {
                $name(Sixteen::of_bits(bits))
            }
        }
    )*};
}

short_numbers! {
    Half = HALF;
    /// bfloat16.
    Brain = BRAIN;
}

long_numbers! {
    /// `long double` of x86-64.
    Extended = X87;
    /// IEEE binary128.
    Quad = QUAD;
}

fn wide<S: Soft>(number: S) -> Wide {
    Wide::decode(number.bits(), &S::FORMAT)
}

fn soft<S: Soft>(number: Wide) -> S {
    S::of_bits(number.encode(&S::FORMAT))
}

/// Marks a number as computed in software, so that it can't be taken for one of the hardware's.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(crate) struct Computed<S>(pub S);

impl<S: Soft> Ordered for Computed<S> {
    fn is_less(self, other: Self) -> bool {
        wide(self.0).is_less(wide(other.0))
    }

    fn is_equal(self, other: Self) -> bool {
        wide(self.0).is_equal(wide(other.0))
    }
}

impl<S: Soft> Combine<Computed<S>> for Sum {
    fn combine(left: Computed<S>, right: Computed<S>) -> Computed<S> {
        Computed(soft(wide(left.0).plus(wide(right.0))))
    }
}

impl<S: Soft> Combine<Computed<S>> for Product {
    fn combine(left: Computed<S>, right: Computed<S>) -> Computed<S> {
        Computed(soft(wide(left.0).times(wide(right.0))))
    }
}

impl<S: Soft> Combine<Computed<S>> for Minimum {
    fn combine(left: Computed<S>, right: Computed<S>) -> Computed<S> {
        if left.is_less(right) { left } else { right }
    }
}

impl<S: Soft> Combine<Computed<S>> for Maximum {
    fn combine(left: Computed<S>, right: Computed<S>) -> Computed<S> {
        if right.is_less(left) { left } else { right }
    }
}

impl<S: Soft> Combine<Complex<Computed<S>>> for Product {
    fn combine(left: Complex<Computed<S>>, right: Complex<Computed<S>>) -> Complex<Computed<S>> {
        let (a, b) = (wide(left.re.0), wide(left.im.0));
        let (c, d) = (wide(right.re.0), wide(right.im.0));
        // Every step is rounded, as the hardware does it.
        let times = |x: Wide, y: Wide| x.times(y).rounded(&S::FORMAT);
        Complex {
            re: Computed(soft(times(a, c).minus(times(b, d)))),
            im: Computed(soft(times(a, d).plus(times(b, c)))),
        }
    }
}
