//! Finds the program as a shell would, relative to the job's directory and PATH, and says in words why not. Called by the
//! keeper in the first phase, so that a launch fails before anything has been started anywhere.

use pulc_control::LaunchSpec;
use rustix::fs::{Access, AtFlags, CWD, FileType, accessat, stat};
use std::ffi::{CString, OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// Path of the program to execute; of one that the job has brought along, that path.
///
/// # Errors
/// One line that names the path and what is wrong with it.
pub fn find_program(launch: &LaunchSpec, brought: Option<&[u8]>) -> Result<CString, String> {
    let cwd = Path::new(OsStr::from_bytes(&launch.cwd));
    check_directory(cwd)?;
    let named = launch.argv.first().map(Vec::as_slice).filter(|name| !name.is_empty());
    let name = brought.or(named).ok_or("the program's name is empty")?;
    let found = if name.contains(&b'/') { direct(cwd, name)? } else { in_path(cwd, name, &launch.env)? };
    CString::new(found.into_os_string().into_vec()).map_err(|_| "the program's path holds a NUL byte".to_owned())
}

fn check_directory(cwd: &Path) -> Result<(), String> {
    match stat(cwd) {
        Ok(found) if FileType::from_raw_mode(found.st_mode) != FileType::Directory => {
            Err(format!("the working directory {} is not a directory", cwd.display()))
        }
        Ok(_) => accessat(CWD, cwd, Access::EXEC_OK, AtFlags::EACCESS)
            .map_err(|error| format!("cannot enter the working directory {}: {error}", cwd.display())),
        Err(error) => Err(format!(
            "cannot enter the working directory {}: {}; `--stage dir` gives the job one of its own on each node",
            cwd.display(),
            words(error)
        )),
    }
}

fn direct(cwd: &Path, name: &[u8]) -> Result<PathBuf, String> {
    let path = cwd.join(OsStr::from_bytes(name));
    match check(&path) {
        Ok(()) => Ok(path),
        Err(why) => Err(format!("cannot execute {}: {why}", path.display())),
    }
}

fn in_path(cwd: &Path, name: &[u8], env: &[(Vec<u8>, Vec<u8>)]) -> Result<PathBuf, String> {
    let path =
        env.iter().find(|(key, _)| key == b"PATH").map_or(&b"/usr/local/bin:/usr/bin:/bin"[..], |(_, path)| path);
    let mut refused = None;
    for directory in path.split(|byte| *byte == b':') {
        let candidate = cwd.join(OsStr::from_bytes(directory)).join(OsStr::from_bytes(name));
        match check(&candidate) {
            Ok(()) => return Ok(candidate),
            Err(why) if stat(&candidate).is_ok() => {
                refused.get_or_insert(format!("cannot execute {}: {why}", candidate.display()));
            }
            Err(_) => {}
        }
    }
    let name = OsString::from_vec(name.to_vec());
    Err(refused.unwrap_or_else(|| {
        let path = OsString::from_vec(path.to_vec());
        format!("cannot find the program {} in PATH ({})", name.display(), path.display())
    }))
}

fn check(path: &Path) -> Result<(), String> {
    let found = stat(path).map_err(words)?;
    match FileType::from_raw_mode(found.st_mode) {
        FileType::RegularFile => {}
        FileType::Directory => return Err("it is a directory".to_owned()),
        _ => return Err("it is not a regular file".to_owned()),
    }
    // For root, access(2) asks for at least one x bit: as exec does.
    accessat(CWD, path, Access::EXEC_OK, AtFlags::EACCESS).map_err(|error| match error {
        rustix::io::Errno::ACCESS => "permission denied (is its x bit set?)".to_owned(),
        error => words(error),
    })
}

fn words(error: rustix::io::Errno) -> String {
    match error {
        rustix::io::Errno::NOENT => "no such file or directory".to_owned(),
        rustix::io::Errno::ACCESS => "permission denied".to_owned(),
        error => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn launch(program: &str, path: Option<&str>, cwd: &str) -> LaunchSpec {
        LaunchSpec {
            argv: vec![program.into()],
            env: path.map(|path| (b"PATH".to_vec(), path.into())).into_iter().collect(),
            cwd: cwd.into(),
            umask: 0o22,
            limits: Vec::new(),
            pin: false,
            kill_delay_ms: 0,
        }
    }

    #[test]
    fn a_program_is_found_in_path_and_relative_to_the_directory() {
        assert_eq!(find_program(&launch("sh", None, "/"), None).unwrap().to_bytes(), b"/usr/bin/sh");
        assert_eq!(find_program(&launch("bin/sh", Some(""), "/usr"), None).unwrap().to_bytes(), b"/usr/bin/sh");
        assert_eq!(find_program(&launch("sh", Some("nowhere:bin"), "/usr"), None).unwrap().to_bytes(), b"/usr/bin/sh");
    }

    #[test]
    fn what_is_wrong_is_said_with_the_path() {
        let text = |program, cwd| find_program(&launch(program, Some("/usr/bin"), cwd), None).unwrap_err();
        assert!(text("no-such-program", "/").contains("cannot find the program no-such-program in PATH"));
        assert_eq!(text("/no/such", "/"), "cannot execute /no/such: no such file or directory");
        assert_eq!(text("/usr", "/"), "cannot execute /usr: it is a directory");
        assert!(text("/etc/passwd", "/").starts_with("cannot execute /etc/passwd: permission denied"));
        assert!(text("sh", "/no/dir").contains("working directory /no/dir: no such file"));
    }
}
