//! The directory of a job on a node: its program and libraries as links into the cache, its inputs as copies of its own. Made before the
//! keeper is started, removed when nothing of the job is left. A lock, which the keeper holds, tells a later daemon that a job still uses
//! its directory. Blocks: called on threads for that.
//!
//! ```text
//! bin/NAME   the program
//! lib/NAME   libraries, put in front of LD_LIBRARY_PATH
//! work/      inputs; the job's working directory, if it has one of its own
//! ```

use super::store::make_directory;
use crate::error::shortage;
use pulc_base::{JobId, NodeId, log};
use pulc_control::stage::{Role, Stage, StageFile, as_path};
use rustix::fs::{FlockOperation, flock};
use std::fs::{self, File, Permissions};
use std::io;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};

/// Where a job finds on this node what it brought along. What is absent is where the job says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Placed {
    /// All that was made for it.
    pub room: Option<PathBuf>,
    pub program: Option<PathBuf>,
    pub libraries: Option<PathBuf>,
    pub directory: Option<PathBuf>,
}

/// Where the directory of a job on a node is.
pub fn room_of(root: &Path, job: JobId, node: NodeId) -> PathBuf {
    root.join("jobs").join(format!("{job}-{node}"))
}

/// Makes the directory of a job on a node. `found` tells for each file of the stage where it is here.
///
/// # Errors
/// One line; nothing is left then.
pub fn place(root: &Path, job: JobId, node: NodeId, stage: &Stage, found: &[PathBuf]) -> Result<Placed, String> {
    let all = || stage.files.iter().zip(found);
    let moved = |file: &StageFile, path: &Path| path != as_path(&file.path);
    let program = all().find(|(file, path)| file.role == Role::Program && moved(file, path));
    // A program that is elsewhere would not find by `$ORIGIN` what is where it should be.
    let wants_libraries =
        |(file, path): &(&StageFile, &PathBuf)| file.role == Role::Library && (program.is_some() || moved(file, path));
    if program.is_none() && !stage.directory && !all().any(|one| wants_libraries(&one)) {
        return Ok(Placed::default());
    }
    let room = room_of(root, job, node);
    let mut placed = Placed { room: Some(room.clone()), ..Placed::default() };
    let mut fill = || -> Result<(), String> {
        let failed = |path: &Path, error: io::Error| format!("cannot make {}: {}", path.display(), shortage(&error));
        // The last job of before may take what is above it away in the same moment.
        let made =
            (0..10).map(|_| make_directory(&room)).find(|made| !gone(made)).unwrap_or_else(|| make_directory(&room));
        made.map_err(|error| failed(&room, error))?;
        let directory = |name: &str| {
            let path = room.join(name);
            make_directory(&path).map_err(|error| failed(&path, error)).map(|()| path)
        };
        if let Some((file, path)) = program {
            let own = directory("bin")?.join(as_path(&file.name));
            link(root, path, &own).map_err(|error| failed(&own, error))?;
            placed.program = Some(own);
        }
        for (file, path) in all().filter(wants_libraries) {
            let libraries = directory("lib")?;
            let own = libraries.join(as_path(&file.name));
            let made = if moved(file, path) { link(root, path, &own) } else { symlink(path, &own) };
            made.map_err(|error| failed(&own, error))?;
            placed.libraries = Some(libraries);
        }
        if stage.directory {
            let work = directory("work")?;
            for (file, path) in all().filter(|(file, _)| file.role == Role::Input) {
                let own = work.join(as_path(&file.name));
                let above = own.parent().map_or(Ok(()), make_directory);
                above.and_then(|()| copy(path, &own, file.mode)).map_err(|error| failed(&own, error))?;
            }
            placed.directory = Some(work);
        }
        Ok(())
    };
    match fill() {
        Ok(()) => Ok(placed),
        Err(why) => {
            remove(&room);
            Err(why)
        }
    }
}

fn gone(made: &io::Result<()>) -> bool {
    made.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
}

/// A link into the cache; a copy where links can't be had, and of a user's file, which may change.
fn link(root: &Path, from: &Path, to: &Path) -> io::Result<()> {
    match from.starts_with(root).then(|| fs::hard_link(from, to)) {
        Some(Ok(())) => Ok(()),
        Some(Err(error)) if error.kind() == io::ErrorKind::AlreadyExists => Err(error),
        _ => copy(from, to, 0o500),
    }
}

/// A copy of the job's own, which it may write to whatever the original says.
fn copy(from: &Path, to: &Path, mode: u32) -> io::Result<()> {
    let mut source = File::open(from)?;
    let mut own = File::options().write(true).create_new(true).open(to)?;
    io::copy(&mut source, &mut own)?;
    own.set_permissions(Permissions::from_mode(mode & 0o777 | 0o600))
}

/// Removes what was made for a job, also what the job has made unreadable.
pub fn remove(room: &Path) {
    if fs::remove_dir_all(room).is_err() && room.exists() {
        remove_by_force(room);
    }
    // What is empty now was made for it: all of it, where nothing else came to this machine.
    let mut above = room.ancestors().skip(1).take(3);
    while above.next().is_some_and(|above| fs::remove_dir(above).is_ok()) {}
}

fn remove_by_force(room: &Path) {
    let open_up = |path: &Path| {
        let _ = fs::set_permissions(path, Permissions::from_mode(0o700));
    };
    let mut left = vec![room.to_owned()];
    while let Some(directory) = left.pop() {
        open_up(&directory);
        let entries = fs::read_dir(&directory).into_iter().flatten().flatten();
        // Not through links of the job's into other places.
        left.extend(
            entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())).map(|entry| entry.path()),
        );
    }
    if let Err(error) = fs::remove_dir_all(room)
        && room.exists()
    {
        log!(Warn, "stage", "{} cannot be removed: {error}", room.display());
    }
}

/// Says that a job uses its directory, as long as what this returns is open.
///
/// # Errors
/// When it can't be opened or locked.
pub fn hold(room: &Path) -> io::Result<Held> {
    let directory = File::open(room)?;
    flock(&directory, FlockOperation::NonBlockingLockShared)?;
    Ok(Held { room: room.to_owned(), _lock: directory })
}

/// The directory of a job in use.
pub struct Held {
    room: PathBuf,
    _lock: File,
}

impl Held {
    /// At the end of the job.
    pub fn remove(self) {
        remove(&self.room);
    }
}

/// Removes directories of jobs that nobody uses any more: those of an earlier life of the daemon.
pub fn sweep(root: &Path) {
    for entry in fs::read_dir(root.join("jobs")).into_iter().flatten().flatten() {
        let free = File::open(entry.path())
            .is_ok_and(|directory| flock(&directory, FlockOperation::NonBlockingLockExclusive).is_ok());
        if free {
            remove(&entry.path());
        }
    }
}

/// Removes what processes have left in the system's directory for temporary files that had a psid inside and were killed.
pub fn sweep_passing() {
    for entry in fs::read_dir(std::env::temp_dir()).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let pid = name.to_str().and_then(|name| name.strip_prefix(&passing_prefix())?.parse::<u32>().ok());
        if pid.is_some_and(|pid| !Path::new(&format!("/proc/{pid}")).exists()) {
            let rooms = fs::read_dir(entry.path()).into_iter().flatten().flatten();
            rooms.for_each(|room| sweep(&room.path()));
            let _ = fs::remove_dir(entry.path());
        }
    }
}

/// Where a psid inside of this process makes directories of jobs.
pub fn passing() -> PathBuf {
    std::env::temp_dir().join(format!("{}{}", passing_prefix(), std::process::id()))
}

fn passing_prefix() -> String {
    format!("pulc-stage-{}-", rustix::process::geteuid().as_raw())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stage::tests::{directory, file};

    #[test]
    fn a_job_gets_links_and_copies_of_its_own_and_all_of_it_goes() {
        let root = directory("place");
        let cached = root.join("cached");
        fs::write(&cached, "text").unwrap();
        fs::create_dir(root.join("files")).unwrap();
        let files = vec![
            file(Role::Program, "prog", "/home/prog"),
            file(Role::Library, "liba.so", "/home/liba.so"),
            file(Role::Library, "libb.so", "/etc/passwd"),
            file(Role::Input, "deep/input", "/home/input"),
        ];
        let stage = Stage { directory: true, files, ..Stage::default() };
        let found = [&cached, &cached, Path::new("/etc/passwd"), &cached].map(Path::to_owned);
        let placed = place(&root, JobId(7), NodeId([1; 16]), &stage, &found).unwrap();
        let room = placed.room.unwrap();
        assert_eq!(placed.program, Some(room.join("bin/prog")));
        assert_eq!(fs::read_link(room.join("lib/libb.so")).unwrap(), Path::new("/etc/passwd"));
        fs::write(room.join("work/deep/input"), "changed").unwrap();
        assert_eq!(fs::read(&cached).unwrap(), b"text");
        assert_eq!(fs::metadata(room.join("work/deep/input")).unwrap().permissions().mode() & 0o777, 0o640);
        let held = hold(&room).unwrap();
        sweep(&root);
        assert!(room.exists());
        drop(held);
        fs::set_permissions(room.join("work/deep"), Permissions::from_mode(0o000)).unwrap();
        sweep(&root);
        assert!(!room.exists() && !root.join("jobs").exists() && cached.exists());
        fs::remove_dir_all(root).unwrap();
    }

    #[test]
    fn where_everything_is_in_its_place_nothing_is_made() {
        let root = directory("nothing");
        let files = vec![file(Role::Program, "sh", "/bin/sh"), file(Role::Library, "x", "/etc/passwd")];
        let found = [PathBuf::from("/bin/sh"), PathBuf::from("/etc/passwd")];
        let stage = Stage { directory: false, files, ..Stage::default() };
        assert_eq!(place(&root, JobId(7), NodeId([1; 16]), &stage, &found), Ok(Placed::default()));
        assert!(!root.join("jobs").exists());
        fs::remove_dir_all(root).unwrap();
    }

    #[test]
    fn a_place_that_cannot_be_made_leaves_nothing() {
        let root = directory("fails");
        let stage = Stage { directory: true, files: vec![file(Role::Input, "a", "/home/a")], ..Stage::default() };
        let why = place(&root, JobId(7), NodeId([1; 16]), &stage, &[PathBuf::from("/no/such")]).unwrap_err();
        assert!(why.contains("work/a") && why.contains("No such file"), "{why}");
        // There was nothing else.
        assert!(!root.exists());
    }
}
