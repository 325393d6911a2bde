//! Nodes at which somebody works: jobs get there only what nobody else wants, on other nodes their share.

use crate::{cluster, end, nodes, output, submit, text, wait_for};
use pulc_testkit::wait_until;

/// Tells the scheduling policy of a process and the weight of its session, as far as this kernel weighs sessions; then the same of one that
/// has opened a session of its own, when that is lowered, or after half a minute.
const LOOK: &str = r#"
policy() { sed 's/.*) //' /proc/$1/stat | cut -d' ' -f39; }
weight() { sed 's/.* nice //' /proc/$1/autogroup 2>/dev/null || echo none; }
echo own $(policy $$) $(weight $$)
setsid sleep 100 &
sleep 0.1
for i in $(seq 300); do [ "$(weight $!)" = 0 ] || break; [ "$1" = wait ] || break; sleep 0.1; done
echo apart $(policy $!) $(weight $!)
kill $!
"#;

#[test]
fn where_somebody_works_jobs_come_last() {
    let Some(cluster) = cluster("where_somebody_works_jobs_come_last", 2) else { return };
    let host = cluster.host(0);
    let names: Vec<String> = nodes(host).iter().map(|node| text(node, "name").to_owned()).collect();
    let script = cluster.directory().join("look");
    std::fs::write(&script, format!("#!/bin/sh\n{LOOK}")).unwrap();
    let script = script.to_str().expect("a temporary path is text");
    host.pulc(&["config", &format!("desk={}", names[1])]).expect_success();
    let shown = host.pulc(&["config"]).expect_success().stdout;
    assert!(shown.contains(&format!("desk={}\n", names[1])), "{shown}");
    // By sessions, or by groups: 5 is the lowest policy. Where the kernel shares out by groups, that of the job has it and its processes
    // need no policy.
    let told = |node: &str, wait: &str| {
        let job = submit(&cluster, 0, &["-w", node, "-o", "%j.out", "sh", script, wait]);
        wait_for(host, &job, "COMPLETED");
        output(&cluster, &format!("{job}.out"))
    };
    let weighs = std::fs::read_to_string("/proc/self/autogroup").is_ok_and(|text| text.contains("nice"));
    let (usual, lowest) = if weighs { ("0", "19") } else { ("none", "none") };
    assert_eq!(told(&names[0], "at-once"), format!("own 0 {usual}\napart 0 {usual}\n"));
    // What was set reaches the other daemon a moment later.
    let low = format!("own 5 {lowest}\napart 5 {lowest}\n");
    let found = wait_until(|| Some(told(&names[1], "wait")).filter(|text| text.starts_with("own 5")));
    assert_eq!(found.as_deref(), Some(low.as_str()), "{}", host.pulc(&["config"]).stdout);
    // One that is started at once, too, and on every node.
    host.pulc(&["config", "desk=all"]).expect_success();
    let at_once = || host.pulc(&["run", "--hosts", &names[0], "sh", script, "wait"]).expect_success().stdout;
    assert!(wait_until(|| Some(()).filter(|()| at_once() == low)).is_some(), "{}", at_once());
    let refused = host.pulc(&["config", "desk=a b"]);
    assert!(refused.code() != Some(0) && refused.stderr.contains("no name of a node"), "{refused:?}");
    host.pulc(&["config", "desk="]).expect_success();
    let usual = format!("own 0 {usual}\napart 0 {usual}\n");
    let at_once = || host.pulc(&["run", "--hosts", &names[0], "sh", script, "at-once"]).expect_success().stdout;
    assert!(wait_until(|| Some(()).filter(|()| at_once() == usual)).is_some(), "{}", at_once());
    end(&cluster);
}
