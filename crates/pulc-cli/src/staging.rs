//! What a job brings along (`--stage`, `--stage-in`): its program if no system has it, the libraries that the program names and that stand
//! outside of the system's directories, and the files that its user names; and what it gives back (`--stage-out`). Called by `run` and `submit`; reads files, runs nothing. What is
//! missing or would meet another file is said here, before anything is asked for. What is in the files the daemon looks at.

use crate::mpi_choice;
use pulc_control::stage::{Content, FILES_MAX, Output, Role, Stage, StageFile, as_path, check_name, may_replace};
use pulc_hal::os::elf::Needs;
use std::collections::{HashSet, VecDeque};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

/// Where what is found comes with the system: other machines have their own, which fits what else they have.
const SYSTEM: [&str; 11] =
    ["/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/etc", "/proc", "/sys", "/dev"];
/// Within it, where people put their own.
const NOT_SYSTEM: [&str; 2] = ["/usr/local", "/usr/src"];
/// Directories that are walked into, one in the other.
const DEPTH_MAX: usize = 32;

/// What travels with a job.
#[derive(Clone, Debug, Default, PartialEq, Eq, clap::Args)]
#[group(id = "travels")]
pub struct Options {
    /// What travels to nodes that lack it: the program with its libraries (auto), nothing (never), or that and a working directory made
    /// for the job on each node (dir) [default: auto]
    #[arg(long, value_name = "WHAT", value_parser = ["auto", "never", "dir"])]
    pub stage: Option<String>,
    /// A file or directory that the job finds as NAME in a working directory made for it on each node; may be repeated
    #[arg(long, value_name = "FILE[:NAME]")]
    pub stage_in: Vec<OsString>,
    /// A file or directory that the job leaves as NAME in its working directory on the node of rank 0, and that comes back as FILE when the
    /// job ends; with %N in FILE, for the node's name, one from each node (%j job, %A array, %a index); may be repeated
    #[arg(long, value_name = "NAME[:FILE]")]
    pub stage_out: Vec<OsString>,
}

impl Options {
    /// What `over` says counts; files add up.
    pub fn merged(self, over: Options) -> Options {
        let stage_in = self.stage_in.into_iter().chain(over.stage_in).collect();
        let stage_out = self.stage_out.into_iter().chain(over.stage_out).collect();
        Options { stage: over.stage.or(self.stage), stage_in, stage_out }
    }
}

/// What a job brings along that starts `program` in `directory` with this search path for libraries; without a program (of a script, whose
/// text travels anyway) only the files that are named.
///
/// # Errors
/// One line about a file that is named.
pub fn of(
    options: &Options,
    program: Option<&OsStr>,
    directory: &Path,
    variable: impl Fn(&str) -> Option<OsString>,
) -> Result<Option<Stage>, String> {
    let never = options.stage.as_deref() == Some("never");
    let named = !options.stage_in.is_empty() || !options.stage_out.is_empty();
    if never && named {
        return Err("--stage never contradicts --stage-in and --stage-out".to_owned());
    }
    if never {
        return Ok(None);
    }
    let own_directory = named || options.stage.as_deref() == Some("dir");
    let mut stage = Stage { home: None, directory: own_directory, ..Stage::default() };
    let program = program.and_then(|name| found(name, directory, variable("PATH")));
    let this = std::env::current_exe().ok();
    // What this binary starts in its turn for several programs or another MPI is looked for by the nodes.
    if let Some(path) = program.filter(|path| !is_system(path) && this != std::fs::canonicalize(path).ok()) {
        let search = variable("LD_LIBRARY_PATH").unwrap_or_default();
        let libraries = libraries(&path, &search, directory);
        stage.files.extend(file(Role::Program, path.file_name(), &path));
        stage.files.extend(libraries.iter().filter_map(|(name, path)| file(Role::Library, Some(name), path)));
    }
    let here = std::env::current_dir().map_err(|error| format!("there is no working directory: {error}"))?;
    for word in &options.stage_in {
        let (path, name) = parted(word);
        let name = match name {
            Some(name) => PathBuf::from(name),
            // `.` and `..` have no name, `/` neither.
            None => Path::new(path)
                .file_name()
                .map(PathBuf::from)
                .ok_or_else(|| format!("--stage-in {}: say what it is called in the job, FILE:NAME", word.display()))?,
        };
        take_in(&mut stage.files, &here.join(path), &name, 0)
            .map_err(|why| format!("--stage-in {}: {why}", word.display()))?;
    }
    for word in &options.stage_out {
        let output = given_back(word, &here).map_err(|why| format!("--stage-out {}: {why}", word.display()))?;
        stage.outputs.push(output);
    }
    stage.check().map_err(|why| format!("--stage-in, --stage-out: {why}"))?;
    Ok(Some(stage).filter(|stage| stage.directory || !stage.files.is_empty()))
}

/// `FILE:NAME`; a file whose name holds a colon is named with one behind it.
fn parted(word: &OsStr) -> (&OsStr, Option<&OsStr>) {
    let bytes = word.as_bytes();
    match bytes.iter().rposition(|byte| *byte == b':') {
        Some(at) => {
            let name = Some(OsStr::from_bytes(&bytes[at + 1..])).filter(|name| !name.is_empty());
            (OsStr::from_bytes(&bytes[..at]), name)
        }
        None => (word, None),
    }
}

/// `NAME:FILE`, and whether it can be put there.
fn given_back(word: &OsStr, here: &Path) -> Result<Output, String> {
    let bytes = word.as_bytes();
    // Of words with several colons the first one ends the name in the job.
    let (name, place) = match bytes.iter().position(|byte| *byte == b':') {
        Some(at) => (&bytes[..at], Some(&bytes[at + 1..]).filter(|place| !place.is_empty())),
        None => (bytes, None),
    };
    check_name(name, true)?;
    let base = as_path(name).file_name().unwrap_or_default();
    let path = here.join(place.map_or(Path::new(base), as_path));
    let path = if path.is_dir() { path.join(base) } else { path };
    let above = path.parent().filter(|above| above.is_dir());
    let above = above.ok_or_else(|| format!("there is no directory for {}", path.display()))?;
    let may = rustix::fs::access(above, rustix::fs::Access::WRITE_OK | rustix::fs::Access::EXEC_OK);
    may.map_err(|error| format!("nothing can be written to {}: {error}", above.display()))?;
    // A directory may come back into one that is there. Names that are filled in are looked at when the files come.
    if path.symlink_metadata().is_ok() && !path.is_dir() {
        may_replace(&path)?;
    }
    Ok(Output { name: name.to_vec(), path: path.as_os_str().as_bytes().to_vec() })
}

/// A file, or all files of a directory.
fn take_in(files: &mut Vec<StageFile>, path: &Path, name: &Path, depth: usize) -> Result<(), String> {
    let failed = |error: std::io::Error| format!("{}: {error}", path.display());
    let data = std::fs::metadata(path).map_err(failed)?;
    if files.len() >= FILES_MAX {
        return Err(format!("more than {FILES_MAX} files; pack them into one"));
    }
    if data.is_dir() {
        if depth >= DEPTH_MAX {
            return Err(format!(
                "{} is more than {DEPTH_MAX} directories deep; does a link lead back?",
                path.display()
            ));
        }
        let mut entries: Vec<OsString> = Vec::new();
        for entry in std::fs::read_dir(path).map_err(failed)? {
            entries.push(entry.map_err(failed)?.file_name());
        }
        entries.sort();
        return entries.iter().try_for_each(|entry| take_in(files, &path.join(entry), &name.join(entry), depth + 1));
    }
    if !data.is_file() {
        return Err(format!("{} is not a regular file or a directory", path.display()));
    }
    std::fs::File::open(path).map_err(failed)?;
    files.extend(file(Role::Input, Some(name.as_os_str()), path));
    Ok(())
}

fn file(role: Role, name: Option<&OsStr>, path: &Path) -> Option<StageFile> {
    let bytes = |text: &OsStr| text.as_bytes().to_vec();
    let (name, path) = (bytes(name?), bytes(path.as_os_str()));
    Some(StageFile { role, name, path, mode: 0, content: Content::default() })
}

/// The file that would be started, as the keeper looks for it; none if nothing here may be started, which the nodes then say.
fn found(name: &OsStr, directory: &Path, path: Option<OsString>) -> Option<PathBuf> {
    let runs = |path: &PathBuf| {
        std::fs::metadata(path).is_ok_and(|data| data.is_file() && data.permissions().mode() & 0o111 != 0)
    };
    let absolute = if name.as_bytes().contains(&b'/') {
        Some(directory.join(name)).filter(runs)
    } else {
        std::env::split_paths(&path?).map(|one| directory.join(one).join(name)).find(runs)
    };
    absolute.filter(|path| path.is_absolute())
}

fn is_system(path: &Path) -> bool {
    // A link in a user's directory to a system's program is that program.
    let path = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    SYSTEM.iter().any(|system| path.starts_with(system)) && !NOT_SYSTEM.iter().any(|own| path.starts_with(own))
}

/// Libraries that a program and its libraries name and that stand outside of the system's directories, by the names that they are asked for.
/// Source: ld.so(8): `DT_RPATH` where there is no `DT_RUNPATH`, `LD_LIBRARY_PATH`, `DT_RUNPATH`.
fn libraries(program: &Path, search: &OsStr, directory: &Path) -> Vec<(OsString, PathBuf)> {
    let ours = mpi_choice::libraries();
    let search: Vec<PathBuf> = std::env::split_paths(search).map(|path| directory.join(path)).collect();
    let mut all: Vec<(OsString, PathBuf)> = Vec::new();
    let mut seen: HashSet<String> = HashSet::new();
    // Each with the old-style search paths of those that led to it.
    let mut left = VecDeque::from([(program.to_owned(), Vec::new())]);
    while let Some((object, above)) = left.pop_front() {
        let Some(needs) = Needs::of(&object) else { continue };
        let own =
            |paths: &[String]| -> Vec<PathBuf> { paths.iter().flat_map(|path| expanded(path, &object)).collect() };
        let inherited: Vec<PathBuf> = if needs.has_runpath {
            above.clone()
        } else {
            own(&needs.rpath).into_iter().chain(above.clone()).collect()
        };
        let after = own(&needs.runpath);
        let before: &[PathBuf] = if needs.has_runpath { &[] } else { &inherited };
        for name in needs.libraries {
            // Ours come first on every node's search path.
            let is_ours = ours.as_ref().is_some_and(|ours| ours.join(&name).exists());
            if is_ours || name.contains('/') || !seen.insert(name.clone()) || all.len() >= FILES_MAX / 2 {
                continue;
            }
            let place =
                before.iter().chain(&search).chain(&after).map(|one| one.join(&name)).find(|path| path.is_file());
            if let Some(path) = place.filter(|path| path.is_absolute() && !is_system(path)) {
                left.push_back((path.clone(), inherited.clone()));
                all.push((name.into(), path));
            }
        }
    }
    all
}

/// The directories of a search path in an object.
fn expanded(list: &str, object: &Path) -> Vec<PathBuf> {
    let origin = std::fs::canonicalize(object).ok().and_then(|path| path.parent().map(Path::to_owned));
    let one = |path: &str| {
        let origin = origin.as_ref().and_then(|path| path.to_str()).unwrap_or_default();
        let path = path.replace("${ORIGIN}", origin).replace("$ORIGIN", origin);
        Some(PathBuf::from(&path)).filter(|_| !path.is_empty() && !path.contains('$'))
    };
    list.split(':').filter_map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn directory(name: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("pulc-staging-test-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap();
        fs::canonicalize(path).unwrap()
    }

    fn names(stage: &Stage) -> Vec<String> {
        stage.files.iter().map(|file| format!("{:?} {}", file.role, String::from_utf8_lossy(&file.name))).collect()
    }

    fn inputs(words: &[&OsStr]) -> Result<Option<Stage>, String> {
        let options = Options { stage_in: words.iter().map(OsString::from).collect(), ..Options::default() };
        of(&options, None, Path::new("/"), |_| None)
    }

    #[test]
    fn a_users_program_travels_and_a_systems_does_not() {
        let place = directory("program");
        fs::copy(std::env::current_exe().unwrap(), place.join("prog")).unwrap();
        let program = |name: &str| of(&Options::default(), Some(OsStr::new(name)), &place, |_| None).unwrap();
        assert_eq!(names(&program("./prog").unwrap()), ["Program prog"]);
        assert_eq!(program("/bin/sh"), None);
        assert_eq!(program("./no-such"), None);
        std::os::unix::fs::symlink("/bin/sh", place.join("link")).unwrap();
        assert_eq!(program("./link"), None);
        let never = Options { stage: Some("never".to_owned()), ..Options::default() };
        assert_eq!(of(&never, Some(OsStr::new("./prog")), &place, |_| None), Ok(None));
        fs::remove_dir_all(place).unwrap();
    }

    #[test]
    fn inputs_have_names_and_what_is_wrong_with_them_is_said() {
        let place = directory("inputs");
        fs::create_dir_all(place.join("dir/deep")).unwrap();
        for name in ["a", "dir/b", "dir/deep/c", "with:colon"] {
            fs::write(place.join(name), name).unwrap();
        }
        let word = |text: &str| place.join(text).into_os_string();
        let stage = inputs(&[&word("a"), &word("a:other/name"), &word("dir"), &word("with:colon:")]).unwrap().unwrap();
        assert!(stage.directory);
        assert_eq!(
            names(&stage),
            ["Input a", "Input other/name", "Input dir/b", "Input dir/deep/c", "Input with:colon"]
        );
        let refused = |words: &[&OsStr]| inputs(words).unwrap_err();
        assert!(refused(&[&word("a"), &word("dir/b:a")]).contains("two files would be called a"));
        assert!(refused(&[&word("no-such")]).contains("No such file"));
        assert!(refused(&[&word("a:../b")]).contains("no name in the job's directory"));
        assert!(refused(&[OsStr::new("/dev/null")]).contains("not a regular file"));
        assert!(refused(&[OsStr::new("/")]).contains("say what it is called"));
        std::os::unix::fs::symlink(".", place.join("dir/back")).unwrap();
        assert!(refused(&[&word("dir")]).contains("does a link lead back"));
        let both = Options { stage: Some("never".to_owned()), stage_in: vec!["x".into()], ..Options::default() };
        assert!(of(&both, None, Path::new("/"), |_| None).unwrap_err().contains("contradicts"));
        fs::remove_dir_all(place).unwrap();
    }

    #[test]
    fn what_comes_back_has_a_place_that_may_be_written_to() {
        let place = directory("outputs");
        fs::create_dir(place.join("dir")).unwrap();
        fs::write(place.join("old"), "x").unwrap();
        fs::write(place.join("protected"), "x").unwrap();
        fs::set_permissions(place.join("protected"), fs::Permissions::from_mode(0o444)).unwrap();
        let outputs = |words: &[&str]| {
            let stage_out = words.iter().map(OsString::from).collect();
            of(&Options { stage_out, ..Options::default() }, None, Path::new("/"), |_| None)
        };
        let inside = |text: &str, at: &str| format!("{text}:{}", place.join(at).display());
        let stage = outputs(&[&inside("a/b", "dir"), &inside("c", "dir/d:e"), &inside("b", "old")]).unwrap().unwrap();
        let paths: Vec<&Path> = stage.outputs.iter().map(|output| as_path(&output.path)).collect();
        assert_eq!(paths, [place.join("dir/b"), place.join("dir/d:e"), place.join("old")]);
        assert!(stage.directory);
        let refused = |words: &[&str]| outputs(words).unwrap_err();
        assert!(
            refused(&[&inside("a/b", "dir"), &inside("b", "dir")]).contains("two files of the job would come back as")
        );
        assert!(refused(&["../x:/tmp/x"]).contains("no name in the job's directory"));
        assert!(refused(&["x:/no/such/x"]).contains("there is no directory for /no/such/x"));
        assert!(refused(&["x:/dev/null"]).contains("/dev/null is there already and is not a regular file"));
        assert!(refused(&[&inside("x", "protected")]).contains("is not to be written to"));
        fs::remove_dir_all(place).unwrap();
    }
}
