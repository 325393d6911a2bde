//! What a job brings along to nodes that lack it: its program, the libraries that no system has, the files that its user names; and what
//! it gives back. Made by `pulc run` and `pulc submit`, completed by the daemon of the node whose files these are, carried out by psid's `stage`. It travels as
//! one variable of the job's environment, so that logs and keepers of before can be read; ranks never see it.

use crate::LaunchSpec;
use crate::queue::FileNames;
use pulc_base::NodeId;
use serde::{Deserialize, Serialize};
use std::path::{Component, Path};

/// The variable that carries it.
pub const ENV_STAGE: &str = "PULC_STAGE";

/// Files of one job, at most.
pub const FILES_MAX: usize = 4096;
/// Longest path or name, in bytes.
const PATH_MAX: usize = 4096;

/// What a job brings along.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stage {
    /// The node whose files these are; its daemon says so.
    pub home: Option<NodeId>,
    /// The job runs in a directory that is made for it on each node and goes with it.
    pub directory: bool,
    pub files: Vec<StageFile>,
    /// What it gives back.
    pub outputs: Vec<Output>,
}

/// The same as it was before jobs gave anything back.
type Before = (Option<NodeId>, bool, Vec<StageFile>);

/// A file or directory that the job leaves in its own directory, and where that belongs at home.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Output {
    pub name: Vec<u8>,
    /// Absolute, with what [`FileNames`] fills in. Where the node's name is part of it every node gives its own, else that of rank 0 does.
    pub path: Vec<u8>,
}

impl Output {
    /// Whether the node at this place in the job gives it.
    pub fn is_of(&self, index: u32) -> bool {
        index == 0 || self.differs_by(b'N')
    }

    /// Whether its path has `%` with this letter in it.
    pub fn differs_by(&self, letter: u8) -> bool {
        // A doubled sign is none.
        let mut bytes = self.path.iter();
        while let Some(byte) = bytes.next() {
            if *byte == b'%' && bytes.next() == Some(&letter) {
                return true;
            }
        }
        false
    }

    /// With what stands for `%N` and its like filled in.
    pub fn filled(&self, names: &FileNames<'_>) -> Output {
        // What is no text has no such signs in it.
        let path = std::str::from_utf8(&self.path).map_or_else(|_| self.path.clone(), |path| names.fill(path).into());
        Output { name: self.name.clone(), path }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StageFile {
    pub role: Role,
    /// What the job calls it: of an input the path in the job's directory, else the name of the file.
    pub name: Vec<u8>,
    /// Where it is at home; absolute.
    pub path: Vec<u8>,
    /// Permission bits.
    pub mode: u32,
    /// What is in it; filled in by the daemon at home.
    pub content: Content,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Role {
    Program,
    Library,
    Input,
}

/// A file by what is in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Content {
    /// BLAKE3.
    pub hash: [u8; 32],
    pub bytes: u64,
}

impl Content {
    /// The hash as text.
    pub fn hex(&self) -> String {
        self.hash.iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

impl Stage {
    /// What this launch brings along, if anything.
    ///
    /// # Errors
    /// One line when the variable makes no sense.
    pub fn of(launch: &LaunchSpec) -> Result<Option<Stage>, String> {
        let Some((_, text)) = launch.env.iter().rev().find(|(name, _)| name == ENV_STAGE.as_bytes()) else {
            return Ok(None);
        };
        let stage: Option<Stage> = from_hex(text).and_then(|bytes| {
            let ((home, directory, files), rest) = postcard::take_from_bytes::<Before>(&bytes).ok()?;
            if rest.is_empty() {
                return Some(Stage { home, directory, files, outputs: Vec::new() });
            }
            let (outputs, rest) = postcard::take_from_bytes(rest).ok()?;
            rest.is_empty().then_some(Stage { home, directory, files, outputs })
        });
        let stage =
            stage.ok_or_else(|| format!("{ENV_STAGE} is not what `pulc run` or `pulc submit` sets; unset it"))?;
        stage.check()?;
        Ok(Some(stage))
    }

    /// Makes it part of the launch, instead of what was there.
    pub fn put(&self, launch: &mut LaunchSpec) {
        Stage::take_out(launch);
        let bytes = postcard::to_extend(self, Vec::new()).expect("postcard encodes every stage: no maps");
        let text = bytes.iter().flat_map(|byte| [HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]]).collect();
        launch.env.push((ENV_STAGE.as_bytes().to_vec(), text));
    }

    /// Takes the variable out.
    pub fn take_out(launch: &mut LaunchSpec) {
        launch.env.retain(|(name, _)| name != ENV_STAGE.as_bytes());
    }

    /// Whether its names stay inside of the job's directory and nothing is there twice. Also asked of what came from elsewhere.
    ///
    /// # Errors
    /// One line that names the first thing that is wrong.
    pub fn check(&self) -> Result<(), String> {
        if self.files.len() > FILES_MAX {
            return Err(format!("{} files are to travel with the job, at most {FILES_MAX} may", self.files.len()));
        }
        let mut seen = std::collections::HashMap::new();
        for file in &self.files {
            let (name, path) = (lossy(&file.name), lossy(&file.path));
            check_name(&file.name, file.role == Role::Input)?;
            if !file.path.starts_with(b"/") || file.path.len() > PATH_MAX || file.path.contains(&0) {
                return Err(format!("{path:?} is no absolute path of a file"));
            }
            let place = if file.role == Role::Input { &b"input"[..] } else { b"" };
            if let Some(other) = seen.insert((place, &file.name), &file.path) {
                return Err(format!("two files would be called {name} in the job: {} and {path}", lossy(other)));
            }
        }
        // A file where another one needs a directory.
        for file in self.files.iter().filter(|file| file.role == Role::Input) {
            for above in as_path(&file.name).ancestors().skip(1).filter(|above| !above.as_os_str().is_empty()) {
                if seen.contains_key(&(&b"input"[..], &above.as_os_str().as_encoded_bytes().to_vec())) {
                    return Err(format!("{} would be a file and a directory in the job", above.display()));
                }
            }
        }
        self.check_outputs()?;
        match self.files.iter().filter(|file| file.role == Role::Program).count() {
            0 | 1 => Ok(()),
            more => Err(format!("{more} programs in one job")),
        }
    }

    fn check_outputs(&self) -> Result<(), String> {
        if self.outputs.len() > FILES_MAX {
            return Err(format!("{} files are to come back from the job, at most {FILES_MAX} may", self.outputs.len()));
        }
        let mut places = std::collections::HashMap::new();
        for output in &self.outputs {
            check_name(&output.name, true)?;
            let (name, path) = (lossy(&output.name), lossy(&output.path));
            if !output.path.starts_with(b"/") || output.path.len() > PATH_MAX || output.path.contains(&0) {
                return Err(format!("{path:?} is no absolute path of a file"));
            }
            if let Some(other) = places.insert(&output.path, &output.name) {
                return Err(format!("two files of the job would come back as {path}: {} and {name}", lossy(other)));
            }
        }
        Ok(())
    }

    pub fn bytes(&self) -> u64 {
        self.files.iter().map(|file| file.content.bytes).fold(0, u64::saturating_add)
    }
}

/// A name in the job's directory: relative, without `..`.
///
/// # Errors
/// One line that names it.
pub fn check_name(name: &[u8], nested: bool) -> Result<(), String> {
    let path = as_path(name);
    let plain = path.components().all(|part| matches!(part, Component::Normal(_)));
    // `a//b` and `a/.` would be other names of the same file.
    let same = path.components().collect::<std::path::PathBuf>().as_os_str() == path.as_os_str();
    if name.is_empty() || name.len() > PATH_MAX || name.contains(&0) || !plain || !same {
        return Err(format!(
            "{:?} is no name in the job's directory: use a relative path without . and ..",
            lossy(name)
        ));
    }
    if !nested && name.contains(&b'/') {
        return Err(format!("{:?} is a path where a name is needed", lossy(name)));
    }
    Ok(())
}

/// Whether what is at this path may be replaced by a file that a job gives back. Follows links.
///
/// # Errors
/// One line that names it.
pub fn may_replace(path: &Path) -> Result<(), String> {
    use std::os::unix::fs::PermissionsExt as _;
    let there = path.display();
    let data = std::fs::metadata(path).map_err(|error| format!("{there}: {error}"))?;
    if !data.is_file() {
        return Err(format!("{there} is there already and is not a regular file; name another"));
    }
    // The superuser may write to everything, also to what somebody has protected.
    let writable = rustix::fs::access(path, rustix::fs::Access::WRITE_OK).is_ok();
    if !writable || data.permissions().mode() & 0o222 == 0 {
        return Err(format!("{there} is there already and is not to be written to; name another, or make it writable"));
    }
    Ok(())
}

/// Bytes as a path.
pub fn as_path(bytes: &[u8]) -> &Path {
    use std::os::unix::ffi::OsStrExt as _;
    Path::new(std::ffi::OsStr::from_bytes(bytes))
}

fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

const HEX: &[u8; 16] = b"0123456789abcdef";

pub fn from_hex(text: &[u8]) -> Option<Vec<u8>> {
    let digit = |byte: u8| HEX.iter().position(|known| *known == byte).map(|at| at as u8);
    let (pairs, rest) = text.as_chunks::<2>();
    if !rest.is_empty() {
        return None;
    }
    pairs.iter().map(|[high, low]| Some(digit(*high)? << 4 | digit(*low)?)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(role: Role, name: &str, path: &str) -> StageFile {
        let content = Content { hash: [7; 32], bytes: 3 };
        StageFile { role, name: name.into(), path: path.into(), mode: 0o755, content }
    }

    fn output(name: &str, path: &str) -> Output {
        Output { name: name.into(), path: path.into() }
    }

    fn launch() -> LaunchSpec {
        LaunchSpec {
            argv: vec![b"x".to_vec()],
            env: vec![(b"A".to_vec(), b"1".to_vec())],
            cwd: b"/".to_vec(),
            umask: 0,
            limits: Vec::new(),
            pin: false,
            kill_delay_ms: 0,
        }
    }

    #[test]
    fn it_travels_in_the_environment_and_comes_out_again() {
        let stage = Stage {
            home: Some(NodeId([3; 16])),
            directory: true,
            files: vec![file(Role::Program, "x", "/home/x"), file(Role::Input, "d/x", "/home/d")],
            outputs: vec![output("o", "/home/%N/o")],
        };
        let mut launch = launch();
        assert_eq!(Stage::of(&launch), Ok(None));
        stage.put(&mut launch);
        stage.put(&mut launch);
        assert_eq!(launch.env.len(), 2);
        assert_eq!(Stage::of(&launch), Ok(Some(stage)));
        Stage::take_out(&mut launch);
        assert_eq!(launch.env.len(), 1);
        for nonsense in ["", "0", "zz", "00", "ffffffffffffffffffff"] {
            launch.env.push((ENV_STAGE.into(), nonsense.into()));
            assert!(Stage::of(&launch).is_err(), "{nonsense}");
        }
    }

    #[test]
    fn what_was_asked_for_before_jobs_gave_anything_back_is_understood() {
        let before: Before = (Some(NodeId([3; 16])), true, vec![file(Role::Input, "x", "/home/x")]);
        let bytes = postcard::to_extend(&before, Vec::new()).unwrap();
        let text: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        let mut launch = launch();
        launch.env.push((ENV_STAGE.into(), text.into()));
        let (home, directory, files) = before;
        assert_eq!(Stage::of(&launch), Ok(Some(Stage { home, directory, files, outputs: Vec::new() })));
    }

    #[test]
    fn what_comes_back_has_a_place_of_its_own() {
        let check = |outputs: Vec<Output>| Stage { outputs, ..Stage::default() }.check();
        assert_eq!(check(vec![output("a", "/x"), output("b", "/y"), output("a", "/z")]), Ok(()));
        assert!(check(vec![output("../a", "/x")]).unwrap_err().contains("no name in the job's directory"));
        assert!(check(vec![output("a", "x")]).unwrap_err().contains("no absolute path"));
        let twice = check(vec![output("a", "/x"), output("b", "/x")]).unwrap_err();
        assert_eq!(twice, "two files of the job would come back as /x: a and b");
        let names = FileNames { job: "7", array: "5", index: "2", name: "", node: "n/1", user: "0" };
        assert_eq!(output("a", "/%N/%A_%a.%j").filled(&names).path, b"/n_1/5_2.7");
        assert!(output("a", "/x-%N").is_of(3) && !output("a", "/x-%%N").is_of(3) && output("a", "/x").is_of(0));
        assert!(!output("a", "/x%").differs_by(b'a'));
    }

    #[test]
    fn names_that_leave_the_directory_or_meet_each_other_are_refused() {
        let check = |files: Vec<StageFile>| Stage { files, ..Stage::default() }.check();
        for name in ["", "/etc/passwd", "../x", "a/../../x", "a/./b", "a//b", "a/", ".", "a\0b"] {
            let refused = check(vec![file(Role::Input, name, "/x")]).unwrap_err();
            assert!(refused.contains("no name in the job's directory"), "{name}: {refused}");
        }
        assert!(check(vec![file(Role::Library, "a/b.so", "/x")]).is_err());
        assert!(check(vec![file(Role::Input, "a", "relative")]).is_err());
        let twice = check(vec![file(Role::Input, "a", "/x"), file(Role::Input, "a", "/y")]).unwrap_err();
        assert_eq!(twice, "two files would be called a in the job: /x and /y");
        let both = check(vec![file(Role::Input, "a", "/x"), file(Role::Input, "a/b/c", "/y")]).unwrap_err();
        assert_eq!(both, "a would be a file and a directory in the job");
        // A program and an input of one name are in different places.
        assert_eq!(check(vec![file(Role::Program, "a", "/x"), file(Role::Input, "a", "/x")]), Ok(()));
        assert!(check(vec![file(Role::Program, "a", "/x"), file(Role::Program, "b", "/x")]).is_err());
    }
}
