//! What the queue costs: submissions a second that are on disk, and the time from submission to start. Printed, never judged: run with
//! `cargo test -p pulc-cli --test queue -- --ignored --nocapture figures`.

use crate::{cluster, end, job, submit, wait_for};
use std::time::Instant;

#[test]
#[ignore = "a measurement"]
fn figures_of_submission_and_start() {
    let Some(cluster) = cluster("figures_of_submission_and_start", 1) else { return };
    let host = cluster.host(0);
    // One client after the other, each a process of its own, eight at a time.
    let begin = Instant::now();
    let (clients, each) = (8, 25);
    std::thread::scope(|scope| {
        for _ in 0..clients {
            scope.spawn(|| (0..each).for_each(|_| drop(submit(&cluster, 0, &["-H", "true"]))));
        }
    });
    let took = begin.elapsed();
    println!("{} submissions by processes of their own in {took:?}", clients * each);
    let begin = Instant::now();
    let array = submit(&cluster, 0, &["-H", "-a", "1-5000", "true"]);
    println!("an array of 5000 tasks accepted in {:?} (job {array})", begin.elapsed());
    let mut starts = Vec::new();
    for _ in 0..20 {
        let number = submit(&cluster, 0, &["-o", "/dev/null", "true"]);
        wait_for(host, &number, "COMPLETED");
        let job = job(host, &number);
        starts.push(job["started_ms"].as_u64().unwrap_or(0) - job["submitted_ms"].as_u64().unwrap_or(0));
    }
    starts.sort_unstable();
    println!(
        "from submission to start: median {} ms, at most {} ms",
        starts[starts.len() / 2],
        starts[starts.len() - 1]
    );
    end(&cluster);
}
