//! Thresholds that are measured instead of guessed: once on a machine, in less than a tenth of a second where nothing else runs, and kept in the user's cache folder
//! for this processor and this kernel. Whoever starts jobs measures before the first one (`measure_once`), every process reads
//! (`load`). Where nothing can be kept, and while somebody else is measuring, the defaults count, which are safe everywhere.
//!
//! Must never fail anything: a file that is cut, foreign or absurd is ignored with a word.

mod measure;

use crate::os::cpu;
use pulc_base::param;
use rustix::fs::FlockOperation;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// First line of a file: what it is, and the version of what is measured and how.
const TITLE: &str = "pulc calibration 2";
/// Longest file that is read, in bytes.
const FILE_MAX_BYTES: u64 = 4096;
/// Longest time that measuring may take.
const TIME_MAX: Duration = Duration::from_millis(300);
/// Switches calibration off, both measuring and reading.
const OFF: &str = "PULC_CALIBRATION";

/// Makes what was measured earlier count in this process. Cheap; to be called before parameters are read.
pub fn load() {
    let Some(path) = file() else { return };
    let Ok(text) = read(&path) else { return };
    match parse(&text, &machine()) {
        Ok(values) => param::set_calibrated(values),
        Err(why) => pulc_base::log!(Warn, "calibration", "{} is ignored: {why}", path.display()),
    }
}

/// Measures this machine if that was not done before, the result can be kept, and nobody else is at it: two at a time would measure each
/// other. Whether it was measured now.
pub fn measure_once() -> bool {
    let Some(path) = file() else { return false };
    if path.exists() || !may_be_written(&path) {
        return false;
    }
    let Some(turn) = Turn::take(&path) else { return false };
    // Somebody may have measured between the look and the turn.
    let measured = if path.exists() { None } else { measure::all(TIME_MAX) };
    let is_kept = measured.is_some_and(|values| keep(&path, &values));
    drop(turn);
    is_kept
}

/// Being the one that measures. A lock that the kernel gives back, whatever becomes of its holder.
struct Turn {
    path: PathBuf,
    _file: std::fs::File,
}

impl Turn {
    /// `None`: somebody else has it, or it cannot be had.
    fn take(results: &Path) -> Option<Turn> {
        let path = results.with_extension("turn");
        let file = std::fs::File::create(&path).ok()?;
        rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive).ok()?;
        Some(Turn { path, _file: file })
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        // Removed while it is held; who opens it in between finds the results there.
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Measures this machine whether or not that was done before, and keeps the result if possible. What was found.
pub fn measure_again() -> Vec<(String, u64)> {
    let Some(values) = measure::all(TIME_MAX) else { return Vec::new() };
    if let Some(path) = file().filter(|path| may_be_written(path)) {
        keep(&path, &values);
    }
    values
}

/// What a user can see: the file, and whether it is there.
pub fn file_and_state() -> Option<(PathBuf, bool)> {
    file().map(|path| {
        let exists = path.exists();
        (path, exists)
    })
}

/// The file for this machine; none where there is no cache folder or calibration is switched off.
fn file() -> Option<PathBuf> {
    if std::env::var_os(OFF).is_some_and(|word| word == "0" || word == "off") {
        return None;
    }
    let absolute = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let cache = absolute("XDG_CACHE_HOME").or_else(|| absolute("HOME").map(|home| home.join(".cache")))?;
    // Another version measures anew, into a file of its own.
    Some(cache.join("pulc").join(format!("calibration-{:016x}", sum(&format!("{TITLE}\n{}", machine())))))
}

/// What the figures belong to: processor and kernel.
fn machine() -> String {
    let kernel = rustix::system::uname();
    format!("{} | {}", cpu::model(), kernel.release().to_string_lossy())
}

fn read(path: &Path) -> std::io::Result<String> {
    use std::io::Read;
    let mut text = String::new();
    std::fs::File::open(path)?.take(FILE_MAX_BYTES).read_to_string(&mut text)?;
    Ok(text)
}

/// Whether the folder is there or can be made.
fn may_be_written(path: &Path) -> bool {
    path.parent().is_some_and(|folder| std::fs::create_dir_all(folder).is_ok())
}

/// Writes the file whole or not at all.
fn keep(path: &Path, values: &[(String, u64)]) -> bool {
    let text = compose(values, &machine());
    let own = path.with_extension(format!("{}", std::process::id()));
    let written = std::fs::write(&own, text).and_then(|()| std::fs::rename(&own, path));
    if written.is_err() {
        let _ = std::fs::remove_file(&own);
    }
    written.is_ok()
}

fn compose(values: &[(String, u64)], machine: &str) -> String {
    let mut text = format!("{TITLE}\nmachine {machine}\n");
    for (name, value) in values {
        text += &format!("{name} {value}\n");
    }
    summed(&text)
}

/// With the line that says what the sum of all others is.
pub(crate) fn summed(text: &str) -> String {
    format!("{text}sum {:016x}\n", sum(text))
}

pub(crate) fn parse(text: &str, machine: &str) -> Result<Vec<(String, u64)>, &'static str> {
    let at = text.trim_end().rfind('\n').ok_or("it is cut short")? + 1;
    let (body, last) = text.split_at(at);
    if last.trim_end() != format!("sum {:016x}", sum(body)) {
        return Err("its sum is wrong");
    }
    let mut lines = body.lines();
    if lines.next() != Some(TITLE) {
        return Err("it is of another version");
    }
    if lines.next().and_then(|line| line.strip_prefix("machine ")) != Some(machine) {
        return Err("it belongs to another machine");
    }
    lines
        .map(|line| {
            let (name, value) = line.split_once(' ').ok_or("a line without a value")?;
            Ok((name.to_owned(), value.parse().map_err(|_| "a value that is no number")?))
        })
        .collect()
}

/// FNV-1a: against cut and garbled files, not against malice; the folder is the user's own.
fn sum(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |sum, byte| (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_survives_the_round_trip_and_is_refused_when_cut_changed_or_foreign() {
        let values = vec![("shm_pool_bytes".to_owned(), 4 << 20), ("spin_us".to_owned(), 25)];
        let text = compose(&values, "a machine");
        assert_eq!(parse(&text, "a machine"), Ok(values));
        assert!(parse(&text, "another machine").is_err());
        for len in 0..text.len() - 1 {
            assert!(parse(&text[..len], "a machine").is_err(), "a prefix of {len} bytes was accepted");
        }
        let mut bytes = text.clone().into_bytes();
        for at in 0..bytes.len() - 1 {
            bytes[at] ^= 1;
            let changed = String::from_utf8_lossy(&bytes).into_owned();
            assert!(parse(&changed, "a machine").is_err(), "a change at byte {at} was not noticed");
            bytes[at] ^= 1;
        }
    }

    #[test]
    fn one_at_a_time_measures_and_leaves_no_sign_of_it() {
        let folder = std::env::temp_dir().join(format!("pulc-turn-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let results = folder.join("calibration-1");
        let turn = Turn::take(&results).unwrap();
        assert!(Turn::take(&results).is_none());
        drop(turn);
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 0);
        assert!(Turn::take(&results).is_some());
        assert!(Turn::take(&folder.join("nowhere").join("calibration-1")).is_none());
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn what_is_measured_lies_within_the_limits_and_takes_less_than_its_time() {
        for (name, value) in measure::all(TIME_MAX).unwrap() {
            let param = crate::device::shm::PARAMS.iter().find(|param| param.name == name).unwrap();
            assert!((param.min..=param.max).contains(&value), "{name} {value}");
        }
    }
}
