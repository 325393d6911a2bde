//! Error classes and codes that programs add, and what any code means. May be used before MPI is initialised.
//! Source: MPI-5.0, 9.5.

use crate::error::{Class, Error, Result};
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Codes of the program begin behind those of the standard.
const FIRST: i32 = Class::LAST + 1;

struct Added {
    /// By code: its class (itself, for a class) and its text.
    codes: BTreeMap<i32, (i32, String)>,
}

static ADDED: Mutex<Added> = Mutex::new(Added { codes: BTreeMap::new() });

fn added() -> MutexGuard<'static, Added> {
    ADDED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The largest code in use.
pub fn last_used() -> i32 {
    added().codes.last_key_value().map_or(Class::LAST, |(code, _)| *code)
}

fn add(class: impl FnOnce(i32) -> i32) -> i32 {
    let mut added = added();
    let code = added.codes.last_key_value().map_or(FIRST, |(code, _)| code + 1);
    added.codes.insert(code, (class(code), String::new()));
    code
}

pub fn add_error_class() -> Result<i32> {
    Ok(add(|code| code))
}

pub fn add_error_code(class: i32) -> Result<i32> {
    error_class(class)?;
    Ok(add(|_| class))
}

pub fn add_error_string(code: i32, text: &str) -> Result<()> {
    match added().codes.get_mut(&code) {
        Some((_, known)) => {
            text.clone_into(known);
            Ok(())
        }
        None => Err(Error::new(Class::ARG, format!("code {code} was not added by the program"))),
    }
}

fn remove(code: i32, is_class: bool) -> Result<()> {
    let mut added = added();
    match added.codes.get(&code) {
        Some((_, text)) if !text.is_empty() => {
            Err(Error::new(Class::ARG, format!("code {code} still has a text: remove that first")))
        }
        Some(_) if added.codes.iter().any(|(other, (class, _))| *class == code && *other != code) => {
            Err(Error::new(Class::ARG, format!("class {code} still has codes: remove these first")))
        }
        Some((class, _)) if (*class == code) == is_class => {
            added.codes.remove(&code);
            Ok(())
        }
        _ => Err(Error::new(Class::ARG, format!("{code} was not added by the program"))),
    }
}

pub fn remove_error_class(class: i32) -> Result<()> {
    remove(class, true)
}

pub fn remove_error_code(code: i32) -> Result<()> {
    remove(code, false)
}

pub fn remove_error_string(code: i32) -> Result<()> {
    add_error_string(code, "")
}

pub fn error_class(code: i32) -> Result<i32> {
    if Class(code).text().is_some() {
        return Ok(code);
    }
    let known = added().codes.get(&code).map(|(class, _)| *class);
    known.ok_or_else(|| Error::new(Class::ARG, format!("{code} is no error code")))
}

pub fn error_string(code: i32) -> Result<String> {
    if let Some(text) = Class(code).text() {
        return Ok(text.to_owned());
    }
    let known = added().codes.get(&code).map(|(_, text)| text.clone());
    known.ok_or_else(|| Error::new(Class::ARG, format!("{code} is no error code")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_of_the_program_have_their_class_and_text() {
        let class = add_error_class().expect("there is room");
        let code = add_error_code(class).expect("the class is known");
        add_error_string(code, "no more tea").expect("the code is known");
        assert!(class > Class::LAST && code > class);
        assert_eq!((error_class(code), error_string(code).as_deref()), (Ok(class), Ok("no more tea")));
        assert_eq!(error_class(6), Ok(6));
        assert!(error_class(70_000).is_err());
        assert_eq!(last_used(), code);
    }
}
