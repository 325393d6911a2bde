//! Reductions: which operations there are, on which datatypes they are defined, and computing them on memory that the caller
//! vouches for. Collectives look an operation up once and then reduce piece by piece. Knows nothing of communication.
//!
//! Source: MPI-5.0, section 6.9.

#[allow(unsafe_code)]
mod apply;
mod kernel;
#[allow(unsafe_code)]
mod many;
mod numbers;
#[cfg(test)]
mod tests;
pub mod wide;

use crate::callback::UserOp;
use crate::datatype::basic::{BASICS, index_of};
use crate::datatype::{self, Type};
use crate::error::{Class, Error, Result};
use crate::handle::{Datatype, Kind, Op};
use crate::memory::Addr;
use crate::table::Table;
use apply::Operands;
pub(crate) use apply::Source;
use std::sync::Arc;

/// The predefined operations.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Builtin {
    Maximum,
    Minimum,
    Sum,
    Product,
    LogicalAnd,
    BitAnd,
    LogicalOr,
    BitOr,
    LogicalXor,
    BitXor,
    MinimumPlace,
    MaximumPlace,
    /// Only for accumulating in a window: the result is the input.
    Replace,
    /// Only for accumulating in a window: the result stays.
    Nothing,
}

/// By the low byte of the handle, from 1 on.
const BUILTINS: [(Builtin, &str); 14] = [
    (Builtin::Maximum, "MPI_MAX"),
    (Builtin::Minimum, "MPI_MIN"),
    (Builtin::Sum, "MPI_SUM"),
    (Builtin::Product, "MPI_PROD"),
    (Builtin::LogicalAnd, "MPI_LAND"),
    (Builtin::BitAnd, "MPI_BAND"),
    (Builtin::LogicalOr, "MPI_LOR"),
    (Builtin::BitOr, "MPI_BOR"),
    (Builtin::LogicalXor, "MPI_LXOR"),
    (Builtin::BitXor, "MPI_BXOR"),
    (Builtin::MinimumPlace, "MPI_MINLOC"),
    (Builtin::MaximumPlace, "MPI_MAXLOC"),
    (Builtin::Replace, "MPI_REPLACE"),
    (Builtin::Nothing, "MPI_NO_OP"),
];

/// Handles of predefined operations are this plus their place in the table, counted from 1.
const PREDEFINED: i32 = 0x5800_0000;

impl Builtin {
    fn name(self) -> &'static str {
        BUILTINS[self as usize].1
    }
}

/// An operation that the program made.
pub struct Made {
    function: Arc<dyn UserOp>,
    is_commutative: bool,
}

/// An operation, held for as long as a reduction uses it: a handle that is freed meanwhile does no harm.
#[derive(Clone)]
pub enum OpRef {
    Builtin(Builtin),
    Made(Arc<Made>),
}

static MADE: Table<Made> = Table::new(Kind::Op);

/// The operation that a handle names.
#[inline]
pub fn get(op: Op) -> Result<OpRef> {
    let place = op.0.wrapping_sub(PREDEFINED + 1);
    if let Some(&(builtin, _)) = usize::try_from(place).ok().and_then(|place| BUILTINS.get(place)) {
        return Ok(OpRef::Builtin(builtin));
    }
    MADE.get(op.0).map(OpRef::Made).ok_or_else(|| unknown(op))
}

#[cold]
fn unknown(op: Op) -> Error {
    let text = match op {
        Op::NULL => "operation MPI_OP_NULL: pass a predefined operation, or one that was made and not freed".into(),
        Op(number) => format!("operation {number:#010x} does not exist: it was never made, or it was freed"),
    };
    Error::new(Class::OP, text)
}

impl OpRef {
    /// Whether operands may change places: the order of processes does not matter.
    pub fn is_commutative(&self) -> bool {
        match self {
            OpRef::Builtin(builtin) => *builtin != Builtin::Replace,
            OpRef::Made(made) => made.is_commutative,
        }
    }

    /// Whether it only reads its lower operand. A function of the program is handed a pointer to that, too, and may do as it likes.
    pub fn keeps_input(&self) -> bool {
        matches!(self, OpRef::Builtin(_))
    }
}

/// Whether a collective may reduce elements of this type with this operation.
pub fn check(op: &OpRef, datatype: Datatype) -> Result<()> {
    match op {
        OpRef::Builtin(builtin) => loop_for(*builtin, datatype).map(|_| ()),
        OpRef::Made(_) => datatype::committed(datatype).map(|_| ()),
    }
}

/// Computes `inout[i] = input[i] op inout[i]` for `count` elements that lie in both places as the type says; the input comes from
/// the lower rank. A function of the program is called without any lock held.
pub fn reduce(op: &OpRef, datatype: Datatype, input: Addr, inout: Addr, count: i64) -> Result<()> {
    if count == 0 {
        return Ok(());
    }
    let elements =
        usize::try_from(count).map_err(|_| Error::new(Class::COUNT, format!("count {count} is negative")))?;
    match op {
        OpRef::Builtin(builtin) => {
            loop_for(*builtin, datatype)?(Operands::Input(input), inout, elements);
        }
        OpRef::Made(made) => made.function.apply(input, inout, count, datatype),
    }
    Ok(())
}

/// An operation on one datatype, looked up once for many pieces.
pub(crate) struct Reduction<'a> {
    op: &'a OpRef,
    datatype: Datatype,
    kernel: Option<apply::Kernel>,
}

impl<'a> Reduction<'a> {
    pub fn new(op: &'a OpRef, datatype: Datatype) -> Result<Reduction<'a>> {
        let kernel = match op {
            OpRef::Builtin(builtin) => Some(loop_for(*builtin, datatype)?),
            OpRef::Made(_) => None,
        };
        Ok(Reduction { op, datatype, kernel })
    }

    /// Whether it is no function of the program's.
    #[inline]
    pub fn is_predefined(&self) -> bool {
        self.kernel.is_some()
    }

    /// Combines elements of all sources, from the first on, in one pass; returns how many from the beginning are done, perhaps none: the others
    /// are for [`Self::apply`].
    #[inline]
    pub fn apply_many(&self, sources: &[Source<'_>], into: Addr, count: usize) -> usize {
        self.kernel.map_or(0, |kernel| kernel(Operands::Sources(sources), into, count))
    }

    /// As [`reduce`].
    #[inline]
    pub fn apply(&self, input: Addr, inout: Addr, count: usize) {
        match (self.kernel, self.op) {
            (Some(kernel), _) => {
                kernel(Operands::Input(input), inout, count);
            }
            (None, OpRef::Made(made)) => made.function.apply(input, inout, count as i64, self.datatype),
            (None, OpRef::Builtin(_)) => {}
        }
    }
}

#[inline]
fn loop_for(builtin: Builtin, datatype: Datatype) -> Result<apply::Kernel> {
    let index = match index_of(datatype.0) {
        Some(index) => index,
        None => alike(&*datatype::get(datatype)?).ok_or_else(|| undefined(builtin, "a derived datatype"))?,
    };
    kernel::loop_of(builtin, index).ok_or_else(|| undefined(builtin, BASICS[index].name))
}

/// The place of the predefined type that a Fortran 90 type, or a duplicate, is in all but its handle.
fn alike(found: &Type) -> Option<usize> {
    let basic = found.map().uniform()?;
    let is_one = found.size() == basic.size() && found.lb() == 0 && found.extent() == basic.extent() as i64;
    if is_one && found.true_lb() == 0 { index_of(basic.mpich as i32) } else { None }
}

#[cold]
fn undefined(builtin: Builtin, what: &str) -> Error {
    let name = builtin.name();
    Error::new(Class::OP, format!("{name} is not defined for {what}: use a type that it is for, or MPI_Op_create"))
}

/// MPI's calls about operations. Re-exported by `call`.
pub mod calls {
    use super::*;

    pub fn op_create(function: Arc<dyn UserOp>, commute: bool) -> Result<Op> {
        Ok(Op(MADE.insert(Made { function, is_commutative: commute })))
    }

    /// Frees the handle, which becomes null. Reductions under way go on.
    pub fn op_free(op: &mut Op) -> Result<()> {
        if let OpRef::Builtin(builtin) = get(*op)? {
            return Err(Error::new(Class::OP, format!("{} is predefined and can't be freed", builtin.name())));
        }
        MADE.remove(op.0);
        *op = Op::NULL;
        Ok(())
    }

    pub fn op_commutative(op: Op) -> Result<bool> {
        Ok(get(op)?.is_commutative())
    }

    pub fn reduce_local(input: Addr, inout: Addr, count: i64, datatype: Datatype, op: Op) -> Result<()> {
        if count < 0 {
            return Err(Error::new(Class::COUNT, format!("count {count} is negative: it must be 0 or more")));
        }
        let op = get(op)?;
        check(&op, datatype)?;
        if input.is_in_place() || inout.is_in_place() {
            return Err(Error::new(Class::BUFFER, "MPI_IN_PLACE: a local reduction needs two buffers"));
        }
        reduce(&op, datatype, input, inout, count)
    }
}
