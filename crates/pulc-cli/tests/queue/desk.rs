//! Nodes at which somebody works: jobs get there only what nobody else wants, on other nodes their share.

use crate::{cluster, end, nodes, output, submit, text, wait_for};
use pulc_testkit::wait_until;

/// Tells whether a process has what nobody else wants, or its usual share; then the same of one in a session of its own, when that has nothing
/// but the rest, or after half a minute. What is neither is shown: the policy (5 is the lowest) and the weight of the session, where this kernel weighs sessions.
/// A process in a group with `cpu.idle` needs neither.
const LOOK: &str = r#"
mount=$(sed -n 's/^[^ ]* \([^ ]*\) cgroup2 .*/\1/p' /proc/mounts | head -n 1)
of() {
    [ "$(cat "$mount$(sed -n 's/^0:://p' /proc/$1/cgroup)/cpu.idle" 2>/dev/null)" = 1 ] && echo rest && return
    case "$(sed 's/.*) //' /proc/$1/stat | cut -d' ' -f39) $(sed 's/.* nice //' /proc/$1/autogroup 2>/dev/null)" in
        "5 19" | "5 ") echo rest ;;
        "0 0" | "0 ") echo share ;;
        *" "*) sed 's/.*) //' /proc/$1/stat | cut -d' ' -f39; cat /proc/$1/autogroup ;;
    esac
}
session() { sed 's/.*) //' /proc/$1/stat | cut -d' ' -f4; }
own=$(of $$)
echo own $own
setsid sleep 100 &
until [ "$(session $!)" = $! ]; do sleep 0.1; done
for i in $(seq 300); do [ "$(of $!)" = rest ] && break; [ "$1 $own" = "wait rest" ] || break; sleep 0.1; done
echo apart $(of $!)
kill $!
"#;
const REST: &str = "own rest\napart rest\n";
const SHARE: &str = "own share\napart share\n";

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
    let told = |node: &str, wait: &str| {
        let job = submit(&cluster, 0, &["-w", node, "-o", "%j.out", "sh", script, wait]);
        wait_for(host, &job, "COMPLETED");
        output(&cluster, &format!("{job}.out"))
    };
    assert_eq!(told(&names[0], "at-once"), SHARE);
    // What was set reaches the other daemon a moment later; a kernel may refuse to weigh sessions at once to who isn't root.
    let mut last = String::new();
    let mut becomes = |wanted: &str, ask: &dyn Fn() -> String| {
        let found = wait_until(|| {
            last = ask();
            (last == wanted).then_some(())
        });
        assert!(found.is_some(), "{last}\n{}", host.pulc(&["config"]).stdout);
    };
    becomes(REST, &|| told(&names[1], "wait"));
    // One that is started at once, too, and on every node.
    let at_once = |wait: &str| host.pulc(&["run", "--hosts", &names[0], "sh", script, wait]).expect_success().stdout;
    host.pulc(&["config", "desk=all"]).expect_success();
    becomes(REST, &|| at_once("wait"));
    let refused = host.pulc(&["config", "desk=a b"]);
    assert!(refused.code() != Some(0) && refused.stderr.contains("no name of a node"), "{refused:?}");
    host.pulc(&["config", "desk="]).expect_success();
    becomes(SHARE, &|| at_once("at-once"));
    end(&cluster);
}
