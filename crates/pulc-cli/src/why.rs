//! `pulc why`: what the processes of a job wait for, and whether any of them can ever go on. Asks the daemon, or the `pulc run` that has the
//! job without one. What ranks say is their own word; a deadlock is named when two looks have seen the same waits.

use crate::daemon;
use crate::kill::parse_job;
use pulc_base::JobId;
use pulc_base::boot::Gone;
use pulc_control::{Client, JobInfo, Reply, Request, WaitInfo};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::process::ExitCode;
use std::time::Duration;

const NOTES: &str = "A process that waits for less than a quarter of a second is shown as running. Of a process with several \
threads that wait, one wait is shown.";

#[derive(clap::Args)]
#[command(after_help = NOTES)]
pub struct Args {
    /// The job's number, as `pulc ps` shows it; needed where several run
    #[arg(value_parser = parse_job)]
    job: Option<JobId>,
}

/// Generous: the process may be short of processor time.
const ANSWERS_WITHIN: Duration = Duration::from_secs(10);
/// Between two looks: what was under way at the first has arrived at the second.
const BETWEEN_LOOKS: Duration = Duration::from_millis(600);

pub fn run(args: &Args) -> ExitCode {
    match look_twice(args.job) {
        Ok(text) => {
            print!("{text}");
            ExitCode::SUCCESS
        }
        Err(why) => {
            eprintln!("pulc: {why}");
            ExitCode::FAILURE
        }
    }
}

fn look_twice(wanted: Option<JobId>) -> Result<String, String> {
    let (mut client, job) = find(wanted)?;
    let first = waits(&mut client, job.job)?;
    std::thread::sleep(BETWEEN_LOOKS);
    let second = waits(&mut client, job.job)?;
    let same = |rank: &u32| first.get(rank).map(|wait| wait.stamp) == second.get(rank).map(|wait| wait.stamp);
    let stuck: Vec<u32> = stuck(&job, &second).into_iter().filter(same).collect();
    Ok(table(&job, &second) + &deadlock(&stuck, &second))
}

/// The job, and who knows it.
fn find(wanted: Option<JobId>) -> Result<(Client, JobInfo), String> {
    let connected = daemon::connect().map_err(|error| error.to_string())?;
    let mut found = Vec::new();
    for mut client in connected.into_iter().chain(daemon::connect_embedded()) {
        // One that does not answer is ending.
        let Ok(Reply::Jobs(jobs)) = client.ask(&Request::Ps, ANSWERS_WITHIN) else { continue };
        let chosen = jobs.into_iter().filter(|job| wanted.is_none_or(|wanted| wanted == job.job));
        let chosen: Vec<JobInfo> = chosen.collect();
        if let Some(job) = wanted.and_then(|_| chosen.first()) {
            return Ok((client, job.clone()));
        }
        match &chosen[..] {
            [] => {}
            [one] => found.push((client, one.clone())),
            _ => return Err("several jobs run; name one of those that `pulc ps` shows".to_owned()),
        }
    }
    match (found.len(), wanted) {
        (1, _) => Ok(found.remove(0)),
        (0, Some(job)) => Err(format!("no running job {job}; see `pulc ps`")),
        (0, None) => Err("no job runs".to_owned()),
        _ => Err("several jobs run; name one of those that `pulc ps` shows".to_owned()),
    }
}

type Waits = BTreeMap<u32, WaitInfo>;

fn waits(client: &mut Client, job: JobId) -> Result<Waits, String> {
    match client.ask(&Request::Why { job }, ANSWERS_WITHIN) {
        Ok(Reply::Why(waits)) => Ok(waits.into_iter().map(|wait| (wait.rank.0, wait)).collect()),
        Ok(Reply::Refused { why }) => Err(why),
        Ok(_) => Err("the daemon gave an answer to another question; use the same pulc for both".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

/// Those who wait and can never go on, whatever the others do: found by taking out, again and again, everybody for whom somebody may
/// still do something.
fn stuck(job: &JobInfo, waits: &Waits) -> Vec<u32> {
    let ended = |rank: u32| job.processes.iter().any(|one| one.rank.0 == rank && one.ended.is_some());
    let mut lives: Vec<bool> = (0..job.ranks).map(|rank| !waits.contains_key(&rank) && !ended(rank)).collect();
    loop {
        let is_live = |rank: &u32| lives.get(*rank as usize).copied().unwrap_or(true);
        let freed = waits.iter().find(|(rank, wait)| !is_live(rank) && may_go_on(wait, waits, &is_live));
        match freed.map(|(rank, _)| *rank as usize) {
            Some(rank) if rank < lives.len() => lives[rank] = true,
            _ => break,
        }
    }
    waits.keys().copied().filter(|rank| lives.get(*rank as usize) == Some(&false)).collect()
}

fn may_go_on(wait: &WaitInfo, waits: &Waits, is_live: &dyn Fn(&u32) -> bool) -> bool {
    let awaited = awaited(wait, waits);
    let knows_all = wait.ranks.len() as u32 == wait.count;
    match wait.any {
        // What was not named may be alive.
        true => !knows_all || awaited.iter().any(is_live),
        // Nobody is waited for: something of its own, or everybody has come by now.
        false => awaited.iter().all(is_live),
    }
}

/// Whom a rank waits for, without those who have come to the same meeting since.
fn awaited(wait: &WaitInfo, waits: &Waits) -> Vec<u32> {
    let has_come =
        |rank: &u32| wait.meeting.is_some() && waits.get(rank).is_some_and(|other| other.meeting == wait.meeting);
    wait.ranks.iter().copied().filter(|rank| !has_come(rank)).collect()
}

/// The circle, if there is one, and who is held up by it.
fn deadlock(stuck: &[u32], waits: &Waits) -> String {
    let Some(first) = stuck.first() else { return String::new() };
    let next = |rank: u32| awaited(&waits[&rank], waits).into_iter().find(|other| stuck.contains(other));
    let mut path = vec![*first];
    let circle = loop {
        let Some(following) = path.last().and_then(|rank| next(*rank)) else {
            // It waits for ranks that have ended.
            return format!("{} can never go on: what is waited for has ended\n", named(stuck));
        };
        if let Some(at) = path.iter().position(|rank| *rank == following) {
            break path.split_off(at);
        }
        path.push(following);
    };
    let mut text = "deadlock: ".to_owned();
    for (at, rank) in circle.iter().enumerate() {
        let other = circle[(at + 1) % circle.len()];
        let joint = if at == 0 { "" } else { ", " };
        let _ = write!(text, "{joint}rank {rank} waits in {} for rank {other}", waits[rank].call);
    }
    text.push('\n');
    let others: Vec<u32> = stuck.iter().copied().filter(|rank| !circle.contains(rank)).collect();
    if !others.is_empty() {
        let _ = writeln!(text, "held up by it: {}", named(&others));
    }
    text
}

/// `rank 3`, `ranks 1, 2 and 5`
fn named(ranks: &[u32]) -> String {
    let words: Vec<String> = ranks.iter().map(u32::to_string).collect();
    match words.split_last() {
        Some((last, [])) => format!("rank {last}"),
        Some((last, others)) => format!("ranks {} and {last}", others.join(", ")),
        None => "nobody".to_owned(),
    }
}

fn table(job: &JobInfo, waits: &Waits) -> String {
    let mut text = format!("job {}  {} ranks  {}\n", job.job, job.ranks, job.command);
    for process in &job.processes {
        let rank = process.rank.0;
        let state = match (&process.ended, waits.get(&rank)) {
            (Some(Gone::Exited(code)), _) => format!("exited with status {code}"),
            (Some(Gone::Killed(signal)), _) => format!("killed by signal {signal}"),
            (Some(Gone::Lost), _) => "lost".to_owned(),
            (None, Some(wait)) => sentence(wait, waits),
            (None, None) => "running".to_owned(),
        };
        let _ = writeln!(text, "  rank {rank:<5} node {:<16} {state}", process.node);
    }
    text
}

/// `in MPI_Recv on MPI_COMM_WORLD for 3.2 s, waits for rank 1 (tag 5)`
fn sentence(wait: &WaitInfo, waits: &Waits) -> String {
    let place = if wait.place.is_empty() { String::new() } else { format!(" on {}", wait.place) };
    let mut text = format!("in {}{place} for {:.1} s", wait.call, wait.waited_ms as f64 / 1000.0);
    let awaited = awaited(wait, waits);
    let unnamed = (wait.count as usize).saturating_sub(wait.ranks.len());
    if awaited.is_empty() && unnamed == 0 {
        return text;
    }
    let more = if unnamed > 0 { format!(" and {unnamed} more") } else { String::new() };
    let any = if wait.any && wait.count > 1 { "any of " } else { "" };
    let tag = wait.tag.map(|tag| format!(" (tag {tag})")).unwrap_or_default();
    let _ = write!(text, ", waits for {any}{}{more}{tag}", named(&awaited));
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use pulc_base::Rank;
    use pulc_control::ProcessInfo;

    fn job(ranks: u32) -> JobInfo {
        let process = |rank| ProcessInfo { rank: Rank(rank), node: "a".to_owned(), pid: 5, ended: None };
        JobInfo {
            job: JobId(7),
            user: 0,
            command: "x".to_owned(),
            ranks,
            nodes: vec!["a".to_owned()],
            age_ms: 0,
            processes: (0..ranks).map(process).collect(),
        }
    }

    fn wait(rank: u32, ranks: &[u32], any: bool) -> (u32, WaitInfo) {
        let info = WaitInfo {
            rank: Rank(rank),
            call: "MPI_Recv".to_owned(),
            place: "MPI_COMM_WORLD".to_owned(),
            waited_ms: 1300,
            stamp: 1,
            ranks: ranks.to_vec(),
            count: ranks.len() as u32,
            any,
            tag: None,
            meeting: None,
        };
        (rank, info)
    }

    #[test]
    fn two_that_wait_for_each_other_are_a_deadlock_and_who_waits_for_them_is_held_up() {
        let waits: Waits = [wait(0, &[1], false), wait(1, &[0], false), wait(2, &[0], false)].into();
        let found = stuck(&job(3), &waits);
        assert_eq!(found, [0, 1, 2]);
        let text = deadlock(&found, &waits);
        assert!(text.contains("rank 0 waits in MPI_Recv for rank 1, rank 1 waits in MPI_Recv for rank 0"), "{text}");
        assert!(text.contains("held up by it: rank 2"), "{text}");
    }

    #[test]
    fn a_chain_that_ends_at_somebody_who_runs_is_none() {
        let waits: Waits = [wait(0, &[1], false), wait(1, &[2], false)].into();
        assert!(stuck(&job(3), &waits).is_empty());
        // Anybody will do, and one of them runs.
        let waits: Waits = [wait(0, &[1, 2], true), wait(1, &[0], false)].into();
        assert!(stuck(&job(3), &waits).is_empty());
        let waits: Waits = [wait(0, &[1], true), wait(1, &[0], false)].into();
        assert_eq!(stuck(&job(3), &waits), [0, 1]);
    }

    #[test]
    fn who_has_come_to_the_same_collective_is_not_waited_for() {
        let in_meeting = |rank, ranks: &[u32], meeting| {
            let (rank, mut info) = wait(rank, ranks, false);
            info.meeting = Some(meeting);
            (rank, info)
        };
        // All three have come: a wake-up is under way.
        let waits: Waits = [in_meeting(0, &[1, 2], 9), in_meeting(1, &[2], 9), in_meeting(2, &[0], 9)].into();
        assert!(stuck(&job(3), &waits).is_empty());
        // The third waits for a message of the first instead.
        let waits: Waits = [in_meeting(0, &[1, 2], 9), in_meeting(1, &[2], 9), wait(2, &[0], false)].into();
        assert_eq!(stuck(&job(3), &waits), [0, 1, 2]);
        assert!(
            sentence(&waits[&0], &waits).ends_with("for 1.3 s, waits for rank 2"),
            "{}",
            sentence(&waits[&0], &waits)
        );
    }

    #[test]
    fn claims_about_ranks_that_do_not_exist_change_nothing_and_break_nothing() {
        let waits: Waits = [wait(0, &[900], false), wait(77, &[0], false)].into();
        assert!(stuck(&job(1), &waits).is_empty());
        let own: Waits = [wait(0, &[0], false)].into();
        assert_eq!(stuck(&job(1), &own), [0]);
        assert!(deadlock(&[0], &own).contains("rank 0 waits in MPI_Recv for rank 0"));
    }
}
