//! Root's file of who may have processes on this machine, and who may do what only operators may. Read anew for every question, so that a
//! change counts at once; read by the helper, which refuses, and by psid, which wants to know operators.
//!
//! ```text
//! # everybody from this number on, where no user and no group is named
//! from 1000
//! alice
//! @physics
//! operators @staff
//! ```

use crate::places::is_roots_alone;
use pulc_hal::os::account::{self, Account};
use std::io;
use std::path::Path;

/// Where it is, unless `pulc up --users` says otherwise.
pub const USERS_FILE: &str = "/etc/pulc/users";

/// Users below this number are the system's own.
const FROM: u32 = 1000;
/// Whose processes nobody answers for: `nobody` as the kernel, and as older systems know it.
const NOBODY: [u32; 3] = [65_534, 65_535, u32::MAX];
const FILE_BYTES_MAX: u64 = 1 << 20;

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Permits {
    from: u32,
    /// If both are empty, everybody.
    users: Vec<String>,
    groups: Vec<String>,
    operators: Vec<String>,
}

impl Default for Permits {
    fn default() -> Permits {
        Permits { from: FROM, users: Vec::new(), groups: Vec::new(), operators: Vec::new() }
    }
}

impl Permits {
    /// What the file says; without a file, everybody from number 1000 on may, and only root is an operator.
    ///
    /// # Errors
    /// When it can't be read, somebody else than root may write to it, or a line makes no sense: then nobody may.
    pub fn read(path: &Path) -> Result<Permits, String> {
        let failed = |error: io::Error| format!("cannot read {}: {error}", path.display());
        let file = match std::fs::File::open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Permits::default()),
            Err(error) => return Err(failed(error)),
        };
        let data = file.metadata().map_err(failed)?;
        if !data.is_file() || !is_roots_alone(&data) {
            return Err(format!("{} must be a file of root's that nobody else may write to", path.display()));
        }
        if data.len() > FILE_BYTES_MAX {
            return Err(format!("{} has {} bytes, at most {FILE_BYTES_MAX} are possible", path.display(), data.len()));
        }
        let text = io::read_to_string(file).map_err(failed)?;
        Permits::parse(&text).map_err(|why| format!("{}: {why}", path.display()))
    }

    fn parse(text: &str) -> Result<Permits, String> {
        let mut permits = Permits::default();
        for (number, line) in (1..).zip(text.lines()) {
            let words: Vec<&str> = line.split('#').next().unwrap_or_default().split_ascii_whitespace().collect();
            let wrong = || {
                format!("line {number}: {line:?} is none of `from NUMBER`, `operators @GROUP`, a user's name, `@GROUP`")
            };
            match words[..] {
                [] => {}
                ["from", number] => permits.from = number.parse().map_err(|_| wrong())?,
                ["operators", group] => {
                    permits
                        .operators
                        .push(group.strip_prefix('@').filter(|name| !name.is_empty()).ok_or_else(wrong)?.to_owned());
                }
                [name] => match name.strip_prefix('@') {
                    Some("") => return Err(wrong()),
                    Some(group) => permits.groups.push(group.to_owned()),
                    None => permits.users.push(name.to_owned()),
                },
                _ => return Err(wrong()),
            }
        }
        Ok(permits)
    }

    /// Whether this user may have processes here.
    ///
    /// # Errors
    /// One line that says why not.
    pub fn allow(&self, account: &Account, groups: &[u32]) -> Result<(), String> {
        let Account { name, uid, .. } = account;
        if *uid == 0 {
            return Err("nothing is run as root".to_owned());
        }
        if *uid < self.from || NOBODY.contains(uid) {
            return Err(format!(
                "nothing is run as user {name} ({uid}), which is one of the system's own (those begin below {})",
                self.from
            ));
        }
        if self.users.is_empty() && self.groups.is_empty() {
            return Ok(());
        }
        if self.users.contains(name) || is_in(groups, &self.groups)? {
            return Ok(());
        }
        Err(format!("user {name} ({uid}) is not on the list of those who may have processes on this machine"))
    }

    /// Whether who is in these groups may see and change what is others'. Root may in any case.
    pub fn is_operator(&self, uid: u32, groups: &[u32]) -> bool {
        uid == 0 || is_in(groups, &self.operators).unwrap_or(false)
    }
}

/// Whether one of these numbers is that of one of the named groups. Groups that are not there have no members.
fn is_in(numbers: &[u32], names: &[String]) -> Result<bool, String> {
    for name in names {
        let found =
            account::group_by_name(name).map_err(|error| format!("group {name} cannot be looked up: {error}"))?;
        if found.is_some_and(|number| numbers.contains(&number)) {
            return Ok(true);
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn account(name: &str, uid: u32) -> Account {
        Account { name: name.to_owned(), uid, gid: uid, home: c"/".into(), shell: c"/bin/sh".into() }
    }

    #[test]
    fn without_a_list_everybody_may_but_root_and_the_systems_own() {
        let permits = Permits::default();
        assert_eq!(permits.allow(&account("alice", 1000), &[]), Ok(()));
        for (name, uid) in [("root", 0), ("daemon", 1), ("www-data", 999), ("nobody", 65_534), ("none", u32::MAX)] {
            assert!(permits.allow(&account(name, uid), &[]).is_err(), "{name}");
        }
        assert!(permits.is_operator(0, &[]) && !permits.is_operator(1000, &[0, 1000]));
    }

    #[test]
    fn a_list_names_users_and_groups_and_never_root() {
        let text = "# who may\nfrom 500\nalice\n@root  # group 0 is there on every machine\noperators @root\nroot\n";
        let permits = Permits::parse(text).unwrap();
        assert_eq!(permits.allow(&account("alice", 700), &[]), Ok(()));
        assert_eq!(permits.allow(&account("bob", 700), &[7, 0]), Ok(()));
        let why = permits.allow(&account("bob", 700), &[7]).unwrap_err();
        assert!(why.contains("bob (700)") && why.contains("list"), "{why}");
        assert!(permits.allow(&account("alice", 499), &[0]).is_err());
        assert!(permits.allow(&account("root", 0), &[0]).is_err());
        assert!(permits.is_operator(700, &[0]) && !permits.is_operator(700, &[1]));
    }

    #[test]
    fn a_line_that_makes_no_sense_is_named_and_nobody_may() {
        for text in ["alice bob", "from many", "operators staff", "operators @", "@", "from"] {
            let parsed = Permits::parse(&format!("alice\n{text}\n"));
            if text == "from" {
                // A user may be called so.
                assert!(parsed.is_ok());
                continue;
            }
            let why = parsed.unwrap_err();
            assert!(why.starts_with("line 2: ") && why.contains(text), "{why}");
        }
    }
}
