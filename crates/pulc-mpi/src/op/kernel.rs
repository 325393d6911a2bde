//! Chooses the loop for an operation and a predefined datatype, or says that the standard has none. Worked out by the compiler: at
//! run time `op` looks into a table.
//!
//! Source: MPI-5.0, sections 6.9.2 and 6.9.4: which operations are allowed for which groups of types. Beyond these, as in the MPICH
//! family, a plain `MPI_CHAR` counts as an integer and logical operations take addresses and counts.

use crate::datatype::basic::{BASICS, Basic, Form, Language};
use crate::datatype::number::Number;
use crate::op::apply::{Complex, Kernel, Pair, fold, fold_once};
use crate::op::numbers::*;
use crate::op::{BUILTINS, Builtin};

/// The loop; none where the operation is not defined on the type. `index` is the type's place in the table of predefined types.
#[inline]
pub(crate) fn loop_of(op: Builtin, index: usize) -> Option<Kernel> {
    KERNELS[op as usize][index]
}

static KERNELS: [[Option<Kernel>; BASICS.len()]; BUILTINS.len()] = kernels();

const fn kernels() -> [[Option<Kernel>; BASICS.len()]; BUILTINS.len()] {
    let mut all = [[None; BASICS.len()]; BUILTINS.len()];
    let mut op = 0;
    while op < BUILTINS.len() {
        let mut basic = 0;
        while basic < BASICS.len() {
            all[op][basic] = kernel(BUILTINS[op].0, &BASICS[basic]);
            basic += 1;
        }
        op += 1;
    }
    all
}

const fn kernel(op: Builtin, basic: &Basic) -> Option<Kernel> {
    match basic.form {
        Form::Integer(number) => match op {
            Builtin::LogicalAnd | Builtin::LogicalOr | Builtin::LogicalXor
                if matches!(basic.language, Language::Fortran) =>
            {
                None
            }
            _ => integer(op, number),
        },
        Form::Floating(number) => floating(op, number),
        Form::Complex(number) => complex(op, number),
        Form::Logical(number) => logical(op, number),
        Form::Byte => bits(op, Number::U8),
        Form::Pair(value, place) => pair(op, value, place),
        Form::Character(_) | Form::Packed | Form::LowerBound | Form::UpperBound => None,
    }
}

const fn integer(op: Builtin, number: Number) -> Option<Kernel> {
    match op {
        Builtin::Sum => Some(match number.unsigned() {
            Number::U8 => fold::<u8, Sum>,
            Number::U16 => fold::<u16, Sum>,
            Number::U32 => fold::<u32, Sum>,
            Number::U64 => fold::<u64, Sum>,
            _ => fold_once::<u128, Sum>,
        }),
        Builtin::Product => Some(match number.unsigned() {
            Number::U8 => fold::<u8, Product>,
            Number::U16 => fold::<u16, Product>,
            Number::U32 => fold::<u32, Product>,
            Number::U64 => fold::<u64, Product>,
            _ => fold_once::<u128, Product>,
        }),
        Builtin::Minimum => Some(match number {
            Number::I8 => fold::<i8, Minimum>,
            Number::I16 => fold::<i16, Minimum>,
            Number::I32 => fold::<i32, Minimum>,
            Number::I64 => fold::<i64, Minimum>,
            Number::I128 => fold_once::<i128, Minimum>,
            Number::U8 => fold::<u8, Minimum>,
            Number::U16 => fold::<u16, Minimum>,
            Number::U32 => fold::<u32, Minimum>,
            Number::U64 => fold::<u64, Minimum>,
            _ => return None,
        }),
        Builtin::Maximum => Some(match number {
            Number::I8 => fold::<i8, Maximum>,
            Number::I16 => fold::<i16, Maximum>,
            Number::I32 => fold::<i32, Maximum>,
            Number::I64 => fold::<i64, Maximum>,
            Number::I128 => fold_once::<i128, Maximum>,
            Number::U8 => fold::<u8, Maximum>,
            Number::U16 => fold::<u16, Maximum>,
            Number::U32 => fold::<u32, Maximum>,
            Number::U64 => fold::<u64, Maximum>,
            _ => return None,
        }),
        _ => match bits(op, number) {
            Some(kernel) => Some(kernel),
            None => logical(op, number),
        },
    }
}

const fn bits(op: Builtin, number: Number) -> Option<Kernel> {
    Some(match (op, number.unsigned()) {
        (Builtin::BitAnd, Number::U8) => fold::<u8, BitAnd>,
        (Builtin::BitAnd, Number::U16) => fold::<u16, BitAnd>,
        (Builtin::BitAnd, Number::U32) => fold::<u32, BitAnd>,
        (Builtin::BitAnd, Number::U64) => fold::<u64, BitAnd>,
        (Builtin::BitAnd, _) => fold_once::<u128, BitAnd>,
        (Builtin::BitOr, Number::U8) => fold::<u8, BitOr>,
        (Builtin::BitOr, Number::U16) => fold::<u16, BitOr>,
        (Builtin::BitOr, Number::U32) => fold::<u32, BitOr>,
        (Builtin::BitOr, Number::U64) => fold::<u64, BitOr>,
        (Builtin::BitOr, _) => fold_once::<u128, BitOr>,
        (Builtin::BitXor, Number::U8) => fold::<u8, BitXor>,
        (Builtin::BitXor, Number::U16) => fold::<u16, BitXor>,
        (Builtin::BitXor, Number::U32) => fold::<u32, BitXor>,
        (Builtin::BitXor, Number::U64) => fold::<u64, BitXor>,
        (Builtin::BitXor, _) => fold_once::<u128, BitXor>,
        _ => return None,
    })
}

const fn logical(op: Builtin, number: Number) -> Option<Kernel> {
    Some(match (op, number.unsigned()) {
        (Builtin::LogicalAnd, Number::U8) => fold::<u8, LogicalAnd>,
        (Builtin::LogicalAnd, Number::U16) => fold::<u16, LogicalAnd>,
        (Builtin::LogicalAnd, Number::U32) => fold::<u32, LogicalAnd>,
        (Builtin::LogicalAnd, Number::U64) => fold::<u64, LogicalAnd>,
        (Builtin::LogicalAnd, _) => fold_once::<u128, LogicalAnd>,
        (Builtin::LogicalOr, Number::U8) => fold::<u8, LogicalOr>,
        (Builtin::LogicalOr, Number::U16) => fold::<u16, LogicalOr>,
        (Builtin::LogicalOr, Number::U32) => fold::<u32, LogicalOr>,
        (Builtin::LogicalOr, Number::U64) => fold::<u64, LogicalOr>,
        (Builtin::LogicalOr, _) => fold_once::<u128, LogicalOr>,
        (Builtin::LogicalXor, Number::U8) => fold::<u8, LogicalXor>,
        (Builtin::LogicalXor, Number::U16) => fold::<u16, LogicalXor>,
        (Builtin::LogicalXor, Number::U32) => fold::<u32, LogicalXor>,
        (Builtin::LogicalXor, Number::U64) => fold::<u64, LogicalXor>,
        (Builtin::LogicalXor, _) => fold_once::<u128, LogicalXor>,
        _ => return None,
    })
}

const fn floating(op: Builtin, number: Number) -> Option<Kernel> {
    Some(match (op, number) {
        (Builtin::Sum, Number::F32) => fold::<f32, Sum>,
        (Builtin::Sum, Number::F64) => fold::<f64, Sum>,
        (Builtin::Product, Number::F32) => fold::<f32, Product>,
        (Builtin::Product, Number::F64) => fold::<f64, Product>,
        (Builtin::Minimum, Number::F32) => fold::<f32, Minimum>,
        (Builtin::Minimum, Number::F64) => fold::<f64, Minimum>,
        (Builtin::Maximum, Number::F32) => fold::<f32, Maximum>,
        (Builtin::Maximum, Number::F64) => fold::<f64, Maximum>,
        (_, Number::F16) => return computed::<Half>(op),
        (_, Number::Bf16) => return computed::<Brain>(op),
        (_, Number::X87) => return computed::<Extended>(op),
        (_, Number::F128) => return computed::<Quad>(op),
        _ => return None,
    })
}

const fn computed<S: Soft>(op: Builtin) -> Option<Kernel> {
    Some(match op {
        Builtin::Sum => fold_once::<Computed<S>, Sum>,
        Builtin::Product => fold_once::<Computed<S>, Product>,
        Builtin::Minimum => fold_once::<Computed<S>, Minimum>,
        Builtin::Maximum => fold_once::<Computed<S>, Maximum>,
        _ => return None,
    })
}

const fn complex(op: Builtin, number: Number) -> Option<Kernel> {
    Some(match (op, number) {
        // A sum is that of its parts.
        (Builtin::Sum, Number::F32) => |operands, into, count| fold::<f32, Sum>(operands, into, 2 * count) / 2,
        (Builtin::Sum, Number::F64) => |operands, into, count| fold::<f64, Sum>(operands, into, 2 * count) / 2,
        (Builtin::Product, Number::F32) => fold::<Complex<f32>, Product>,
        (Builtin::Product, Number::F64) => fold::<Complex<f64>, Product>,
        (_, Number::F16) => return computed_complex::<Half>(op),
        (_, Number::X87) => return computed_complex::<Extended>(op),
        (_, Number::F128) => return computed_complex::<Quad>(op),
        _ => return None,
    })
}

const fn computed_complex<S: Soft>(op: Builtin) -> Option<Kernel> {
    Some(match op {
        Builtin::Sum => |operands, into, count| fold_once::<Computed<S>, Sum>(operands, into, 2 * count) / 2,
        Builtin::Product => fold_once::<Complex<Computed<S>>, Product>,
        _ => return None,
    })
}

const fn pair(op: Builtin, value: Number, place: Number) -> Option<Kernel> {
    Some(match (op, value, place) {
        (Builtin::MinimumPlace, Number::F32, Number::I32) => fold_once::<Pair<f32, i32>, MinimumPlace>,
        (Builtin::MinimumPlace, Number::F64, Number::I32) => fold_once::<Pair<f64, i32>, MinimumPlace>,
        (Builtin::MinimumPlace, Number::I64, Number::I32) => fold_once::<Pair<i64, i32>, MinimumPlace>,
        (Builtin::MinimumPlace, Number::I16, Number::I32) => fold_once::<Pair<i16, i32>, MinimumPlace>,
        (Builtin::MinimumPlace, Number::I32, Number::I32) => fold_once::<Pair<i32, i32>, MinimumPlace>,
        (Builtin::MinimumPlace, Number::F32, Number::F32) => fold_once::<Pair<f32, f32>, MinimumPlace>,
        (Builtin::MinimumPlace, Number::F64, Number::F64) => fold_once::<Pair<f64, f64>, MinimumPlace>,
        (Builtin::MinimumPlace, Number::X87, Number::I32) => fold_once::<Pair<Computed<Extended>, i32>, MinimumPlace>,
        (Builtin::MaximumPlace, Number::F32, Number::I32) => fold_once::<Pair<f32, i32>, MaximumPlace>,
        (Builtin::MaximumPlace, Number::F64, Number::I32) => fold_once::<Pair<f64, i32>, MaximumPlace>,
        (Builtin::MaximumPlace, Number::I64, Number::I32) => fold_once::<Pair<i64, i32>, MaximumPlace>,
        (Builtin::MaximumPlace, Number::I16, Number::I32) => fold_once::<Pair<i16, i32>, MaximumPlace>,
        (Builtin::MaximumPlace, Number::I32, Number::I32) => fold_once::<Pair<i32, i32>, MaximumPlace>,
        (Builtin::MaximumPlace, Number::F32, Number::F32) => fold_once::<Pair<f32, f32>, MaximumPlace>,
        (Builtin::MaximumPlace, Number::F64, Number::F64) => fold_once::<Pair<f64, f64>, MaximumPlace>,
        (Builtin::MaximumPlace, Number::X87, Number::I32) => fold_once::<Pair<Computed<Extended>, i32>, MaximumPlace>,
        _ => return None,
    })
}
