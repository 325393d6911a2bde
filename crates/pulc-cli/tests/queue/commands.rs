//! The commands that people use at a terminal: slots for a shell, output as it comes, the live table, events, numbers for monitoring, a
//! daemon started anew, and the names that another queue has for these things.

use crate::{array, cluster, end, job, nodes, output, submit, text, wait_for};
use pulc_testkit::cluster::HANG;
use pulc_testkit::{Cluster, finish_within, start, token_in, wait_until};
use rustix::process::{Pid, Signal};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::process::{Child, Command, Stdio};

/// Waits until all that is left is slots that nobody holds.
fn expect_no_slot_held(cluster: &Cluster) {
    let host = cluster.host(0);
    let free = wait_until(|| Some(nodes(host)).filter(|nodes| nodes.iter().all(|node| node["used"] == 0)));
    assert!(free.is_some(), "slots are held: {:?}\n{}", nodes(host), host.pulc(&["queue"]).stdout);
}

fn kill(child: &Child, signal: Signal) {
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw).expect("a child has a pid");
    rustix::process::kill_process(pid, signal).expect("a child that was not waited for can be signalled");
}

/// What a file of the cluster's directory holds when it holds something.
fn read_when_there(cluster: &Cluster, name: &str) -> String {
    wait_until(|| Some(output(cluster, name)).filter(|text| text.ends_with('\n')))
        .unwrap_or_else(|| panic!("{name} is never written"))
}

#[test]
fn slots_for_a_shell_are_given_back_when_it_ends() {
    let Some(cluster) = cluster("slots_for_a_shell_are_given_back_when_it_ends", 2) else { return };
    let host = cluster.host(1);
    let alloc = |arguments: &[&str]| {
        let mut command = host.command();
        command.args(["alloc"]).args(arguments).current_dir(cluster.directory());
        start(command)
    };
    // Four slots on two nodes, and `pulc run` puts its processes there.
    let inside = format!("{} run -n 4 sh -c 'echo $PULC_RANK on node $PULC_NODE'; exit 7", crate::PULC);
    let said = finish_within(alloc(&["-n", "4", "sh", "-c", &inside]), HANG);
    assert_eq!(said.code(), Some(7), "{said:?}");
    let mut lines: Vec<&str> = said.stdout.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["0 on node 0", "1 on node 0", "2 on node 1", "3 on node 1"], "{said:?}");
    expect_no_slot_held(&cluster);
    // The command is killed.
    let said = finish_within(alloc(&["sh", "-c", "kill -9 $$"]), HANG);
    assert_eq!(said.code(), Some(128 + 9), "{said:?}");
    expect_no_slot_held(&cluster);
    // The one who asked is killed; the shell lives on without slots.
    let mut asked = alloc(&["sh", "-c", "echo $PULC_QUEUE_JOB > left; until [ -e stop ]; do sleep 0.05; done"]);
    let number = read_when_there(&cluster, "left").trim().to_owned();
    kill(&asked, Signal::KILL);
    asked.wait().unwrap();
    expect_no_slot_held(&cluster);
    std::fs::write(cluster.directory().join("stop"), "").unwrap();
    let history = host.pulc(&["history"]).stdout;
    assert!(history.lines().any(|line| line.contains(&number) && line.contains("CANCELLED")), "{history}");
    end(&cluster);
}

#[test]
fn a_shell_keeps_its_slots_through_restarts_and_what_runs_there_ends_with_them() {
    let Some(cluster) = cluster("a_shell_keeps_its_slots_through_restarts_and_what_runs_there_ends_with_them", 2)
    else {
        return;
    };
    let host = cluster.host(1);
    let mut command = host.command();
    let step = format!("{} run -n 2 sh -c 'echo step > step; sleep 1000'", crate::PULC);
    let script =
        format!("echo $PULC_QUEUE_JOB > number; while [ ! -e go ]; do sleep 0.05; done; {step}; echo over > over");
    command.args(["alloc", "-n", "2", "sh", "-c", &script]).current_dir(cluster.directory());
    let alloc = start(command);
    let number = read_when_there(&cluster, "number").trim().to_owned();
    // The daemon that it speaks to, and the controller's.
    for host in cluster.hosts().iter().rev() {
        let said = host.pulc(&["restart"]).expect_success();
        assert!(said.stdout.contains("is up again"), "{said:?}");
        host.wait_for_states("up", 2);
    }
    wait_until(|| Some(()).filter(|()| host.pulc(&["queue"]).code() == Some(0))).expect("the queue comes back");
    assert_eq!(job(host, &number)["state"], "RUNNING", "{}", job(host, &number));
    std::fs::write(cluster.directory().join("go"), "").unwrap();
    assert_eq!(read_when_there(&cluster, "step"), "step\n");
    // An operator takes the slots away: what was started in them ends, the shell goes on.
    host.pulc(&["cancel", &number]).expect_success();
    assert_eq!(read_when_there(&cluster, "over"), "over\n");
    let said = finish_within(alloc, HANG);
    assert!(said.stderr.contains(&format!("job {number} has ended: it was cancelled")), "{said:?}");
    end(&cluster);
}

#[test]
fn attach_shows_all_output_of_a_job_on_another_node_and_ends_as_it_does() {
    let Some(cluster) = cluster("attach_shows_all_output_of_a_job_on_another_node_and_ends_as_it_does", 2) else {
        return;
    };
    let host = cluster.host(0);
    let there = text(&nodes(host)[1], "name").to_owned();
    let script = "echo first; while [ ! -e go ]; do sleep 0.05; done; seq 5000; echo last; exit 3";
    let number =
        submit(&cluster, 0, &["-w", &there, "-o", "%x-%N.txt", "-e", "errors", "-J", "named", "sh", "-c", script]);
    wait_for(host, &number, "RUNNING");
    let mut command = host.command();
    command.args(["attach", &number]).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap());
    let mut first = String::new();
    lines.read_line(&mut first).unwrap();
    assert_eq!(first, "first\n");
    // It was seen while the job runs.
    std::fs::write(cluster.directory().join("go"), "").unwrap();
    let mut rest = String::new();
    lines.read_to_string(&mut rest).unwrap();
    let all: String = (1..=5000).map(|n| format!("{n}\n")).chain(["last\n".to_owned()]).collect();
    assert!(rest == all, "{} bytes of output instead of {}", rest.len(), all.len());
    assert_eq!(finish_within(child, HANG).code(), Some(3));
    // And once more when it is over; what has no output says so.
    let said = host.pulc(&["attach", &number]);
    assert_eq!((said.code(), said.stdout.lines().count()), (Some(3), 5002), "{said:?}");
    let held = submit(&cluster, 0, &["-H", "true"]);
    host.pulc(&["attach", &held]).expect_refusal(1, "has not been started");
    end(&cluster);
}

#[test]
fn a_job_runs_where_it_is_told_also_without_its_own_node() {
    let Some(cluster) = cluster("a_job_runs_where_it_is_told_also_without_its_own_node", 3) else { return };
    let host = cluster.host(0);
    let names: Vec<String> = host.states().into_iter().map(|(name, _)| name).collect();
    let here = text(&nodes(host)[0], "name").to_owned();
    let others: Vec<&str> = names.iter().map(String::as_str).filter(|name| *name != here).collect();
    let run = |hosts: &str, n: &str| {
        let mut command = host.command();
        command.args(["run", "-n", n, "--hosts", hosts, "sh", "-c", "echo $PULC_RANK $PULC_NODE $(cat)"]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        child.stdin.take().unwrap().write_all(b"word").unwrap();
        let said = finish_within(child, HANG).expect_success();
        let mut lines: Vec<String> = said.stdout.lines().map(|line| line.trim().to_owned()).collect();
        lines.sort_unstable();
        lines
    };
    assert_eq!(run(others[0], "1"), ["0 0 word"]);
    assert_eq!(run(&others.join(","), "2"), ["0 0 word", "1 1"]);
    // Its own node among them, and not as the first.
    assert_eq!(run(&format!("{},{here}", others[1]), "2"), ["0 0 word", "1 1"]);
    // What fails there is told here.
    let said = host.pulc(&["run", "--hosts", others[0], "/no/such/program"]);
    assert!(said.code() != Some(0) && said.stderr.contains("/no/such/program"), "{said:?}");
    end(&cluster);
}

/// A program on a terminal of its own, with what it draws.
struct OnTerminal {
    child: Child,
    screen: std::sync::Arc<std::sync::Mutex<String>>,
}

impl OnTerminal {
    /// `script` makes the terminal; what is typed is written to its standard input.
    fn start(mut command: Command) -> OnTerminal {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let screen = std::sync::Arc::new(std::sync::Mutex::new(String::new()));
        let (mut from, to) = (child.stdout.take().unwrap(), screen.clone());
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(count @ 1..) = from.read(&mut bytes) {
                to.lock().unwrap().push_str(&String::from_utf8_lossy(&bytes[..count]));
            }
        });
        OnTerminal { child, screen }
    }

    fn expect(&self, word: &str) {
        let seen = wait_until(|| Some(()).filter(|()| self.screen.lock().unwrap().contains(word)));
        assert!(seen.is_some(), "{word:?} is not drawn: {}", self.screen.lock().unwrap());
    }

    fn press(&mut self, key: &str) {
        let stdin = self.child.stdin.as_mut().unwrap();
        stdin.write_all(key.as_bytes()).and_then(|()| stdin.flush()).unwrap();
    }
}

#[test]
fn top_draws_nodes_and_jobs_acts_on_the_chosen_one_and_leaves_the_terminal_as_it_was() {
    let name = "top_draws_nodes_and_jobs_acts_on_the_chosen_one_and_leaves_the_terminal_as_it_was";
    if !Command::new("script").arg("--version").output().is_ok_and(|said| said.status.success()) {
        return pulc_testkit::skipped(name, "there is no `script` (util-linux) to make a terminal");
    }
    let Some(cluster) = cluster(name, 1) else { return };
    let host = cluster.host(0);
    let first = submit(&cluster, 0, &["-J", "first-one", "sleep", "1000"]);
    let second = submit(&cluster, 0, &["-J", "second-one", "sleep", "1000"]);
    wait_for(host, &first, "RUNNING");
    wait_for(host, &second, "RUNNING");
    let once = host.pulc(&["top", "--once"]).expect_success().stdout;
    assert!(once.contains("first-one") && once.contains("second-one") && once.contains("STATE"), "{once}");
    let mut command = host.program_command("script");
    let line = format!("stty rows 40 cols 150; stty > before; {} top; echo ended with $?; stty > after", crate::PULC);
    command.args(["-q", "-e", "-f", "-c", &line, "/dev/null"]).current_dir(cluster.directory()).env("TERM", "xterm");
    let mut top = OnTerminal::start(command);
    top.expect("first-one");
    top.expect("q quit");
    // The second one, which is cancelled; the first one stays.
    top.press("j");
    // Its line is marked before anything is done about it.
    let marked = format!("\x1b[7m{second} ");
    top.expect(&marked);
    top.press("c");
    wait_for(host, &second, "CANCELLED");
    assert_eq!(job(host, &first)["state"], "RUNNING");
    top.press("q");
    top.expect("ended with 0");
    finish_within(top.child, HANG);
    assert_eq!(output(&cluster, "before"), read_when_there(&cluster, "after"));
    host.pulc(&["cancel", &first]).expect_success();
    wait_for(host, &first, "CANCELLED");
    end(&cluster);
}

#[test]
fn events_are_told_as_they_happen_and_numbers_are_served() {
    let Some(cluster) = cluster("events_are_told_as_they_happen_and_numbers_are_served", 1) else { return };
    let host = cluster.host(0);
    let mut command = host.command();
    command.args(["events", "--follow", "--json"]).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut follower = command.spawn().unwrap();
    let mut lines = BufReader::new(follower.stdout.take().unwrap());
    let mut expect = |word: &str| {
        let mut line = String::new();
        while !line.contains(word) {
            line.clear();
            assert!(lines.read_line(&mut line).unwrap() > 0, "the events end before {word:?}");
        }
        let event: serde_json::Value = serde_json::from_str(&line).unwrap();
        assert!(event["at_ms"].as_u64().is_some(), "{line}");
    };
    expect("is up");
    let number = submit(&cluster, 0, &["-J", "watched", "true"]);
    expect(&format!("job {number} (watched) was submitted"));
    expect(&format!("job {number} completed"));
    kill(&follower, Signal::KILL);
    follower.wait().unwrap();
    let printed = host.pulc(&["metrics"]).expect_success().stdout;
    assert!(printed.contains("pulc_jobs_ended{outcome=\"completed\"} 1"), "{printed}");
    assert!(printed.contains("# TYPE pulc_node_up gauge"), "{printed}");
    // The same over HTTP, asked on that host.
    let mut command = host.command();
    command
        .args(["metrics", "--serve", "127.0.0.1:0"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    let mut server = command.spawn().unwrap();
    let mut line = String::new();
    BufReader::new(server.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let address = line.trim().strip_prefix("http://").and_then(|text| text.strip_suffix("/metrics")).unwrap();
    let (ip, port) = address.split_once(':').unwrap();
    let get = |path: &str| {
        // The shell is on that host's network, the test is not.
        let ask =
            format!("exec 3<>/dev/tcp/{ip}/{port}; printf 'GET {path} HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n' >&3; cat <&3");
        let mut command = host.program_command("bash");
        command.args(["-c", &ask]);
        finish_within(start(command), HANG).stdout
    };
    let numbers = get("/metrics");
    assert!(
        numbers.starts_with("HTTP/1.1 200 OK\r\n") && numbers.contains("pulc_jobs{state=\"running\"} 0"),
        "{numbers}"
    );
    assert!(get("/else").starts_with("HTTP/1.1 404"));
    kill(&server, Signal::KILL);
    server.wait().unwrap();
    end(&cluster);
}

#[test]
fn fingers_that_know_another_queue_find_its_commands() {
    let Some(cluster) = cluster("fingers_that_know_another_queue_find_its_commands", 2) else { return };
    let host = cluster.host(0);
    let bin = cluster.directory().join("bin");
    std::fs::create_dir(&bin).unwrap();
    for name in ["srun", "sbatch", "squeue", "scancel", "sinfo", "sacct", "salloc"] {
        std::os::unix::fs::symlink(crate::PULC, bin.join(name)).unwrap();
    }
    let call = |name: &str, arguments: &[&str]| {
        let mut command = host.program_command(bin.join(name).to_str().unwrap());
        command.args(arguments).current_dir(cluster.directory());
        finish_within(start(command), HANG)
    };
    let script = cluster.directory().join("a.sh");
    let body = "#!/bin/bash\n#SBATCH --partition=main\n#SBATCH --ntasks-per-node=2 -N 2\necho $SLURM_JOB_ID $SLURM_NTASKS $1\nsleep 1000\n";
    std::fs::write(&script, body).unwrap();
    let said = call("sbatch", &["-p", "debug", "-J", "mine", "-t", "1:00:00", "a.sh", "word"]).expect_success();
    let number = said.stdout.trim().strip_prefix("Submitted batch job ").expect(&said.stdout).to_owned();
    assert!(said.stderr.contains("--partition"), "{said:?}");
    let running = wait_for(host, &number, "RUNNING");
    assert_eq!((running["ranks"].as_u64(), running["limit_ms"].as_u64()), (Some(4), Some(3_600_000)), "{running}");
    assert_eq!(read_when_there(&cluster, &format!("slurm-{number}.out")), format!("{number} 4 word\n"));
    let mine = call("squeue", &["--me", "-t", "R", "-h"]).expect_success().stdout;
    assert!(mine.lines().count() == 1 && mine.contains("mine") && mine.contains("RUNNING"), "{mine}");
    assert!(call("squeue", &["-t", "PD", "-h"]).expect_success().stdout.is_empty());
    call("squeue", &["-t", "nonsense"]).expect_refusal(1, "is no state");
    let waiting =
        call("sbatch", &["--parsable", "-n", "4", "--wrap", "true"]).expect_success().stdout.trim().to_owned();
    let why = host.pulc(&["job", &waiting]).expect_success().stdout;
    assert!(why.contains("why") && why.contains(&format!("it waits for job {number} on")), "{why}");
    assert!(why.contains("may start") && why.contains("at the latest"), "{why}");
    let nodes = call("sinfo", &["-N", "-l"]).expect_success().stdout;
    assert!(nodes.contains("2/2"), "{nodes}");
    let ran = call("srun", &["-n2", "-N", "2", "-l", "--mpi=pmi2", "hostname"]).expect_success();
    assert!(ran.stdout.contains("[0] ") && ran.stdout.contains("[1] "), "{ran:?}");
    call("scancel", &["-n", "nobody"]).expect_success();
    call("scancel", &["--me", "--name", "mine"]).expect_success();
    wait_for(host, &number, "CANCELLED");
    wait_for(host, &waiting, "COMPLETED");
    let history = call("sacct", &["-j", &waiting]).expect_success().stdout;
    assert!(history.contains("COMPLETED") && history.lines().count() == 2, "{history}");
    let inside = call("salloc", &["-n", "1", "-A", "group", "sh", "-c", "echo $PULC_NODE_LIST"]).expect_success();
    assert!(inside.stdout.trim().ends_with(":1"), "{inside:?}");
    let ended = || array(&host.pulc(&["history", "--json"]).stdout);
    assert!(wait_until(|| Some(()).filter(|()| ended().len() == 3)).is_some(), "{:?}", ended());
    end(&cluster);
}

#[test]
fn a_token_need_not_stand_on_a_command_line() {
    let Ok(cluster) = Cluster::new(4, crate::PULC) else {
        return pulc_testkit::skipped("a_token_need_not_stand_on_a_command_line", "network namespaces cannot be made");
    };
    let first = cluster.host(0);
    first.pulc(&["up"]).expect_success();
    let line = first.pulc(&["token"]).expect_success().stdout;
    let file = cluster.directory().join("token");
    std::fs::write(&file, &line).unwrap();
    let join = |host: usize, arguments: &[&str], variable: Option<&str>| {
        let mut command = cluster.host(host).command();
        command.arg("join").args(arguments).envs(variable.map(|token| ("PULC_JOIN_TOKEN", token)));
        command.stdin(std::fs::File::open(&file).unwrap()).stdout(Stdio::piped()).stderr(Stdio::piped());
        finish_within(command.spawn().unwrap(), HANG)
    };
    join(1, &[], None).expect_refusal(1, "no token given");
    join(1, &["-"], None).expect_success();
    join(2, &["--token-file", file.to_str().unwrap()], None).expect_success();
    join(3, &[], Some(&token_in(&line))).expect_success();
    first.wait_for_states("up", 4);
    end(&cluster);
}
