//! Hints: ordered keys with values. May be used before MPI is initialised and after its end.
//! Source: MPI-5.0, chapter 10.

use crate::consts::{MAX_INFO_KEY, MAX_INFO_VAL};
use crate::error::{Class, Error, Result};
use crate::handle::{Info, Kind};
use crate::table::Table;
use std::sync::{Arc, Mutex, PoisonError};

type Pairs = Vec<(String, String)>;

static INFOS: Table<Mutex<Pairs>> = Table::new(Kind::Info);

fn with<R>(info: Info, use_it: impl FnOnce(&mut Pairs) -> Result<R>) -> Result<R> {
    let found = if info == Info::ENV { Some(Arc::new(Mutex::new(environment()))) } else { INFOS.get(info.0) };
    let found = found.ok_or_else(|| Error::new(Class::INFO, format!("{:#010x} is no info object", info.0)))?;
    let mut pairs = found.lock().unwrap_or_else(PoisonError::into_inner);
    use_it(&mut pairs)
}

/// What is known about how this program was started.
fn environment() -> Pairs {
    let mut arguments = std::env::args_os().map(|word| word.to_string_lossy().into_owned());
    let mut pairs = Pairs::new();
    if let Some(command) = arguments.next() {
        pairs.push(("command".into(), command));
    }
    let rest: Vec<String> = arguments.collect();
    if !rest.is_empty() {
        pairs.push(("argv".into(), rest.join(" ")));
    }
    if let Ok(directory) = std::env::current_dir() {
        pairs.push(("wdir".into(), directory.to_string_lossy().into_owned()));
    }
    if let Some(process) = crate::world::attached() {
        pairs.push(("maxprocs".into(), process.boot().tasks.len().to_string()));
    }
    pairs.push(("thread_level".into(), "MPI_THREAD_MULTIPLE".into()));
    pairs
}

pub fn info_create() -> Result<Info> {
    Ok(Info(INFOS.insert(Mutex::new(Pairs::new()))))
}

/// A new object with what is known about how this program was started.
pub fn info_create_env() -> Result<Info> {
    Ok(Info(INFOS.insert(Mutex::new(environment()))))
}

pub fn info_dup(info: Info) -> Result<Info> {
    let copy = with(info, |pairs| Ok(pairs.clone()))?;
    Ok(Info(INFOS.insert(Mutex::new(copy))))
}

/// The same for hints that may be none at all.
pub(crate) fn copy_of_any(info: Info) -> Result<Info> {
    if info.is_null() { info_create() } else { info_dup(info) }
}

pub fn info_free(info: &mut Info) -> Result<()> {
    if INFOS.remove(info.0).is_none() {
        return Err(Error::new(Class::INFO, format!("{:#010x} is no info object that can be freed", info.0)));
    }
    *info = Info::NULL;
    Ok(())
}

fn check_key(key: &str) -> Result<()> {
    if key.is_empty() || key.len() > MAX_INFO_KEY {
        let text = format!("a key of {} bytes: keys have 1 to {MAX_INFO_KEY}", key.len());
        return Err(Error::new(Class::INFO_KEY, text));
    }
    Ok(())
}

pub fn info_set(info: Info, key: &str, value: &str) -> Result<()> {
    check_key(key)?;
    if value.is_empty() || value.len() > MAX_INFO_VAL {
        let text = format!("a value of {} bytes: values have 1 to {MAX_INFO_VAL}", value.len());
        return Err(Error::new(Class::INFO_VALUE, text));
    }
    if info == Info::ENV {
        return Err(Error::new(Class::INFO, "MPI_INFO_ENV cannot be changed"));
    }
    with(info, |pairs| {
        match pairs.iter_mut().find(|(known, _)| known == key) {
            Some((_, old)) => value.clone_into(old),
            None => pairs.push((key.to_owned(), value.to_owned())),
        }
        Ok(())
    })
}

pub fn info_get(info: Info, key: &str) -> Result<Option<String>> {
    check_key(key)?;
    with(info, |pairs| Ok(pairs.iter().find(|(known, _)| known == key).map(|(_, value)| value.clone())))
}

pub fn info_get_valuelen(info: Info, key: &str) -> Result<Option<usize>> {
    Ok(info_get(info, key)?.map(|value| value.len()))
}

pub fn info_get_nkeys(info: Info) -> Result<i32> {
    with(info, |pairs| Ok(pairs.len() as i32))
}

pub fn info_get_nthkey(info: Info, n: i32) -> Result<String> {
    with(info, |pairs| {
        let found = usize::try_from(n).ok().and_then(|n| pairs.get(n));
        found
            .map(|(key, _)| key.clone())
            .ok_or_else(|| Error::new(Class::ARG, format!("key {n} of an info object with {}", pairs.len())))
    })
}

pub fn info_delete(info: Info, key: &str) -> Result<()> {
    check_key(key)?;
    with(info, |pairs| match pairs.iter().position(|(known, _)| known == key) {
        Some(at) => {
            pairs.remove(at);
            Ok(())
        }
        None => Err(Error::new(Class::INFO_NOKEY, format!("there is no key {key:?}"))),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_keep_their_order_and_values_are_replaced() {
        let mut info = info_create().expect("an object");
        info_set(info, "b", "1").expect("set");
        info_set(info, "a", "2").expect("set");
        info_set(info, "b", "3").expect("set again");
        assert_eq!(info_get_nthkey(info, 0).as_deref(), Ok("b"));
        assert_eq!(info_get(info, "b").map(Option::unwrap_or_default).as_deref(), Ok("3"));
        assert_eq!(info_delete(info, "c").map_err(|error| error.class), Err(Class::INFO_NOKEY));
        info_free(&mut info).expect("free");
        assert_eq!(info, Info::NULL);
        assert!(info_get_nkeys(Info::NULL).is_err());
    }
}
