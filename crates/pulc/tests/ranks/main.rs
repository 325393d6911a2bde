//! Ports between processes: this binary starts copies of itself as ranks of a job with a small keeper of its own. Each test
//! names a scene, and `as_a_rank` plays it in the copies.

mod am;
mod am_faults;
mod am_scenes;
mod keeper;
mod lending;
mod rails;
mod raw;
mod scenes;

use keeper::{Job, Keeper};
use std::os::unix::process::ExitStatusExt;

/// Not a test: where the copies begin. Does nothing when no scene is named.
#[test]
fn as_a_rank() {
    if let Ok(scene) = std::env::var("PULC_TEST_SCENE") {
        match scene.split_once('_') {
            Some(("raw", _)) => raw::play(&scene),
            Some(("lend", _)) => lending::play(&scene),
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
fn an_abort_ends_all_ranks() {
    let ended = Job::on_one_node("abort", 3).run();
    assert!(ended.iter().all(|status| !status.success()), "{ended:?}");
}
