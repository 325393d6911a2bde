//! MPI between processes: this binary starts copies of itself as ranks of a job, with the small keeper that the ports' tests have.
//! Each test names a scene, and `as_a_rank` plays it in the copies.

mod collectives;
mod communicators;
mod halls;
mod hostile;
#[path = "../../../pulc/tests/ranks/keeper.rs"]
mod keeper;
#[path = "../../../pulc-cli/tests/jobs/safety/memory.rs"]
mod memory;
mod messages;
mod overlap;
mod random;
mod topologies;
mod values;
mod varied;
mod windows;

use keeper::{Job, Keeper};
use pulc_mpi::call;

/// Not a test: where the copies begin. Does nothing when no scene is named.
#[test]
fn as_a_rank() {
    let Ok(scene) = std::env::var("PULC_TEST_SCENE") else { return };
    call::init().unwrap();
    match scene.as_str() {
        "bereft" => leave(messages::bereft),
        "bereft_in_a_hall" => leave(halls::bereft),
        "overlap" => overlap::play(),
        "beside_a_hostile_one" => leave(hostile::play),
        "confused" => halls::confused(),
        "halls" => halls::play(),
        "threads_in_halls" => halls::threads(),
        "messages" => messages::play(),
        "order" => messages::order(),
        "collectives" => collectives::play(),
        "between_sides" => communicators::between_sides(),
        "communicators" => communicators::play(),
        "topologies" => topologies::play(),
        "random" => random::play(),
        "too_long" => varied::too_long(),
        "varied" => varied::play(),
        "windows" => windows::play(),
        other => panic!("no scene {other}"),
    }
    call::finalize().unwrap();
}

/// The status of a process that has seen what it should and cannot finish with one that was killed. Success would end the job.
const BEREFT: i32 = 3;

fn leave(scene: fn()) {
    scene();
    std::process::exit(BEREFT);
}

#[test]
fn messages_of_every_size_arrive_and_long_ones_pass_each_other() {
    Job::on_one_node("messages", 1).succeeds();
    Job::on_one_node("messages", 2).succeeds();
    Job::on_one_node("messages", 5).succeeds();
}

#[test]
fn messages_that_all_wait_for_their_receivers_arrive_as_well() {
    Job::on_one_node("messages", 3).with("PULC_EAGER_MAX_BYTES", "0").succeeds();
}

#[test]
fn a_receive_from_a_rank_that_is_killed_fails() {
    let keeper = Keeper::start(Job::on_one_node("bereft", 2));
    keeper.hear(1);
    keeper.kill(1);
    assert_eq!(keeper.wait()[0].code(), Some(BEREFT));
}

#[test]
fn messages_of_every_size_arrive_between_nodes() {
    Job::on_nodes("messages", &[2, 1]).succeeds();
}

#[test]
fn windows_of_receives_get_their_messages_in_order_however_they_are_waited_for() {
    Job::on_one_node("windows", 2).succeeds();
    Job::on_one_node("windows", 4).succeeds();
    Job::on_nodes("windows", &[2, 1]).succeeds();
}

#[test]
fn messages_match_in_the_order_sent_whatever_their_sizes() {
    Job::on_one_node("order", 2).succeeds();
    Job::on_nodes("order", &[1, 1]).succeeds();
}

#[test]
fn every_collective_gives_what_the_standard_says_in_all_three_forms() {
    for ranks in [1, 2, 3, 4, 7] {
        Job::on_one_node("collectives", ranks).succeeds();
    }
}

#[test]
fn collectives_work_between_nodes() {
    Job::on_nodes("collectives", &[2, 1]).succeeds();
}

#[test]
fn collectives_in_shared_memory_give_what_they_give_by_messages() {
    for ranks in [2, 3, 5] {
        Job::on_one_node("halls", ranks).succeeds();
    }
    Job::on_one_node("halls", 4).with("PULC_HALL_AFTER", "0").with("PULC_HALL_READ_ALL_BYTES", "0").succeeds();
    Job::on_one_node("halls", 3).with("PULC_HALL_BLOCK_BYTES", "1000000").succeeds();
    Job::on_one_node("halls", 3).with("PULC_HALLS_MAX", "0").succeeds();
}

#[test]
fn blocks_and_results_that_differ_are_the_same_in_shared_memory_as_by_messages() {
    for ranks in [2, 3, 4, 7] {
        Job::on_one_node("varied", ranks).succeeds();
    }
    Job::on_one_node("varied", 4).with("PULC_HALL_AFTER", "0").with("PULC_HALL_READ_ALL_BYTES", "0").succeeds();
    Job::on_one_node("varied", 3).with("PULC_HALL_BLOCK_BYTES", "100").succeeds();
    Job::on_one_node("varied", 3).with("PULC_HALL_READ_ALL_BYTES", "1000000").succeeds();
    Job::on_nodes("varied", &[2, 1]).succeeds();
}

#[test]
fn a_block_that_is_too_long_is_an_error_where_it_arrives_and_nowhere_else() {
    Job::on_one_node("too_long", 2).succeeds();
    Job::on_one_node("too_long", 4).succeeds();
    Job::on_one_node("too_long", 3).with("PULC_HALL_BLOCK_BYTES", "100").succeeds();
    Job::on_one_node("too_long", 3).with("PULC_HALLS_MAX", "0").succeeds();
    Job::on_nodes("too_long", &[2, 1]).succeeds();
}

#[test]
fn nodes_meet_in_their_halls_and_their_speakers_between_them() {
    Job::on_nodes("halls", &[2, 1]).with("PULC_STATS", "1").succeeds();
    Job::on_nodes("halls", &[2, 2]).with("PULC_HALL_AFTER", "0").succeeds();
}

#[test]
fn threads_meet_in_halls_of_their_own() {
    Job::on_one_node("threads_in_halls", 2).succeeds();
}

#[test]
fn a_member_that_is_killed_ends_the_wait_of_all_others() {
    let keeper = Keeper::start(Job::on_one_node("bereft_in_a_hall", 3));
    keeper.hear(1);
    keeper.kill(1);
    let ends = keeper.wait();
    assert_eq!([ends[0].code(), ends[2].code()], [Some(BEREFT); 2]);
}

#[test]
fn a_rank_that_writes_over_all_it_can_spoils_no_communicator_that_it_is_not_in() {
    for after in ["0", "1000000"] {
        let folder = std::env::temp_dir().join(format!("pulc-hostile-{}-{after}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let job = Job::on_one_node("beside_a_hostile_one", 4).with("PULC_HALL_AFTER", after);
        let ends = job.with("PULC_TEST_FOLDER", folder.to_str().unwrap()).run();
        std::fs::remove_dir_all(&folder).unwrap();
        assert!(ends[..3].iter().all(|status| status.code() == Some(BEREFT)), "{ends:?}");
    }
}

#[test]
fn members_in_different_collectives_are_told() {
    Job::on_one_node("confused", 2).succeeds();
}

#[test]
fn long_messages_move_while_the_other_side_computes() {
    let folder = std::env::temp_dir().join(format!("pulc-overlap-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let job = Job::on_one_node("overlap", 2).with("PULC_PROGRESS", "thread");
    job.with("PULC_TEST_FOLDER", folder.to_str().unwrap()).succeeds();
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn everything_works_beside_a_thread_that_makes_progress() {
    Job::on_one_node("halls", 3).with("PULC_PROGRESS", "thread").succeeds();
    Job::on_one_node("messages", 2).with("PULC_PROGRESS", "thread").succeeds();
}

#[test]
fn communicators_are_made_split_and_freed() {
    for ranks in [1, 3, 4] {
        Job::on_one_node("communicators", ranks).succeeds();
    }
}

#[test]
fn two_sides_talk_through_an_intercommunicator_and_are_merged() {
    for ranks in [2, 3, 5] {
        Job::on_one_node("between_sides", ranks).succeeds();
    }
}

#[test]
fn neighbours_in_grids_and_graphs_exchange_what_was_meant_for_them() {
    for ranks in [1, 2, 3, 6] {
        Job::on_one_node("topologies", ranks).succeeds();
    }
    Job::on_nodes("topologies", &[2, 2]).succeeds();
}

/// A program of a printed seed; `PULC_TEST_SEED` replays one.
fn random_program(job: Job, turn: u64) {
    let seed = match std::env::var("PULC_TEST_SEED") {
        Ok(seed) => seed,
        Err(_) => (u64::from(std::process::id()) << 8 | turn).to_string(),
    };
    let acts = if is_full() { "150" } else { "25" };
    println!("{:?}: PULC_TEST_SEED={seed}", job.nodes);
    job.with("PULC_TEST_SEED", &seed).with("PULC_TEST_ACTS", acts).succeeds();
}

/// Whether `cargo xtask test --full` asks for more.
fn is_full() -> bool {
    std::env::var_os("PULC_TEST_FULL").is_some_and(|value| value == "1")
}

#[test]
fn random_programs_give_what_they_must() {
    let sizes: &[u32] = if is_full() { &[2, 3, 4, 7, 8, 11, 16] } else { &[2, 4] };
    for (turn, ranks) in sizes.iter().enumerate() {
        random_program(Job::on_one_node("random", *ranks), turn as u64);
        random_program(Job::on_one_node("random", *ranks).with("PULC_EAGER_MAX_BYTES", "0"), turn as u64 + 100);
    }
}

#[test]
fn random_programs_give_what_they_must_between_nodes_whatever_the_network_does() {
    let shapes: &[&[u32]] = if is_full() { &[&[1, 1], &[2, 1], &[3, 4], &[8, 8], &[2, 2, 2]] } else { &[&[2, 1]] };
    for (turn, nodes) in shapes.iter().enumerate() {
        random_program(Job::on_nodes("random", nodes), turn as u64 + 200);
        let faults = [
            ("PULC_FAULT_SEED", "7"),
            ("PULC_FAULT_DROP_PERMILLE", "50"),
            ("PULC_FAULT_DUPLICATE_PERMILLE", "50"),
            ("PULC_FAULT_REORDER_PERMILLE", "50"),
            ("PULC_FAULT_CORRUPT_PERMILLE", "20"),
        ];
        let job = faults.into_iter().fold(Job::on_nodes("random", nodes), |job, (name, value)| job.with(name, value));
        random_program(job, turn as u64 + 300);
    }
}
