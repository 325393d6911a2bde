//! Users and groups as the system's databases know them, and the groups of whoever is at the other end of a local connection. Asked by the
//! privileged helper before it becomes somebody, and by psid about its clients. Answers may come over a network (LDAP), so every
//! question blocks. Nothing is kept: who was removed a moment ago is not found.

use std::ffi::{CStr, CString, c_char};
use std::io;
use std::os::fd::{AsFd, AsRawFd as _};

/// One user.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Account {
    pub name: String,
    pub uid: u32,
    pub gid: u32,
    pub home: CString,
    pub shell: CString,
}

/// Text of one entry at most; a group of thousands of members has long ones.
const TEXT_BYTES_MAX: usize = 4 << 20;
/// Linux' own limit.
const GROUPS_MAX: usize = 65_536;

/// The user with this number.
///
/// # Errors
/// When the database can't be asked.
pub fn by_number(uid: u32) -> io::Result<Option<Account>> {
    user(|entry, text, found| {
        // SAFETY: `entry`, `text` and `found` are valid and ours; the length is that of `text`.
        unsafe { libc::getpwuid_r(uid, entry, text.as_mut_ptr(), text.len(), found) }
    })
}

/// The user with this name.
///
/// # Errors
/// When the database can't be asked.
pub fn by_name(name: &str) -> io::Result<Option<Account>> {
    let Ok(name) = CString::new(name) else { return Ok(None) };
    user(|entry, text, found| {
        // SAFETY: as in `by_number`; the name is terminated and lives until the call returns.
        unsafe { libc::getpwnam_r(name.as_ptr(), entry, text.as_mut_ptr(), text.len(), found) }
    })
}

/// The number of the group with this name.
///
/// # Errors
/// When the database can't be asked.
pub fn group_by_name(name: &str) -> io::Result<Option<u32>> {
    let Ok(name) = CString::new(name) else { return Ok(None) };
    with_room(|text| {
        // SAFETY: an entry of pointers and integers may be all zero.
        let mut entry: libc::group = unsafe { std::mem::zeroed() };
        let mut found = std::ptr::null_mut();
        // SAFETY: all pointers are to valid memory of ours, and the length is that of `text`.
        let error =
            unsafe { libc::getgrnam_r(name.as_ptr(), &raw mut entry, text.as_mut_ptr(), text.len(), &raw mut found) };
        (error, (!found.is_null()).then_some(entry.gr_gid))
    })
}

/// All groups that this user is in, the one of its entry among them.
///
/// # Errors
/// When there are too many.
pub fn groups_of(account: &Account) -> io::Result<Vec<u32>> {
    let name = CString::new(account.name.as_str()).map_err(|_| io::ErrorKind::InvalidInput)?;
    let mut groups = vec![0; 64];
    loop {
        let mut count = groups.len() as libc::c_int;
        // SAFETY: the name is terminated, `groups` has room for `count` numbers, and both are ours.
        let result = unsafe { libc::getgrouplist(name.as_ptr(), account.gid, groups.as_mut_ptr(), &raw mut count) };
        if result >= 0 {
            groups.truncate(count.max(0) as usize);
            return Ok(groups);
        }
        if groups.len() >= GROUPS_MAX {
            return Err(io::Error::other(format!("user {} is in more than {GROUPS_MAX} groups", account.name)));
        }
        groups.resize((groups.len() * 2).max(count.max(0) as usize).min(GROUPS_MAX), 0);
    }
}

/// The groups, without the first one, of the process at the other end of a local connection, as they were when it connected.
///
/// # Errors
/// When the kernel does not say.
pub fn groups_of_peer(socket: impl AsFd) -> io::Result<Vec<u32>> {
    let mut groups = vec![0u32; 64];
    loop {
        let mut bytes = size_of_val(&*groups) as libc::socklen_t;
        // SAFETY: `groups` has room for so many bytes; the kernel writes whole numbers into it and their length into `bytes`.
        let result = unsafe {
            libc::getsockopt(
                socket.as_fd().as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_PEERGROUPS,
                groups.as_mut_ptr().cast(),
                &raw mut bytes,
            )
        };
        if result == 0 {
            groups.truncate(bytes as usize / size_of::<u32>());
            return Ok(groups);
        }
        let error = io::Error::last_os_error();
        if error.raw_os_error() != Some(libc::ERANGE) || groups.len() >= GROUPS_MAX {
            return Err(error);
        }
        groups.resize((groups.len() * 2).max(bytes as usize / size_of::<u32>()).min(GROUPS_MAX), 0);
    }
}

fn user(
    mut ask: impl FnMut(*mut libc::passwd, &mut [c_char], *mut *mut libc::passwd) -> i32,
) -> io::Result<Option<Account>> {
    with_room(|text| {
        // SAFETY: an entry of pointers and integers may be all zero.
        let mut entry: libc::passwd = unsafe { std::mem::zeroed() };
        let mut found = std::ptr::null_mut();
        let error = ask(&raw mut entry, text, &raw mut found);
        let account = (error == 0 && !found.is_null()).then(|| {
            let own = |at: *const c_char| {
                if at.is_null() {
                    return c"".to_owned();
                }
                // SAFETY: the call has filled the entry with terminated strings in `text`, which lives until we have copied them.
                unsafe { CStr::from_ptr(at) }.to_owned()
            };
            Account {
                name: own(entry.pw_name).to_string_lossy().into_owned(),
                uid: entry.pw_uid,
                gid: entry.pw_gid,
                home: own(entry.pw_dir),
                shell: own(entry.pw_shell),
            }
        });
        (error, account)
    })
}

/// Asks again with more room for text as long as it does not suffice.
fn with_room<T>(mut ask: impl FnMut(&mut [c_char]) -> (i32, Option<T>)) -> io::Result<Option<T>> {
    let mut text = vec![0; 4096];
    loop {
        match ask(&mut text) {
            (0, found) => return Ok(found),
            (libc::EINTR, _) => {}
            (libc::ERANGE, _) if text.len() < TEXT_BYTES_MAX => text.resize(text.len() * 4, 0),
            // Some databases say so of a number or name that they don't have.
            (libc::ENOENT | libc::ESRCH | libc::EBADF | libc::EPERM, _) => return Ok(None),
            (error, _) => return Err(io::Error::from_raw_os_error(error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;

    #[test]
    fn root_is_found_by_number_and_by_name_and_nobody_else_is() {
        let root = by_number(0).unwrap().unwrap();
        assert_eq!((root.name.as_str(), root.gid), ("root", 0));
        assert_eq!(by_name("root").unwrap(), Some(root.clone()));
        assert_eq!(group_by_name("root").unwrap(), Some(0));
        assert!(groups_of(&root).unwrap().contains(&0));
        assert_eq!(by_name("nobody-has-this-name").unwrap(), None);
        assert_eq!(by_number(0x7fff_1234).unwrap(), None);
        assert_eq!((by_name("a\0b").unwrap(), group_by_name("nobody-has-this-name").unwrap()), (None, None));
    }

    #[test]
    fn the_groups_of_the_other_end_are_those_of_this_process() {
        let (one, _other) = UnixStream::pair().unwrap();
        let own: Vec<u32> = rustix::process::getgroups().unwrap().into_iter().map(|group| group.as_raw()).collect();
        assert_eq!(groups_of_peer(&one).unwrap(), own);
    }
}
