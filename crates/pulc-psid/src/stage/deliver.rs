//! Putting a file that a job has left where its user wants it: whole, or not at all, and on disk when it is said to be there. Called by
//! `give_back`, on threads that may block. Until it is whole it has no name where the kernel can do that, so that a daemon that is killed
//! leaves nothing; it takes the place of a file that is there already in one step.

use crate::error::shortage;
use pulc_control::stage::may_replace;
use rustix::fs::{AtFlags, CWD, Mode, OFlags, linkat, openat};
use std::fs::{self, File, Permissions};
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// Between two words that a copy goes on.
const COPIED_AT_A_TIME: u64 = 16 << 20;
/// Copies that are on their way have names of their own.
static NEXT: AtomicU64 = AtomicU64::new(0);

/// Puts a copy of `from` in its place; `mode` are its permission bits, if not those of `from`.
///
/// # Errors
/// One line; what was there before is there then.
///
/// # Blocking
/// Until the copy is on disk.
pub fn deliver(from: &Path, target: &Path, mode: Option<u32>) -> Result<(), String> {
    let read = |error: io::Error| shortage(&error);
    // Not a FIFO that nobody opens at the other end.
    if !fs::metadata(from).map_err(read)?.is_file() {
        return Err("it is not a regular file".to_owned());
    }
    let mut source = File::open(from).map_err(read)?;
    let mode = mode.map_or_else(|| source.metadata().map(|data| data.permissions().mode()), Ok).map_err(read)?;
    deliver_from(&mut source, target, mode, &|| ())
}

/// The same out of an open file. `tick` is called while a long one is written.
///
/// # Errors
/// One line; what was there before is there then.
///
/// # Blocking
/// Until the copy is on disk.
pub fn deliver_from(source: &mut File, target: &Path, mode: u32, tick: &dyn Fn()) -> Result<(), String> {
    let failed = |error: io::Error| format!("cannot write {}: {}", target.display(), shortage(&error));
    let target = replaced(target)?;
    let directory = target.parent().ok_or_else(|| format!("{} is no name of a file", target.display()))?;
    fs::create_dir_all(directory).map_err(failed)?;
    let name = format!(".pulc-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
    let passing = directory.join(name);
    let settle = |own: &File, named: bool| {
        own.set_permissions(Permissions::from_mode(mode & 0o777))?;
        own.sync_all()?;
        if !named {
            let link = format!("/proc/self/fd/{}", own.as_raw_fd());
            linkat(CWD, link, CWD, &passing, AtFlags::SYMLINK_FOLLOW)?;
        }
        fs::rename(&passing, &target)?;
        File::open(directory)?.sync_all()
    };
    let mut write = || {
        let (mut own, named) = open(directory, &passing)?;
        copy_with(source, &mut own, tick)?;
        settle(&own, named)
    };
    write().map_err(|error| {
        let _ = fs::remove_file(&passing);
        failed(error)
    })
}

/// Copies what is left in a file, with a word in between.
pub(super) fn copy_with(source: &mut File, own: &mut File, tick: &dyn Fn()) -> io::Result<()> {
    while io::copy(&mut io::Read::take(&mut *source, COPIED_AT_A_TIME), own)? == COPIED_AT_A_TIME {
        tick();
    }
    Ok(())
}

/// What is to be replaced: a link's own place stays a link.
fn replaced(target: &Path) -> Result<PathBuf, String> {
    let path = match fs::symlink_metadata(target) {
        Ok(data) if data.is_symlink() => fs::canonicalize(target)
            .map_err(|error| format!("{} is a link that leads nowhere: {error}", target.display()))?,
        Ok(_) => target.to_owned(),
        Err(_) => return Ok(target.to_owned()),
    };
    may_replace(&path)?;
    Ok(path)
}

/// A file without a name, or, where that can't be had, with one in passing.
fn open(directory: &Path, passing: &Path) -> io::Result<(File, bool)> {
    let flags = OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC;
    match openat(CWD, directory, flags, Mode::RUSR | Mode::WUSR) {
        Ok(file) => Ok((file.into(), false)),
        Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::ISDIR | rustix::io::Errno::INVAL) => {
            File::options().write(true).create_new(true).open(passing).map(|file| (file, true))
        }
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stage::tests::directory;
    use std::os::unix::fs::symlink;

    #[test]
    fn a_file_takes_its_place_whole_and_nothing_is_left_in_passing() {
        let root = directory("deliver");
        let from = root.join("from");
        fs::write(&from, "new").unwrap();
        let target = root.join("sub/target");
        deliver(&from, &target, Some(0o640)).unwrap();
        assert_eq!(fs::read(&target).unwrap(), b"new");
        assert_eq!(fs::metadata(&target).unwrap().permissions().mode() & 0o777, 0o640);
        // In the place of what is there, through a link too.
        fs::write(&from, "newer").unwrap();
        symlink("sub/target", root.join("link")).unwrap();
        deliver(&from, &root.join("link"), None).unwrap();
        assert_eq!(fs::read(&target).unwrap(), b"newer");
        assert!(fs::symlink_metadata(root.join("link")).unwrap().is_symlink());
        assert_eq!(fs::read_dir(root.join("sub")).unwrap().count(), 1);
        fs::remove_dir_all(root).unwrap();
    }

    #[test]
    fn what_cannot_take_its_place_leaves_what_was_there() {
        let root = directory("not-delivered");
        let from = root.join("from");
        fs::write(&from, "new").unwrap();
        let refused = |target: &str| deliver(&from, &root.join(target), None).unwrap_err();
        fs::create_dir(root.join("d")).unwrap();
        assert!(refused("d").contains("is not a regular file"));
        symlink("nowhere", root.join("link")).unwrap();
        assert!(refused("link").contains("leads nowhere"));
        assert!(refused("from/x").contains("cannot write"));
        assert!(deliver(&root.join("d"), &root.join("x"), None).unwrap_err().contains("not a regular file"));
        fs::write(root.join("protected"), "old").unwrap();
        fs::set_permissions(root.join("protected"), Permissions::from_mode(0o400)).unwrap();
        assert!(refused("protected").contains("is not to be written to"));
        assert_eq!(fs::read(root.join("protected")).unwrap(), b"old");
        assert_eq!(fs::read_dir(&root).unwrap().count(), 4);
        fs::remove_dir_all(root).unwrap();
    }
}
