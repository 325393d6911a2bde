//! Ports between processes: this binary starts copies of itself as ranks of a job with a small keeper of its own. Each test
//! names a scene, and `as_a_rank` plays it in the copies.

mod am;
mod am_faults;
mod am_scenes;
mod batches;
mod examples;
mod forks;
mod groups;
mod keeper;
mod lending;
mod moves;
mod rails;
mod raw;
mod scenes;
mod waits;

use keeper::{Job, Keeper};
use std::os::unix::process::ExitStatusExt;

/// Not a test: where the copies begin. Does nothing when no scene is named.
#[test]
fn as_a_rank() {
    if let Ok(scene) = std::env::var("PULC_TEST_SCENE") {
        match scene.split_once('_') {
            Some(("raw", _)) => raw::play(&scene),
            Some(("batch", scene)) => batches::play(scene),
            Some(("fork", _)) => forks::play(&scene),
            Some(("many" | "move", _)) => groups::play(&scene),
            Some(("lend", _)) => lending::play(&scene),
            Some(("wait", _)) => waits::play(&scene),
            Some(("am", scene)) => am_scenes::play(scene),
            _ => scenes::play(&scene),
        }
    }
}

#[test]
fn messages_of_every_size_arrive_whole_between_two_ranks() {
    Job::on_one_node("sizes", 2).succeeds();
}

#[test]
fn messages_of_every_size_arrive_whole_between_two_nodes() {
    Job::on_nodes("sizes", &[1, 1]).succeeds();
}

#[test]
fn two_ranks_that_both_send_a_long_message_first_do_not_block_each_other() {
    Job::on_one_node("both_send_first", 2).succeeds();
}

#[test]
fn everyone_sends_to_everyone_on_one_node() {
    Job::on_one_node("all_to_all", 5).succeeds();
}

#[test]
fn everyone_sends_to_everyone_on_three_nodes() {
    Job::on_nodes("all_to_all", &[2, 1, 2]).succeeds();
}

#[test]
fn a_slow_receiver_pushes_back_and_loses_nothing() {
    Job::on_one_node("slow_receiver", 2).with("PULC_UNEXPECTED_MAX_BYTES", "1m").succeeds();
}

#[test]
fn a_slow_receiver_on_another_node_pushes_back_and_loses_nothing() {
    Job::on_nodes("slow_receiver", &[1, 1]).with("PULC_UNEXPECTED_MAX_BYTES", "1m").succeeds();
}

#[test]
fn what_a_rank_sent_before_it_ended_is_received_and_then_peer_gone_is_told() {
    Job::on_one_node("last_words", 2).succeeds();
}

#[test]
fn what_a_rank_of_another_node_sent_before_it_ended_is_received_and_then_peer_gone_is_told() {
    Job::on_nodes("last_words", &[1, 1]).succeeds();
}

#[test]
fn two_threads_that_ask_for_one_name_are_both_answered_when_it_is_opened() {
    Job::on_one_node("silent_receiver", 2).succeeds();
    Job::on_nodes("silent_receiver", &[1, 1]).succeeds();
}

#[test]
fn sends_to_and_receives_from_a_killed_rank_return_peer_gone() {
    let keeper = Keeper::start(Job::on_one_node("killed", 3));
    keeper.hear(0);
    keeper.hear(1);
    keeper.kill(2);
    let ended = keeper.wait();
    assert!(ended[0].success() && ended[1].success(), "{ended:?}");
    assert_eq!(ended[2].signal(), Some(9));
}

#[test]
fn an_unknown_port_is_an_error_after_the_lookup_time() {
    Job::on_one_node("unknown_port", 2).with("PULC_PORT_LOOKUP_MS", "50").succeeds();
}

#[test]
fn a_message_longer_than_the_limit_is_refused_with_both_numbers() {
    Job::on_one_node("too_long", 2).with("PULC_MESSAGE_MAX_BYTES", "64k").succeeds();
}

#[test]
fn a_send_can_be_given_up_and_its_message_never_arrives() {
    Job::on_one_node("give_up", 2).with("PULC_UNEXPECTED_MAX_BYTES", "1m").succeeds();
}

#[test]
fn a_keeper_of_another_version_is_refused_with_a_clear_word() {
    let job = Job { version: 77, ..Job::on_one_node("refused", 1) };
    job.succeeds();
}

#[test]
fn a_blocked_rank_burns_no_time() {
    Job::on_one_node("idle", 2).succeeds();
}

#[test]
fn a_blocked_rank_of_a_job_on_two_nodes_burns_no_time() {
    Job::on_nodes("idle", &[1, 1]).succeeds();
}

#[test]
fn threads_of_one_rank_receive_and_send_at_the_same_time() {
    Job::on_one_node("threads", 2).succeeds();
}

#[test]
fn datagrams_arrive_or_are_counted() {
    Job::on_one_node("datagrams", 2).succeeds();
}

#[test]
fn ranks_without_descriptors_say_so() {
    Job::on_one_node("no_descriptors", 2).succeeds();
}

#[test]
fn a_channel_is_taken_even_when_no_descriptor_is_left() {
    Job::on_one_node("taken_without_descriptors", 2).succeeds();
}

#[test]
fn one_wait_sees_messages_and_descriptors_and_loses_neither() {
    Job::on_one_node("wait_descriptors", 2).succeeds();
    Job::on_nodes("wait_descriptors", &[1, 1]).succeeds();
}

#[test]
fn a_rank_that_waits_for_descriptors_as_well_burns_no_time() {
    Job::on_one_node("wait_descriptors_idle", 2).succeeds();
}

#[test]
fn one_thread_waits_for_descriptors_while_others_receive() {
    Job::on_one_node("wait_beside_threads", 2).succeeds();
    Job::on_nodes("wait_beside_threads", &[1, 1]).succeeds();
}

#[test]
fn a_loop_of_the_users_own_misses_no_wake_up() {
    Job::on_one_node("wait_loop", 2).succeeds();
    Job::on_nodes("wait_loop", &[1, 1]).succeeds();
}

#[test]
fn a_loop_of_the_users_own_is_told_that_nobody_is_left() {
    Job::on_one_node("wait_ended", 2).succeeds();
    Job::on_nodes("wait_ended", &[1, 1]).succeeds();
}

#[test]
fn a_loop_of_the_users_own_misses_no_wake_up_beside_threads() {
    Job::on_one_node("wait_loop_beside_threads", 2).succeeds();
    Job::on_nodes("wait_loop_beside_threads", &[1, 1]).succeeds();
}

#[test]
fn what_one_thread_sends_is_repeated_in_time_although_another_one_sleeps() {
    let job = Job::on_nodes("wait_retransmit", &[1, 1]).with("PULC_FAULT_SEED", "7");
    job.with("PULC_FAULT_DROP_PERMILLE", "300").succeeds();
}

#[test]
fn a_rank_forks_under_traffic_and_its_children_harm_nothing_and_are_told_what_they_are() {
    Job::on_one_node("fork_traffic", 2).succeeds();
    Job::on_nodes("fork_traffic", &[1, 1]).succeeds();
}

#[test]
fn a_rank_starts_programs_under_traffic_and_they_inherit_no_descriptor_of_ours() {
    Job::on_one_node("fork_programs", 2).succeeds();
    Job::on_nodes("fork_programs", &[1, 1]).succeeds();
}

#[test]
fn one_message_to_many_ports_arrives_whole_at_each() {
    Job::on_one_node("many_sizes", 4).succeeds();
    Job::on_nodes("many_sizes", &[2, 2]).succeeds();
}

#[test]
fn one_slow_member_keeps_no_other_waiting_and_is_named() {
    Job::on_one_node("many_slow", 4).with("PULC_UNEXPECTED_MAX_BYTES", "4m").succeeds();
    Job::on_nodes("many_slow", &[2, 2]).with("PULC_UNEXPECTED_MAX_BYTES", "4m").succeeds();
}

#[test]
fn dead_unknown_and_impossible_members_are_named_and_the_others_get_the_message() {
    let keeper = Keeper::start(Job::on_one_node("many_dead", 3).with("PULC_PORT_LOOKUP_MS", "200"));
    keeper.hear(1);
    keeper.hear(2);
    keeper.kill(2);
    let ended = keeper.wait();
    assert!(ended[0].success() && ended[1].success(), "{ended:?}");
}

#[test]
fn datagrams_to_many_ports_arrive_or_are_counted() {
    Job::on_one_node("many_datagrams", 3).succeeds();
}

#[test]
fn a_port_moves_to_and_fro_under_traffic_and_nothing_is_lost_doubled_or_out_of_order() {
    Job::on_one_node("move_traffic", 5).succeeds();
    Job::on_nodes("move_traffic", &[2, 3]).succeeds();
    Job::on_nodes("move_traffic", &[1, 1, 2]).succeeds();
}

#[test]
fn a_port_moves_on_before_it_has_arrived_and_every_address_stays_good() {
    Job::on_one_node("move_on", 5).succeeds();
    Job::on_nodes("move_on", &[2, 3]).succeeds();
}

#[test]
fn a_port_that_nobody_takes_stays_with_all_its_messages() {
    Job::on_one_node("move_back", 2).succeeds();
}

#[test]
fn long_messages_and_those_that_wait_for_room_follow_a_port() {
    Job::on_one_node("move_long", 4).succeeds();
    Job::on_nodes("move_long", &[2, 2]).succeeds();
}

#[test]
fn an_owner_killed_while_its_port_moves_is_told_to_everyone_concerned() {
    let keeper = Keeper::start(Job::on_one_node("move_owner_killed", 3));
    keeper.hear(1);
    keeper.kill(0);
    let ended = keeper.wait();
    assert!(ended[1].success() && ended[2].success(), "{ended:?}");
}

#[test]
fn a_port_stays_when_its_taker_is_killed_before_and_ends_when_it_is_killed_afterwards() {
    let keeper = Keeper::start(Job::on_one_node("move_taker_killed", 3));
    keeper.hear(1);
    keeper.hear(0);
    keeper.kill(1);
    keeper.hear(0);
    keeper.kill(2);
    assert!(keeper.wait()[0].success());
}

#[test]
fn an_abort_ends_all_ranks() {
    let ended = Job::on_one_node("abort", 3).run();
    assert!(ended.iter().all(|status| !status.success()), "{ended:?}");
}
