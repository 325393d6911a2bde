//! The kinds of numbers that elements are made of. Named by the table of predefined types, computed with by `op`.

/// One number in memory, in the order of bytes of this machine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Number {
    I8,
    I16,
    I32,
    I64,
    I128,
    U8,
    U16,
    U32,
    U64,
    U128,
    /// IEEE binary16.
    F16,
    /// The upper half of a binary32.
    Bf16,
    F32,
    F64,
    /// The 80 bits of `long double` on x86-64, in 16 bytes.
    X87,
    /// IEEE binary128.
    F128,
}

impl Number {
    /// Bytes it takes in memory, which is also its alignment.
    pub const fn bytes(self) -> u64 {
        match self {
            Number::I8 | Number::U8 => 1,
            Number::I16 | Number::U16 | Number::F16 | Number::Bf16 => 2,
            Number::I32 | Number::U32 | Number::F32 => 4,
            Number::I64 | Number::U64 | Number::F64 => 8,
            Number::I128 | Number::U128 | Number::X87 | Number::F128 => 16,
        }
    }

    pub const fn is_signed(self) -> bool {
        matches!(self, Number::I8 | Number::I16 | Number::I32 | Number::I64 | Number::I128)
    }

    /// The unsigned integer of the same width: what sums, products and bits of integers are computed with. Other numbers stay.
    pub const fn unsigned(self) -> Number {
        match self {
            Number::I8 => Number::U8,
            Number::I16 => Number::U16,
            Number::I32 => Number::U32,
            Number::I64 => Number::U64,
            Number::I128 => Number::U128,
            other => other,
        }
    }
}
