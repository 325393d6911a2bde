//! Choosing a predefined type by what is wanted of it: Fortran's kinds by digits and range, types by class and size, pairs by
//! their parts. Called by `datatype::calls`.
//!
//! Source: MPI-5.0, sections 19.1.9 (parameterized types, size-specific types) and 6.9.4 (value-index types).

use crate::consts::{TYPECLASS_COMPLEX, TYPECLASS_INTEGER, TYPECLASS_REAL, UNDEFINED};
use crate::datatype::basic::{BASICS, Basic, Form, Language, named};
use crate::datatype::origin::{Combiner, Recorder};
use crate::datatype::typemap::Typemap;
use crate::error::{Class, Error, Result};
use std::sync::{Arc, Mutex, PoisonError};

/// Decimal digits and exponent range of each real kind, as Fortran's `selected_real_kind` sees them.
const REALS: [(i32, i32, &str, &str); 3] = [
    (6, 37, "MPI_REAL4", "MPI_COMPLEX8"),
    (15, 307, "MPI_REAL8", "MPI_COMPLEX16"),
    (33, 4931, "MPI_REAL16", "MPI_COMPLEX32"),
];

const INTEGERS: [(i32, &str); 5] =
    [(2, "MPI_INTEGER1"), (4, "MPI_INTEGER2"), (9, "MPI_INTEGER4"), (18, "MPI_INTEGER8"), (38, "MPI_INTEGER16")];

/// Which of the Fortran 90 types.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    Real { digits: i32, range: i32 },
    Complex { digits: i32, range: i32 },
    Integer { range: i32 },
}

impl Kind {
    fn basic(self) -> Result<&'static Basic> {
        let name = match self {
            Kind::Real { digits, range } | Kind::Complex { digits, range } => {
                if digits == UNDEFINED && range == UNDEFINED {
                    return Err(Error::new(
                        Class::ARG,
                        "digits and range are both undefined: say at least one of them",
                    ));
                }
                let fits = |&&(has_digits, has_range, ..): &&(i32, i32, &str, &str)| {
                    digits <= has_digits && range <= has_range
                };
                let is_real = matches!(self, Kind::Real { .. });
                REALS.iter().find(fits).map(|&(.., real, complex)| if is_real { real } else { complex })
            }
            Kind::Integer { range } => {
                INTEGERS.iter().find(|(has_range, _)| range <= *has_range).map(|&(_, name)| name)
            }
        };
        let text =
            || format!("no Fortran kind for {self:?}: reals have up to 33 digits and range 4931, integers range 38");
        name.map(named).ok_or_else(|| Error::new(Class::ARG, text()))
    }

    /// The type; `made` keeps those that exist, since equal arguments must give the same handle.
    pub fn typemap(self) -> Result<Typemap> {
        let basic = Arc::new(Typemap::basic(self.basic()?));
        let recorder = |combiner| Recorder::new(combiner, false);
        let recorder = match self {
            Kind::Real { digits, range } => recorder(Combiner::F90Real).integer(digits).integer(range),
            Kind::Complex { digits, range } => recorder(Combiner::F90Complex).integer(digits).integer(range),
            Kind::Integer { range } => recorder(Combiner::F90Integer).integer(range),
        };
        Ok(Typemap::renamed(&basic, recorder.done()))
    }
}

/// Handles of the kinds that were asked for. They are never freed.
static KINDS: Mutex<Vec<(Kind, i32)>> = Mutex::new(Vec::new());

/// The handle of this kind, made by `make` at the first time.
pub fn handle_of(kind: Kind, make: impl FnOnce(Typemap) -> i32) -> Result<i32> {
    let mut kinds = KINDS.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((_, handle)) = kinds.iter().find(|(known, _)| *known == kind) {
        return Ok(*handle);
    }
    let handle = make(kind.typemap()?);
    kinds.push((kind, handle));
    Ok(handle)
}

/// Whether this handle came from [`handle_of`].
pub fn is_kind(handle: i32) -> bool {
    KINDS.lock().unwrap_or_else(PoisonError::into_inner).iter().any(|(_, known)| *known == handle)
}

/// The Fortran type of this class that takes so many bytes.
pub fn of_size(class: i32, bytes: i32) -> Result<&'static Basic> {
    let is_class = |form: Form| match form {
        Form::Floating(_) => class == TYPECLASS_REAL,
        Form::Integer(_) => class == TYPECLASS_INTEGER,
        Form::Complex(_) => class == TYPECLASS_COMPLEX,
        _ => false,
    };
    if ![TYPECLASS_REAL, TYPECLASS_INTEGER, TYPECLASS_COMPLEX].contains(&class) {
        return Err(Error::new(Class::ARG, format!("type class {class}: one of REAL, INTEGER and COMPLEX")));
    }
    // The names end in the size.
    let sized =
        |basic: &&Basic| basic.name.ends_with(|c: char| c.is_ascii_digit()) && basic.language == Language::Fortran;
    let mut of_class = BASICS.iter().filter(sized).filter(|basic| is_class(basic.form));
    of_class
        .find(|basic| i64::from(bytes) == basic.size() as i64)
        .ok_or_else(|| Error::new(Class::ARG, format!("no type of class {class} takes {bytes} bytes")))
}

/// The predefined pair with exactly these parts, if there is one.
pub fn pair_of(value: &Basic, place: &Basic) -> Option<&'static Basic> {
    PAIRS.iter().find(|(parts, _)| *parts == (value.name, place.name)).map(|(_, name)| named(name))
}

const PAIRS: [((&str, &str), &str); 9] = [
    (("MPI_FLOAT", "MPI_INT"), "MPI_FLOAT_INT"),
    (("MPI_DOUBLE", "MPI_INT"), "MPI_DOUBLE_INT"),
    (("MPI_LONG", "MPI_INT"), "MPI_LONG_INT"),
    (("MPI_SHORT", "MPI_INT"), "MPI_SHORT_INT"),
    (("MPI_LONG_DOUBLE", "MPI_INT"), "MPI_LONG_DOUBLE_INT"),
    (("MPI_INT", "MPI_INT"), "MPI_2INT"),
    (("MPI_INTEGER", "MPI_INTEGER"), "MPI_2INTEGER"),
    (("MPI_REAL", "MPI_REAL"), "MPI_2REAL"),
    (("MPI_DOUBLE_PRECISION", "MPI_DOUBLE_PRECISION"), "MPI_2DOUBLE_PRECISION"),
];
