//! A job's life in the queue, as its user sees it.

use crate::{array, cluster, end, job, nodes, output, submit, text, wait_for};

#[test]
fn jobs_run_in_their_turn_and_their_output_is_complete() {
    let Some(cluster) = cluster("jobs_run_in_their_turn_and_their_output_is_complete", 2) else { return };
    let host = cluster.host(0);
    // Four ranks on two nodes; output of both comes into one file on the first.
    let script = "i=0; while [ $i -lt 200 ]; do echo $PULC_RANK line $i; i=$((i+1)); done";
    let wide = submit(&cluster, 1, &["-n", "4", "-o", "wide.out", "sh", "-c", script]);
    wait_for(host, &wide, "COMPLETED");
    let text_of_wide = output(&cluster, "wide.out");
    for rank in 0..4 {
        let lines: Vec<&str> = text_of_wide.lines().filter(|line| line.starts_with(&format!("{rank} "))).collect();
        assert_eq!(lines.len(), 200, "rank {rank}");
        assert_eq!(lines[199], format!("{rank} line 199"));
    }
    // More than there is room for: the rest waits and says why.
    let first = submit(&cluster, 0, &["-n", "4", "-t", "10", "sleep", "1000"]);
    wait_for(host, &first, "RUNNING");
    let second = submit(&cluster, 1, &["-n", "2", "-o", "second.out", "sh", "-c", "echo done; exit 3"]);
    let waiting = wait_for(host, &second, "PENDING");
    assert!(text(&waiting, "text").contains(&format!("it waits for job {first}")), "{waiting}");
    assert!(waiting["may_start_ms"].as_u64().is_some(), "{waiting}");
    host.pulc(&["cancel", &first]).expect_success();
    wait_for(host, &first, "CANCELLED");
    let failed = wait_for(host, &second, "FAILED");
    // The first rank that fails ends the other one, which may not have come to print.
    assert_eq!(failed["exit_code"].as_u64(), Some(3), "{failed}");
    assert!(output(&cluster, "second.out").starts_with("done\n"));
    let history = array(&cluster.host(1).pulc(&["history", "--json"]).expect_success().stdout);
    assert_eq!(history.len(), 3, "{history:?}");
    end(&cluster);
}

#[test]
fn a_script_runs_once_and_uses_its_slots_by_pulc_run() {
    let Some(cluster) = cluster("a_script_runs_once_and_uses_its_slots_by_pulc_run", 2) else { return };
    let script = cluster.directory().join("job.sh");
    let program = crate::PULC;
    let body = format!(
        "#!/bin/sh\n#SBATCH -n 4 --job-name=wordy\n#SBATCH --unknown-option=7\n#PULC -o %x-%j.txt\necho script $PULC_QUEUE_JOB $SLURM_NTASKS $1\n\
         {program} run -n 4 sh -c 'echo rank $PULC_RANK of $PULC_SIZE on node $PULC_NODE'\n"
    );
    std::fs::write(&script, body).unwrap();
    let number = submit(&cluster, 0, &[script.to_str().unwrap(), "argument"]);
    wait_for(cluster.host(0), &number, "COMPLETED");
    let said = output(&cluster, &format!("wordy-{number}.txt"));
    assert!(said.starts_with(&format!("script {number} 4 argument\n")), "{said}");
    assert_eq!(said.lines().filter(|line| line.starts_with("rank ")).count(), 4, "{said}");
    assert_eq!(said.lines().filter(|line| line.ends_with("on node 1")).count(), 2, "{said}");
    end(&cluster);
}

#[test]
fn an_urgent_job_makes_another_stand_still_and_it_goes_on_afterwards() {
    let Some(cluster) = cluster("an_urgent_job_makes_another_stand_still_and_it_goes_on_afterwards", 2) else { return };
    let host = cluster.host(0);
    let count = "i=0; while [ $i -lt 40 ]; do echo $PULC_RANK $i; i=$((i+1)); sleep 0.05; done";
    let long = submit(&cluster, 0, &["-n", "4", "-o", "long.out", "-t", "10", "sh", "-c", count]);
    wait_for(host, &long, "RUNNING");
    let until_told = "while [ ! -e go ]; do sleep 0.05; done";
    let urgent = submit(&cluster, 1, &["-n", "2", "-q", "urgent", "-o", "urgent.out", "sh", "-c", until_told]);
    wait_for(host, &urgent, "RUNNING");
    wait_for(host, &long, "SUSPENDED");
    let before = output(&cluster, "long.out");
    std::thread::sleep(std::time::Duration::from_millis(500));
    assert_eq!(output(&cluster, "long.out"), before, "a job that stands still has printed something");
    std::fs::write(cluster.directory().join("go"), "").unwrap();
    wait_for(host, &urgent, "COMPLETED");
    wait_for(host, &long, "COMPLETED");
    let all = output(&cluster, "long.out");
    for rank in 0..4 {
        let own: Vec<String> =
            all.lines().filter_map(|line| line.strip_prefix(&format!("{rank} "))).map(str::to_owned).collect();
        assert_eq!(own, (0..40).map(|n| n.to_string()).collect::<Vec<_>>());
    }
    end(&cluster);
}

#[test]
fn arrays_dependencies_and_holds_are_kept() {
    let Some(cluster) = cluster("arrays_dependencies_and_holds_are_kept", 1) else { return };
    let host = cluster.host(0);
    let array = submit(
        &cluster,
        0,
        &["-a", "1-3%1", "-H", "-o", "task-%a.out", "sh", "-c", "echo $PULC_ARRAY_INDEX; [ $PULC_ARRAY_INDEX != 2 ]"],
    );
    let ok = submit(&cluster, 0, &["-d", &format!("ok:{array}"), "true"]);
    let any = submit(&cluster, 0, &["-d", &format!("any:{array}"), "true"]);
    assert!(text(&wait_for(host, &array, "PENDING"), "text").contains("held back"));
    assert!(text(&wait_for(host, &ok, "PENDING"), "text").contains("it waits until job"));
    host.pulc(&["release", &array]).expect_success();
    wait_for(host, &any, "COMPLETED");
    wait_for(host, &ok, "DEADLINE");
    for index in 1..=3 {
        assert_eq!(output(&cluster, &format!("task-{index}.out")), format!("{index}\n"));
    }
    assert_eq!(job(host, &format!("{array}_2"))["state"], "FAILED");
    let over = submit(&cluster, 0, &["-t", "1s", "sleep", "1000"]);
    wait_for(host, &over, "TIMEOUT");
    end(&cluster);
}

#[test]
fn a_drained_node_finishes_its_work_and_gets_nothing_new() {
    let Some(cluster) = cluster("a_drained_node_finishes_its_work_and_gets_nothing_new", 2) else { return };
    let host = cluster.host(0);
    let names: Vec<String> = nodes(host).iter().map(|node| text(node, "name").to_owned()).collect();
    let running = submit(&cluster, 0, &["-n", "2", "-w", &names[1], "sh", "-c", "sleep 1"]);
    wait_for(host, &running, "RUNNING");
    host.pulc(&["drain", &names[1], "-r", "a new disk"]).expect_success();
    let elsewhere = submit(&cluster, 0, &["-n", "2", "true"]);
    let there = submit(&cluster, 0, &["-w", &names[1], "true"]);
    wait_for(host, &running, "COMPLETED");
    let done = wait_for(host, &elsewhere, "COMPLETED");
    assert_eq!(done["nodes"][0]["name"], names[0].as_str(), "{done}");
    assert!(text(&job(host, &there), "text").contains("drained: a new disk"), "{}", job(host, &there));
    host.wait_for_states("draining", 1);
    host.pulc(&["undrain", &names[1]]).expect_success();
    wait_for(host, &there, "COMPLETED");
    end(&cluster);
}

#[test]
fn what_makes_no_sense_is_refused_with_what_and_why() {
    let Some(cluster) = cluster("what_makes_no_sense_is_refused_with_what_and_why", 1) else { return };
    let host = cluster.host(0);
    for (arguments, word) in [
        (&["submit", "-n", "99", "true"][..], "99 slots asked for, but the 1 nodes that fit have 2"),
        (&["submit", "-w", "nowhere", "true"], "there is no node \"nowhere\""),
        (&["submit", "-C", "gpu", "true"], "no node of this cluster fits"),
        (&["submit", "-d", "ok:77", "true"], "there is no job 77"),
        (&["submit", "-n", "1", "-N", "2", "true"], "2 nodes asked for"),
        (&["submit", "-t", "0", "true"], "a time limit of 0"),
        (&["submit", "--reservation", "none", "true"], "there is no reservation \"none\""),
        (&["submit"], "no program given"),
        (&["job", "77"], "there is no job 77"),
        (&["cancel", "77"], "there is no job 77"),
        (&["drain", "nowhere"], "there is no node \"nowhere\""),
        (&["reserve", "mine"], "a reservation has an end"),
    ] {
        let said = host.pulc(arguments);
        assert!(said.code() != Some(0) && said.stderr.contains(word), "{arguments:?}: {said:?}");
    }
    let missing = submit(&cluster, 0, &["/no/such/program"]);
    let failed = wait_for(host, &missing, "FAILED");
    assert!(text(&failed, "text").contains("/no/such/program"), "{failed}");
    let unwritable = submit(&cluster, 0, &["-o", "/no/such/directory/out", "true"]);
    let failed = wait_for(host, &unwritable, "FAILED");
    assert!(text(&failed, "text").contains("/no/such/directory/out"), "{failed}");
    // A disk that takes nothing: a job whose output is lost does not go on as if it were kept.
    let full = submit(&cluster, 0, &["-o", "/dev/full", "sh", "-c", "echo word; sleep 1000"]);
    let failed = wait_for(host, &full, "FAILED");
    assert!(text(&failed, "text").contains("output cannot be written to /dev/full"), "{failed}");
    end(&cluster);
}

#[test]
fn what_is_submitted_many_times_is_as_many_jobs_and_the_first_bad_end_is_told() {
    let Some(cluster) = cluster("what_is_submitted_many_times_is_as_many_jobs_and_the_first_bad_end_is_told", 2) else {
        return;
    };
    let numbers = submit(&cluster, 1, &["-H", "--times", "20", "true"]);
    let mut numbers: Vec<u64> = numbers.lines().map(|line| line.parse().expect("a number a line")).collect();
    numbers.dedup();
    assert!(numbers.is_sorted() && numbers.len() == 20, "{numbers:?}");
    assert_eq!(array(&cluster.host(0).pulc(&["queue", "--json"]).stdout).len(), 20);
    let directory = cluster.directory().to_str().expect("a temporary path is text").to_owned();
    // Only the second one finds what the first one leaves.
    let script = "mkdir there && exit 0; exit 7";
    let ended = cluster.host(1).pulc(&["submit", "-W", "--times", "2", "-D", &directory, "sh", "-c", script]);
    assert_eq!(ended.code(), Some(7), "{ended:?}");
    end(&cluster);
}

#[test]
fn reserved_nodes_are_kept_for_those_who_name_the_reservation() {
    let Some(cluster) = cluster("reserved_nodes_are_kept_for_those_who_name_the_reservation", 2) else { return };
    let host = cluster.host(0);
    let names: Vec<String> = nodes(host).iter().map(|node| text(node, "name").to_owned()).collect();
    host.pulc(&["reserve", "mine", "-w", &names[1], "--for", "2h"]).expect_success();
    // Without its name there is one node, and no job that needs both.
    for _ in 0..3 {
        let elsewhere = submit(&cluster, 0, &["true"]);
        let ended = wait_for(host, &elsewhere, "COMPLETED");
        assert_eq!(ended["nodes"][0]["name"], names[0].as_str(), "{ended}");
    }
    let waits = submit(&cluster, 0, &["-w", &names[1], "true"]);
    assert!(text(&wait_for(host, &waits, "PENDING"), "text").contains("reserv"), "{}", job(host, &waits));
    let with_it = submit(&cluster, 1, &["--reservation", "mine", "true"]);
    let ended = wait_for(host, &with_it, "COMPLETED");
    assert_eq!(ended["nodes"][0]["name"], names[1].as_str(), "{ended}");
    assert_eq!(text(&job(host, &waits), "state"), "PENDING");
    host.pulc(&["reserve", "mine", "--remove"]).expect_success();
    wait_for(host, &waits, "COMPLETED");
    end(&cluster);
}
