//! Jobs whose nodes lack what they need: on hosts in network namespaces, the second of which sees an empty directory where the first has
//! its files. What is missing travels, once, through each other where it can; what is wrong is said before anything is started, and nothing
//! is left of a job but the cache. `outputs` is about what comes back.

mod outputs;

use pulc_testkit::{Cluster, Finished, Host, run_within, skipped, token_in, wait_until};
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const PULC: &str = env!("CARGO_BIN_EXE_pulc");

/// Hosts of which all but the first see an empty directory as `home`, of so much memory.
struct Apart {
    cluster: Cluster,
    home: PathBuf,
}

impl Apart {
    fn new(test: &str, hosts: usize, room: &str) -> Option<Apart> {
        Apart::with(test, hosts, room, &[])
    }

    fn with(test: &str, hosts: usize, room: &str, environment: &[(&str, &str)]) -> Option<Apart> {
        let skip = |why: &dyn std::fmt::Display| skipped(test, &format!("namespaces cannot be made: {why}"));
        let cluster = Cluster::new(hosts, PULC).map_err(|why| skip(&why)).ok()?.with_environment(environment);
        let home = cluster.directory().join("home");
        fs::create_dir(&home).expect("the cluster has a directory");
        let probe = cluster.host(0).program_command("unshare").args(["--mount", "true"]).status();
        if !probe.is_ok_and(|status| status.success()) {
            skip(&"no mount namespaces");
            return None;
        }
        let up = cluster.host(0).pulc(&["up"]).expect_success();
        let apart = Apart { cluster, home };
        for host in &apart.cluster.hosts()[1..] {
            apart.inside(host, room, &["join", &token_in(&up.stdout)]).expect_success();
        }
        apart.cluster.hosts().iter().for_each(|host| host.wait_for_states("up", hosts));
        Some(apart)
    }

    /// `pulc` on a host whose home, and whose daemon's place, is an empty file system of this size.
    fn inside(&self, host: &Host, room: &str, arguments: &[&str]) -> Finished {
        let mut command = host.program_command("unshare");
        let script = "mount -t tmpfs -o mode=755 none \"$1\" && mkdir -p \"$2\" && mount -t tmpfs -o mode=700,size=$3 none \"$2\" && \
                      shift 3 && exec \"$@\"";
        command.args(["--mount", "--propagation", "private", "sh", "-c", script, "sh"]);
        command.arg(&self.home).arg(&host.state_dir).arg(room).arg(PULC).args(arguments);
        run_within(command, pulc_testkit::cluster::HANG)
    }

    fn script(&self, name: &str, text: &str) -> PathBuf {
        let path = self.home.join(name);
        fs::write(&path, format!("#!/bin/sh\n{text}\n")).expect("home can be written to");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("it is ours");
        path
    }

    fn run(&self, arguments: &[&str]) -> Finished {
        // A working directory that every node has.
        self.cluster.host(0).pulc(&[&["run", "--wdir", "/"], arguments].concat())
    }

    fn daemon(&self, host: usize) -> i32 {
        let is_daemon =
            |pid: &i32| fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| line.ends_with(b"\0daemon\0"));
        self.cluster.host(host).processes().into_iter().find(is_daemon).expect("a daemon runs")
    }

    /// A path as a host's daemon sees it.
    fn seen_by(&self, host: usize, path: &Path) -> PathBuf {
        PathBuf::from(format!("/proc/{}/root{}", self.daemon(host), path.display()))
    }

    /// What a host's daemon sees of its own place.
    fn listing(&self, host: usize, place: &str) -> Vec<String> {
        let root = self.seen_by(host, &self.cluster.host(host).state_dir.join("staged").join(place));
        let entries = fs::read_dir(root).into_iter().flatten().flatten();
        let mut names: Vec<String> = entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }

    /// Nothing of a job stays, on any node.
    fn expect_no_rooms(&self) {
        let left = || (0..self.cluster.hosts().len()).flat_map(|host| self.listing(host, "jobs")).collect::<Vec<_>>();
        assert!(wait_until(|| Some(()).filter(|()| left().is_empty())).is_some(), "left: {:?}", left());
    }
}

#[test]
fn a_program_that_nodes_lack_travels_to_them_once() {
    let Some(apart) = Apart::new("a_program_that_nodes_lack_travels_to_them_once", 3, "64m") else { return };
    let program = apart.script("program", "echo rank $PULC_RANK: $1 ${PULC_STAGE:-clean}");
    let program = program.to_str().expect("a temporary path is text");
    for _ in 0..2 {
        let ended = apart.run(&["-n", "3", "--nodes", "3", program, "one"]).expect_success();
        let mut lines: Vec<&str> = ended.stdout.lines().collect();
        lines.sort_unstable();
        assert_eq!(lines, ["rank 0: one clean", "rank 1: one clean", "rank 2: one clean"]);
        let came = [0, 1, 2].map(|host| apart.listing(host, "files").len());
        assert_eq!(came, [0, 1, 1], "to those that lack it, once");
    }
    // Where it was changed it travels again.
    apart.script("program", "echo changed");
    let ended = apart.run(&["-n", "3", "--nodes", "3", program]).expect_success();
    assert_eq!(ended.stdout, "changed\n".repeat(3));
    apart.expect_no_rooms();
    // Nothing travels that is not to, and what a node then lacks is said.
    let refused = apart.run(&["-n", "3", "--nodes", "3", "--stage", "never", program]);
    assert!(refused.stderr.contains("No such file") || refused.stderr.contains("no such file"), "{refused:?}");
    apart.cluster.host(0).pulc(&["down", "--all"]).expect_success();
    apart.cluster.expect_nothing_left();
}

#[test]
fn libraries_travel_that_no_system_has() {
    let test = "libraries_travel_that_no_system_has";
    let Some(apart) = Apart::new(test, 2, "64m") else { return };
    let home = &apart.home;
    fs::create_dir(home.join("lib")).expect("home can be written to");
    let sources = [
        ("deep.c", "int deep(void) { return 40; }"),
        ("near.c", "int deep(void); int near(void) { return deep() + 2; }"),
        ("main.c", "#include <stdio.h>\nint near(void); int main(void) { printf(\"%d\\n\", near()); return 0; }"),
    ];
    for (name, text) in sources {
        fs::write(home.join(name), text).expect("home can be written to");
    }
    let compile =
        |words: &[&str]| Command::new("cc").current_dir(home).args(words).status().is_ok_and(|status| status.success());
    let built = compile(&["-shared", "-fPIC", "-o", "lib/libdeep.so.1", "-Wl,-soname,libdeep.so.1", "deep.c"])
        && compile(&["-shared", "-fPIC", "-o", "lib/libnear.so", "near.c", "lib/libdeep.so.1", "-Wl,-rpath,$ORIGIN"])
        && compile(&[
            "-o",
            "prog",
            "main.c",
            "-Llib",
            "-lnear",
            "-Wl,-rpath-link,lib",
            "-Wl,--enable-new-dtags,-rpath,$ORIGIN/lib",
        ]);
    if !built {
        return skipped(test, "there is no C compiler");
    }
    let program = home.join("prog");
    let ended = apart.run(&["-n", "2", "--nodes", "2", program.to_str().expect("it is text")]).expect_success();
    assert_eq!(ended.stdout, "42\n42\n");
    assert_eq!(apart.listing(1, "files").len(), 3, "program and two libraries");
    apart.expect_no_rooms();
}

#[test]
fn inputs_lie_in_a_directory_of_the_jobs_own_on_every_node() {
    let Some(apart) = Apart::new("inputs_lie_in_a_directory_of_the_jobs_own_on_every_node", 2, "64m") else { return };
    fs::create_dir(apart.home.join("data")).expect("home can be written to");
    fs::write(apart.home.join("data/a"), "text of a\n").expect("home can be written to");
    let data = format!("{}:in/put", apart.home.join("data").display());
    let seen = "cat in/put/a && echo changed > in/put/a && test \"$PWD\" = \"$(pwd)\" && pwd";
    let ended = apart.run(&["-n", "2", "--nodes", "2", "--stage-in", &data, "sh", "-c", seen]).expect_success();
    assert_eq!(ended.stdout.matches("text of a\n").count(), 2, "{ended:?}");
    for line in ended.stdout.lines().filter(|line| line.starts_with('/')) {
        assert!(line.ends_with("/work") && !Path::new(line).exists(), "{line}");
    }
    assert_eq!(fs::read_to_string(apart.home.join("data/a")).expect("it is there"), "text of a\n");
    // The same without a daemon, on a local cluster and alone.
    for nodes in ["1", "2"] {
        let alone = ["run", "--alone", "-n", "2", "--nodes", nodes, "--stage-in", &data, "--stage-in", "/etc/passwd:p"];
        let ended = apart.cluster.host(0).pulc(&[&alone[..], &["sh", "-c", "cat in/put/a; test -f p; pwd"]].concat());
        let ended = ended.expect_success();
        assert_eq!(ended.stdout.matches("text of a\n").count(), 2, "{ended:?}");
        assert!(ended.stdout.lines().all(|line| !line.starts_with('/') || !Path::new(line).exists()), "{ended:?}");
    }
    apart.expect_no_rooms();
}

#[test]
fn what_is_wrong_with_files_is_said_before_anything_is_started() {
    let test = "what_is_wrong_with_files_is_said_before_anything_is_started";
    let Some(apart) = Apart::with(test, 2, "3m", &[("PULC_STAGE_MAX_MIB", "6")]) else { return };
    fs::write(apart.home.join("large"), vec![1; 5 << 20]).expect("home can be written to");
    fs::write(apart.home.join("larger"), vec![2; 7 << 20]).expect("home can be written to");
    let started = apart.home.join("started");
    let touch = format!("touch {}", started.display());
    let refused = |files: &[&str], said: &str| {
        let files: Vec<String> = files.iter().map(|name| apart.home.join(name).display().to_string()).collect();
        let mut words = vec!["-n", "2", "--nodes", "2"];
        files.iter().for_each(|file| words.extend(["--stage-in", file]));
        let ended = apart.run(&[&words[..], &["sh", "-c", &touch]].concat());
        assert!(ended.code() != Some(0) && ended.stderr.contains(said), "{said}: {ended:?}");
        assert!(!started.exists(), "{said}: it was started");
    };
    refused(&["no-such"], "No such file or directory");
    refused(&["large", "larger:large"], "two files would be called large in the job");
    refused(&["large:../large"], "is no name in the job's directory");
    // Node 1 has 3 MiB of disk and keeps 6 MiB at most.
    refused(&["large"], "make room on that disk");
    refused(&["larger"], "there can be no room for 7 MiB");
    assert!(apart.listing(1, "files").is_empty() && apart.listing(1, "coming").is_empty());
    apart.expect_no_rooms();
    apart.run(&["-n", "2", "--nodes", "2", "true"]).expect_success();
}

#[test]
fn a_node_that_is_lost_while_files_travel_ends_the_job_and_the_others_have_nothing_left() {
    let test = "a_node_that_is_lost_while_files_travel_ends_the_job_and_the_others_have_nothing_left";
    let Some(apart) = Apart::new(test, 3, "1g") else { return };
    for lost in [0, 1] {
        fs::write(apart.home.join("large"), vec![3 + lost; 300 << 20]).expect("home can be written to");
        let large = apart.home.join("large").display().to_string();
        let mut command = apart.cluster.host(0).command();
        command.args(["run", "--wdir", "/", "-n", "3", "--nodes", "3", "--stage-in", &large, "sleep", "1000"]);
        let job = std::thread::spawn(move || run_within(command, pulc_testkit::cluster::HANG));
        wait_until(|| Some(()).filter(|()| !apart.listing(1, "coming").is_empty())).expect("it travels");
        if lost == 0 {
            // Asked to stop, while it travels, from another node.
            let host = apart.cluster.host(2);
            let table = host.pulc(&["ps"]).expect_success().stdout;
            let number = table.split_whitespace().nth(1).expect("the job is seen").to_owned();
            host.pulc(&["kill", &number]).expect_success();
        } else {
            apart.cluster.host(1).kill_everything();
        }
        let ended = job.join().expect("it returned");
        let said = if lost == 0 { "was stopped by `pulc kill`" } else { "was lost" };
        assert!(ended.code() != Some(0) && ended.stderr.contains(said), "{ended:?}");
        let left = |host: usize| [apart.listing(host, "coming"), apart.listing(host, "jobs")].concat();
        let clean = || Some(()).filter(|()| left(0).is_empty() && left(2).is_empty());
        assert!(wait_until(clean).is_some(), "{:?} {:?}", left(0), left(2));
    }
    apart.cluster.host(0).wait_for_states("up", 2);
    apart.run(&["-n", "2", "--nodes", "2", "true"]).expect_success();
}

#[test]
fn a_queued_job_runs_the_program_that_was_submitted_though_it_was_removed_since() {
    let test = "a_queued_job_runs_the_program_that_was_submitted_though_it_was_removed_since";
    let Some(apart) = Apart::new(test, 2, "64m") else { return };
    let program = apart.script("program", "cat named");
    fs::write(apart.home.join("input"), "an input\n").expect("home can be written to");
    let host = apart.cluster.host(0);
    let node = host.states().into_iter().map(|(name, _)| name).nth(1).expect("there are two nodes");
    let input = format!("{}:named", apart.home.join("input").display());
    let output = apart.cluster.directory().join("output");
    let words = ["submit", "--parsable", "--hold", "-w", &node, "-D", "/", "--stage-in", &input, "-o"];
    let words = [&words[..], &[output.to_str().expect("it is text"), program.to_str().expect("it is text")]].concat();
    let number = host.pulc(&words).expect_success().stdout.trim().to_owned();
    fs::remove_file(&program).expect("it is there");
    fs::write(apart.home.join("input"), "something else\n").expect("home can be written to");
    host.pulc(&["release", &number]).expect_success();
    let text = || fs::read_to_string(&output).ok().filter(|text| !text.is_empty());
    assert_eq!(wait_until(text).expect("the job has run"), "an input\n");
    apart.expect_no_rooms();
    let refused = host.pulc(&["submit", "--stage-in", "/no/such/file", "true"]);
    assert!(refused.code() != Some(0) && refused.stderr.contains("/no/such/file"), "{refused:?}");
    host.pulc(&["down", "--all"]).expect_success();
    apart.cluster.expect_nothing_left();
}

/// Of guardian, keeper and psid any two may be killed in the same instant.
#[test]
fn the_directory_of_a_job_goes_whoever_is_killed() {
    let passing = std::env::temp_dir().join(format!("pulc-staging-{}", std::process::id()));
    fs::create_dir(&passing).unwrap();
    for victims in [&["psid"][..], &["keeper"], &["psid", "keeper"], &["psid", "guardian"], &["keeper", "guardian"]] {
        let mut command = Command::new(PULC);
        command.args(["run", "-n", "1", "--stage", "dir", "sh", "-c", "echo $PPID; exec sleep 1000"]);
        command.env("TMPDIR", &passing).env("PULC_INSTANCE", format!("staging{}", std::process::id()));
        let mut run = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(run.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let keeper = line.trim().to_owned();
        let status = fs::read_to_string(format!("/proc/{keeper}/status")).unwrap();
        let guardian = status.lines().find_map(|line| line.strip_prefix("PPid:")).unwrap().trim().to_owned();
        assert!(fs::read_dir(&passing).unwrap().next().is_some(), "the job has no directory");
        let pid_of = |victim: &&str| match *victim {
            "psid" => run.id().to_string(),
            "keeper" => keeper.clone(),
            _ => guardian.clone(),
        };
        let killed = Command::new("kill").arg("-9").args(victims.iter().map(pid_of)).status().unwrap();
        assert!(killed.success(), "{victims:?}");
        run.wait().unwrap();
        let is_empty = || fs::read_dir(&passing).unwrap().next().is_none().then_some(());
        assert!(wait_until(is_empty).is_some(), "with {victims:?} killed something is left in {}", passing.display());
    }
    fs::remove_dir(&passing).unwrap();
}
