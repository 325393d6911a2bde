//! Which call made a datatype and with which arguments: what `MPI_Type_get_envelope` and `MPI_Type_get_contents` give back.
//!
//! Source: MPI-5.0, section 5.1.13. The order of the numbers in each list is the one of the tables there; arguments of the
//! large-count calls that are counts or displacements stand in the list of large counts.

use crate::datatype::typemap::Typemap;
use std::sync::Arc;

/// How a datatype was made. Numbers as in `consts` (those of the MPICH ABI).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(i32)]
pub enum Combiner {
    Named = 1,
    Dup = 2,
    Contiguous = 3,
    Vector = 4,
    Hvector = 6,
    Indexed = 7,
    Hindexed = 9,
    IndexedBlock = 10,
    Struct = 12,
    Subarray = 13,
    Darray = 14,
    F90Real = 15,
    F90Complex = 16,
    F90Integer = 17,
    Resized = 18,
    HindexedBlock = 19,
    ValueIndex = 20,
}

/// The call that made a datatype.
#[derive(Clone, Debug)]
pub enum Origin {
    /// Nobody: it is predefined.
    Named,
    Made(Arc<Call>),
}

/// Arguments of a constructor.
#[derive(Clone, Debug)]
pub struct Call {
    pub combiner: Combiner,
    pub integers: Vec<i32>,
    pub addresses: Vec<i64>,
    /// Filled by the large-count calls only.
    pub counts: Vec<i64>,
    pub types: Vec<Arc<Typemap>>,
}

impl Origin {
    pub fn combiner(&self) -> Combiner {
        match self {
            Origin::Named => Combiner::Named,
            Origin::Made(call) => call.combiner,
        }
    }

    pub fn call(&self) -> Option<&Call> {
        match self {
            Origin::Named => None,
            Origin::Made(call) => Some(call),
        }
    }
}

/// Writes down the arguments of a call in the order of the standard's tables. `large` says which kind of call it was: a large
/// call keeps counts and displacements apart, in one list.
pub(crate) struct Recorder {
    call: Call,
    large: bool,
}

impl Recorder {
    pub fn new(combiner: Combiner, large: bool) -> Recorder {
        let call =
            Call { combiner, integers: Vec::new(), addresses: Vec::new(), counts: Vec::new(), types: Vec::new() };
        Recorder { call, large }
    }

    /// An argument that is an `int` in both kinds of calls.
    pub fn integer(mut self, value: i32) -> Recorder {
        self.call.integers.push(value);
        self
    }

    /// Arguments that are `int` or `MPI_Count`.
    pub fn counts(mut self, values: impl IntoIterator<Item = i64>) -> Recorder {
        if self.large {
            self.call.counts.extend(values);
        } else {
            // Fits: it came as an `int`.
            self.call.integers.extend(values.into_iter().map(|value| value as i32));
        }
        self
    }

    /// Arguments that are `MPI_Aint` or `MPI_Count`.
    pub fn addresses(mut self, values: impl IntoIterator<Item = i64>) -> Recorder {
        let list = if self.large { &mut self.call.counts } else { &mut self.call.addresses };
        list.extend(values);
        self
    }

    pub fn types<'a>(mut self, types: impl IntoIterator<Item = &'a Arc<Typemap>>) -> Recorder {
        self.call.types.extend(types.into_iter().cloned());
        self
    }

    pub fn done(self) -> Origin {
        Origin::Made(Arc::new(self.call))
    }
}
