//! `pulc info` and the calibration file as users meet them: complete, measured, obeyed, overruled, and ignored when it is spoilt.

use std::path::{Path, PathBuf};
use std::process::Command;

/// A cache folder that goes away with the test.
struct Cache(PathBuf);

impl Cache {
    fn new(name: &str) -> Cache {
        let folder = std::env::temp_dir().join(format!("pulc-info-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder can be made");
        Cache(folder)
    }

    /// Parameters as JSON, and what was said on standard error.
    fn info(&self, more: &[&str], environment: &[(&str, &str)]) -> (Vec<serde_json::Value>, String) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_pulc"));
        command.args(["info", "--json"]).args(more).env("XDG_CACHE_HOME", &self.0);
        let output = command.envs(environment.iter().copied()).output().expect("pulc starts");
        assert!(output.status.success(), "{output:?}");
        let text = String::from_utf8(output.stdout).expect("text");
        let rows = text.lines().map(|line| serde_json::from_str(line).expect("one JSON object a line")).collect();
        (rows, String::from_utf8_lossy(&output.stderr).into_owned())
    }

    fn file(&self) -> Option<PathBuf> {
        let folder = std::fs::read_dir(self.0.join("pulc")).ok()?;
        folder.flatten().map(|entry| entry.path()).find(|path| is_whole(path))
    }
}

fn is_whole(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("calibration-"))
}

impl Drop for Cache {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn source<'a>(rows: &'a [serde_json::Value], name: &str) -> &'a str {
    let row = rows.iter().find(|row| row["name"] == name).expect("the parameter is listed");
    row["source"].as_str().expect("a word")
}

#[test]
fn every_parameter_has_one_row_with_value_limits_and_source() {
    let cache = Cache::new("rows");
    let (rows, _) = cache.info(&[], &[("PULC_EAGER_MAX_BYTES", "32k")]);
    assert!(rows.len() > 20, "{} rows", rows.len());
    let mut names: Vec<String> = rows.iter().map(|row| row["name"].to_string()).collect();
    names.sort();
    names.dedup();
    assert_eq!(names.len(), rows.len(), "something is listed twice");
    for row in rows.iter().filter(|row| !row["min"].is_null()) {
        let (value, min, max) = (row["value"].as_u64(), row["min"].as_u64(), row["max"].as_u64());
        assert!(value.is_some() && value >= min && value <= max, "{row}");
    }
    for (name, from) in [("channel_cells", "built in"), ("cores", "machine"), ("rails", "default")] {
        assert_eq!(source(&rows, name), from);
    }
    assert_eq!(source(&rows, "eager_max_bytes"), "environment");
    assert_eq!(source(&rows, "copy_kernel"), "default");
    assert!(cache.file().is_none(), "looking measures nothing");
}

#[test]
fn what_was_measured_counts_until_the_file_is_spoilt_and_the_environment_overrules_it() {
    let cache = Cache::new("spoilt");
    let (rows, _) = cache.info(&["--measure"], &[]);
    // A machine with one core, or one that is very busy, measures nothing; the file is there all the same.
    let file = cache.file().expect("a file was written");
    let measured = rows.iter().filter(|row| row["source"] == "calibration").count();
    let text = std::fs::read_to_string(&file).expect("it can be read");
    assert_eq!(text.lines().count(), measured + 3, "{text}");
    if measured > 0 {
        assert_eq!(source(&cache.info(&[], &[]).0, "copy_kernel"), "calibration");
        assert_eq!(source(&cache.info(&[], &[("PULC_COPY_KERNEL", "1")]).0, "copy_kernel"), "environment");
        assert_eq!(source(&cache.info(&[], &[("PULC_CALIBRATION", "off")]).0, "copy_kernel"), "default");
    }
    for spoilt in [&text[..text.len() / 2], "", "\u{0}\u{1}", &text.replace("machine", "nachine")] {
        std::fs::write(&file, spoilt).expect("it can be written");
        let (rows, words) = cache.info(&[], &[]);
        assert_eq!(source(&rows, "copy_kernel"), "default", "{spoilt:?}");
        assert!(words.contains("is ignored"), "{spoilt:?}: {words}");
    }
    // Nothing can be kept here: the defaults count, and nothing fails.
    std::fs::remove_dir_all(&cache.0).expect("it can be removed");
    std::fs::write(&cache.0, "in the way").expect("a file can stand there");
    let (rows, _) = cache.info(&[], &[]);
    assert_eq!(source(&rows, "copy_kernel"), "default");
    cache.info(&["--measure"], &[]);
    std::fs::remove_file(&cache.0).expect("it can be removed");
}

#[test]
fn the_first_job_of_a_machine_already_runs_with_what_was_measured() {
    let cache = Cache::new("first");
    let job = || {
        let program = env!("CARGO_BIN_EXE_pulc");
        let mut command = Command::new(program);
        command.args(["run", "--alone", "-n", "1", program, "info", "--json"]).env("XDG_CACHE_HOME", &cache.0);
        let finished = pulc_testkit::run_within(command, std::time::Duration::from_secs(300)).expect_success();
        let lines = finished.stdout.lines();
        lines.map(|line| serde_json::from_str(line).expect("one JSON object a line")).collect::<Vec<_>>()
    };
    let counts = |rows: &[serde_json::Value]| rows.iter().filter(|row| row["source"] == "calibration").count();
    let rows = job();
    let file = cache.file().expect("a file was written");
    let text = std::fs::read_to_string(&file).expect("it can be read");
    // A machine with one core measures nothing, a very busy one not all; what was measured counted in the first job.
    assert_eq!(text.lines().count(), counts(&rows) + 3, "{text}");
    assert_eq!(counts(&job()), counts(&rows));
    assert_eq!(std::fs::read_to_string(&file).expect("it can be read"), text, "it was measured a second time");
    let folder = std::fs::read_dir(cache.0.join("pulc")).expect("the folder of the file");
    assert_eq!(folder.count(), 1, "something else stayed there");
}

/// What `pulc` tells its own ranks, keepers and tests, what holds a secret, and what is read when PULC is built: no settings.
const NO_SETTINGS: &[&str] = &[
    "PULC_ALLOCATION",
    "PULC_ARRAY_INDEX",
    "PULC_ARRAY_JOB",
    "PULC_ATTEMPT",
    "PULC_BENCH_MARK",
    "PULC_COOKIE",
    "PULC_ENDS_WITH",
    "PULC_JOBID",
    "PULC_JOIN_TOKEN",
    "PULC_JOB_NETWORKS",
    "PULC_KEEPER",
    "PULC_LOCAL_RANK",
    "PULC_LOCAL_SIZE",
    "PULC_MPICH_MPI_H",
    "PULC_MPI_ABI_MPI_H",
    "PULC_NODE",
    "PULC_NODE_LIST",
    "PULC_OWNER",
    "PULC_QUEUE_JOB",
    "PULC_RANK",
    "PULC_RUN_DIR",
    "PULC_SIZE",
    "PULC_STAGE",
    "PULC_TERMINAL",
    "PULC_TEST_FULL",
    "PULC_TEST_SEED",
    "PULC_TEST_SKIPS",
    "PULC_TEST_TAG",
];

#[test]
fn every_parameter_and_every_variable_of_the_sources_has_a_row() {
    let cache = Cache::new("sources");
    let (rows, _) = cache.info(&[], &[]);
    let has = |field: &str, word: &str| rows.iter().any(|row| row[field] == word);
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let (mut folders, mut params, mut variables) = (vec![crates], 0, 0);
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).expect("a folder of the sources").flatten() {
            let path = entry.path();
            // Sources only, and none of tests' own parameters.
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if path.is_dir() && !["tests", "target", "examples", "benches"].contains(&&*name) {
                folders.push(path);
            } else if name.ends_with(".rs") {
                let text = std::fs::read_to_string(&path).expect("a source is text");
                let text = text.split("#[cfg(test)]\nmod ").next().unwrap_or_default();
                for declared in text.split(": Param =").skip(1) {
                    let word = declared.split("name: \"").nth(1).and_then(|rest| rest.split('"').next());
                    let Some(word) = word else { continue };
                    assert!(has("name", word), "{} declares {word}, which `pulc info` does not show", path.display());
                    params += 1;
                }
                for word in text.split("\"PULC_").skip(1).filter_map(|rest| rest.split('"').next()) {
                    let variable = format!("PULC_{word}");
                    let is_one = !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'_');
                    if is_one && !NO_SETTINGS.contains(&&*variable) {
                        assert!(
                            has("variable", &variable),
                            "{} knows {variable}, which `pulc info` does not show",
                            path.display()
                        );
                        variables += 1;
                    }
                }
            }
        }
    }
    assert!(
        params > 30 && variables > 10,
        "{params} parameters and {variables} variables: the sources are read wrongly"
    );
}
