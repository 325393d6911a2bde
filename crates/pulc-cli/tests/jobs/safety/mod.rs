//! Ranks that break every rule beside ranks that keep them: the latter exchange verified messages over ports, rawdata and active
//! messages all the time, and must get every byte right, or a clear error. Ranks are copies of this test binary, started by
//! `pulc run`; which part a rank plays its environment and its number say.

mod board_storm;
mod crafted;
mod crowd;
mod frames;
mod honest;
mod kills;
mod memory;
mod scribbler;
mod sockets;
mod users;

use crate::harness::{self, Ended, Job, TempDir, command, tag};
use pulc_testkit::{Chance, rounds};

/// Which part the copies play.
pub const ENV_PART: &str = "PULC_TEST_PART";
/// Ranks that keep the rules, with commas.
pub const ENV_HONEST: &str = "PULC_TEST_HONEST";
/// Turns of the honest ranks.
pub const ENV_TURNS: &str = "PULC_TEST_TURNS";
pub const ENV_SEED: &str = "PULC_TEST_SEED";
/// A directory where ranks that break the rules say that they have begun.
pub const ENV_BEGUN: &str = "PULC_TEST_BEGUN";

/// Not a test: where the copies begin. Does nothing when no part is named.
#[test]
fn as_a_copy() {
    match std::env::var(ENV_PART).as_deref() {
        Ok("beside_hostile_ranks") => {
            let me: u32 = std::env::var("PULC_RANK").expect("this is a rank").parse().expect("a number");
            match honest::ranks() {
                honest if honest.contains(&me) => honest::exchange(),
                honest if me % 2 == honest.len() as u32 % 2 => crafted::attack(me),
                _ => scribbler::attack(),
            }
        }
        Ok("beside_another_user") => honest::exchange(),
        Ok("fills_the_keepers_socket") => crowd::part(),
        Ok("stranger") => users::stranger(),
        Ok("until_somebody_ends") => println!("{}", honest::exchange_until_somebody_ends()),
        Ok(other) => panic!("no part {other}"),
        Err(_) => {}
    }
}

/// Words that start a copy.
pub fn copy() -> Vec<String> {
    let program = std::env::current_exe().expect("this program has a path");
    let program = program.to_str().expect("a path in UTF-8");
    [program, "safety::as_a_copy", "--exact", "--nocapture", "--quiet"].map(str::to_owned).to_vec()
}

/// For a rank that breaks the rules: from now on it does.
fn tell_that_it_has_begun(rank: u32) {
    let place = std::env::var(ENV_BEGUN).expect("the test says where");
    harness::write_file(&format!("{place}/{rank}"), b"");
}

/// For one that keeps them: until so many others break them. Otherwise it could be through before that on a slow machine.
fn wait_until_others_have_begun(others: usize) {
    let Ok(place) = std::env::var(ENV_BEGUN) else { return };
    let count = || std::fs::read_dir(&place).map_or(0, |entries| entries.count());
    let begun = pulc_testkit::wait_until(|| (count() >= others).then_some(()));
    assert!(begun.is_some(), "{} of {others} ranks have begun to break the rules", count());
}

/// The seed of this run, printed so that it can be run again.
pub fn seed() -> u64 {
    let fresh = || std::time::UNIX_EPOCH.elapsed().map_or(1, |since| since.as_nanos() as u64) | 1;
    let seed = std::env::var(ENV_SEED).ok().and_then(|seed| seed.parse().ok()).unwrap_or_else(fresh);
    println!("{ENV_SEED}={seed}");
    seed
}

fn run_beside_hostile_ranks(arguments: &[&str], honest: &str, turns: u32, seed: u64) -> Ended {
    let copy = copy();
    let words: Vec<&str> = arguments.iter().copied().chain(["--"]).chain(copy.iter().map(String::as_str)).collect();
    let (tag, begun) = (tag(), TempDir::new());
    let mut command = command(&tag, &words);
    command.env(ENV_BEGUN, &begun.0);
    command.env(ENV_PART, "beside_hostile_ranks").env(ENV_HONEST, honest);
    command.env(ENV_TURNS, turns.to_string()).env(ENV_SEED, seed.to_string());
    Job::of(&mut command, tag).finish()
}

fn stands_it(arguments: &[&str], honest: &str) {
    let mut random = Chance(seed());
    for round in 0..rounds(1, 40) {
        let seed = random.word() | 1;
        let ended = run_beside_hostile_ranks(arguments, honest, rounds(100, 300), seed);
        let stood = ended.text().matches("stood it").count();
        let what = format!("round {round}, {ENV_SEED}={seed}");
        assert_eq!(ended.code(), 0, "{what}: {}\n{}", ended.text(), ended.stderr);
        assert_eq!(stood, honest.split(',').count(), "{what}: {}\n{}", ended.text(), ended.stderr);
        let attacks: Vec<String> =
            ended.text().lines().filter(|line| line.contains("attacked")).map(str::to_owned).collect();
        println!("{what}: {}", attacks.join("; "));
        assert!(!attacks.is_empty(), "{what}: nobody attacked: {}", ended.text());
    }
}

#[test]
fn ranks_that_scribble_over_all_they_can_write_harm_no_honest_rank_of_their_node() {
    stands_it(&["-n", "4"], "0,1");
}

#[test]
fn ranks_that_scribble_over_all_they_can_write_harm_no_honest_rank_of_any_node() {
    stands_it(&["-n", "6", "--nodes", "2"], "0,1,3,4");
}
