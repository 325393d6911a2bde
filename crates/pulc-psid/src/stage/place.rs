//! The directory of a job on a node: its program and libraries as links into the cache, its inputs as copies of its own. Made before the
//! keeper is started, removed when nothing of the job is left. A lock, which the keeper holds, tells a later daemon that a job still uses
//! its directory. Blocks: called on threads for that.
//!
//! ```text
//! bin/NAME   the program
//! lib/NAME   libraries, put in front of LD_LIBRARY_PATH
//! work/      inputs; the job's working directory, if it has one of its own
//! ```

use super::deliver::copy_with;
use super::store::make_directory;
use crate::error::shortage;
use pulc_base::{JobId, NodeId, log};
use pulc_control::stage::{Role, Stage, StageFile, as_path};
use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};
use std::fs::{self, File, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _, symlink};
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

/// Where directories of jobs are, under the root of the cache, where one user has all.
pub const ROOMS: &str = "jobs";

/// Where the directory of a job on a node is.
pub fn room_of(rooms: &Path, job: JobId, node: NodeId) -> PathBuf {
    rooms.join(format!("{job}-{node}"))
}

/// One step of filling a job's directory; those above a path have been made by then, or are made by the step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Step {
    /// A link into the cache, or a copy that is not to be written to.
    Given {
        #[serde(with = "bytes_of")]
        from: PathBuf,
        #[serde(with = "bytes_of")]
        to: PathBuf,
    },
    /// A copy of the job's own.
    Copy {
        #[serde(with = "bytes_of")]
        from: PathBuf,
        #[serde(with = "bytes_of")]
        to: PathBuf,
        mode: u32,
    },
    Symlink {
        #[serde(with = "bytes_of")]
        from: PathBuf,
        #[serde(with = "bytes_of")]
        to: PathBuf,
    },
    Directory {
        #[serde(with = "bytes_of")]
        at: PathBuf,
    },
}

/// Paths are bytes, which need not be text.
mod bytes_of {
    use pulc_control::stage::as_path;
    use serde::{Deserialize as _, Deserializer, Serialize as _, Serializer};
    use std::path::{Path, PathBuf};

    pub fn serialize<S: Serializer>(path: &Path, serializer: S) -> Result<S::Ok, S::Error> {
        path.as_os_str().as_encoded_bytes().serialize(serializer)
    }

    pub fn deserialize<'a, D: Deserializer<'a>>(deserializer: D) -> Result<PathBuf, D::Error> {
        Vec::<u8>::deserialize(deserializer).map(|bytes| as_path(&bytes).to_owned())
    }
}

impl Step {
    /// The file that is copied.
    pub fn source(&self) -> Option<&Path> {
        match self {
            Step::Given { from, .. } | Step::Copy { from, .. } => Some(from),
            Step::Symlink { .. } | Step::Directory { .. } => None,
        }
    }

    fn target(&self) -> &Path {
        match self {
            Step::Given { to, .. } | Step::Copy { to, .. } | Step::Symlink { to, .. } => to,
            Step::Directory { at } => at,
        }
    }

    fn prepare(&self) -> io::Result<()> {
        self.target().parent().map_or(Ok(()), make_directory)
    }

    /// `root`: of the cache, where links into it may be made.
    ///
    /// # Errors
    /// One line.
    pub fn perform(&self, root: Option<&Path>) -> Result<(), String> {
        let made = self.prepare().and_then(|()| match self {
            Step::Given { from, to } => link(root, from, to),
            Step::Copy { from, to, mode } => copy(&mut File::open(from)?, to, *mode, &|| ()),
            Step::Symlink { from, to } => symlink(from, to),
            Step::Directory { at } => make_directory(at),
        });
        made.map_err(|error| failed(self.target(), &error))
    }

    /// With what is copied as open file.
    ///
    /// # Errors
    /// One line.
    pub fn perform_from(&self, file: &mut File, tick: &dyn Fn()) -> Result<(), String> {
        let made = self.prepare().and_then(|()| match self {
            Step::Given { to, .. } => copy(file, to, GIVEN, tick),
            Step::Copy { to, mode, .. } => copy(file, to, *mode, tick),
            Step::Symlink { .. } | Step::Directory { .. } => Err(io::ErrorKind::InvalidInput.into()),
        });
        made.map_err(|error| failed(self.target(), &error))
    }
}

/// What a program or library may be used for that a job is given.
const GIVEN: u32 = 0o500;

fn failed(path: &Path, error: &io::Error) -> String {
    format!("cannot make {}: {}", path.display(), shortage(error))
}

/// What is to be in the directory of a job on a node, and how it gets there. `found` tells for each file of the stage where it is here.
/// Without a room, if there is nothing to be made.
pub fn plan(room: &Path, stage: &Stage, found: &[PathBuf]) -> (Placed, Vec<Step>) {
    let all = || stage.files.iter().zip(found);
    let moved = |file: &StageFile, path: &Path| path != as_path(&file.path);
    let program = all().find(|(file, path)| file.role == Role::Program && moved(file, path));
    // A program that is elsewhere would not find by `$ORIGIN` what is where it should be.
    let wants_libraries =
        |(file, path): &(&StageFile, &PathBuf)| file.role == Role::Library && (program.is_some() || moved(file, path));
    if program.is_none() && !stage.directory && !all().any(|one| wants_libraries(&one)) {
        return (Placed::default(), Vec::new());
    }
    let (mut placed, mut steps) = (Placed { room: Some(room.to_owned()), ..Placed::default() }, Vec::new());
    if let Some((file, path)) = program {
        let own = room.join("bin").join(as_path(&file.name));
        steps.push(Step::Given { from: path.clone(), to: own.clone() });
        placed.program = Some(own);
    }
    for (file, path) in all().filter(wants_libraries) {
        let libraries = room.join("lib");
        let (from, to) = (path.clone(), libraries.join(as_path(&file.name)));
        steps.push(if moved(file, path) { Step::Given { from, to } } else { Step::Symlink { from, to } });
        placed.libraries = Some(libraries);
    }
    if stage.directory {
        let work = room.join("work");
        steps.push(Step::Directory { at: work.clone() });
        for (file, path) in all().filter(|(file, _)| file.role == Role::Input) {
            let to = work.join(as_path(&file.name));
            steps.push(Step::Copy { from: path.clone(), to, mode: file.mode });
        }
        placed.directory = Some(work);
    }
    (placed, steps)
}

/// Makes the directory of a job on a node.
///
/// # Errors
/// One line; nothing is left then.
pub fn place(root: &Path, job: JobId, node: NodeId, stage: &Stage, found: &[PathBuf]) -> Result<Placed, String> {
    let room = room_of(&root.join(ROOMS), job, node);
    let (placed, steps) = plan(&room, stage, found);
    if placed.room.is_none() {
        return Ok(placed);
    }
    // The last job of before may take what is above it away in the same moment.
    let made = (0..10).map(|_| make_directory(&room)).find(|made| !gone(made)).unwrap_or_else(|| make_directory(&room));
    let filled = made.map_err(|error| failed(&room, &error));
    match filled.and_then(|()| steps.iter().try_for_each(|step| step.perform(Some(root)))) {
        Ok(()) => Ok(placed),
        Err(why) => {
            remove(&room);
            Err(why)
        }
    }
}

/// A directory for a job where others make theirs.
///
/// # Errors
/// One line, also if there is one of this name: it may be anybody's.
pub fn make_room(room: &Path) -> Result<(), String> {
    fs::DirBuilder::new().mode(0o700).create(room).map_err(|error| failed(room, &error))
}

fn gone(made: &io::Result<()>) -> bool {
    made.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
}

/// A link into the cache; a copy where links can't be had, and of a user's file, which may change.
fn link(root: Option<&Path>, from: &Path, to: &Path) -> io::Result<()> {
    let in_cache = root.is_some_and(|root| from.starts_with(root));
    match in_cache.then(|| fs::hard_link(from, to)) {
        Some(Ok(())) => Ok(()),
        Some(Err(error)) if error.kind() == io::ErrorKind::AlreadyExists => Err(error),
        _ => copy(&mut File::open(from)?, to, GIVEN, &|| ()),
    }
}

/// A copy that its job may read and write, whatever the original says.
fn copy(source: &mut File, to: &Path, mode: u32, tick: &dyn Fn()) -> io::Result<()> {
    let mut own = File::options().write(true).create_new(true).open(to)?;
    copy_with(source, &mut own, tick)?;
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
    for entry in fs::read_dir(root.join(ROOMS)).into_iter().flatten().flatten() {
        sweep_one(&entry.path());
    }
}

/// The same of one.
pub fn sweep_one(room: &Path) {
    let free =
        File::open(room).is_ok_and(|directory| flock(&directory, FlockOperation::NonBlockingLockExclusive).is_ok());
    if free {
        remove(room);
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
