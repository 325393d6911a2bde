//! Active messages between processes; what the ranks do stands in `am_scenes`.

use crate::keeper::{Job, Keeper};
use std::os::unix::process::ExitStatusExt;

#[test]
fn a_request_is_replied_to_on_one_node() {
    Job::on_one_node("am_ping", 2).succeeds();
}

#[test]
fn a_request_is_replied_to_on_two_nodes() {
    Job::on_nodes("am_ping", &[1, 1]).succeeds();
}

#[test]
fn a_token_goes_round_a_ring_of_more_ranks_than_cores() {
    Job::on_one_node("am_ring", 9).succeeds();
}

#[test]
fn a_token_goes_round_a_ring_over_three_nodes() {
    Job::on_nodes("am_ring", &[2, 1, 2]).succeeds();
}

#[test]
fn everyone_asks_everyone_with_one_credit() {
    Job::on_one_node("am_all_to_all", 6).succeeds();
}

#[test]
fn everyone_asks_everyone_with_one_credit_on_three_nodes() {
    Job::on_nodes("am_all_to_all", &[2, 1, 2]).succeeds();
}

#[test]
fn handlers_that_never_reply_give_the_credit_back() {
    Job::on_one_node("am_never_replies", 2).succeeds();
    Job::on_nodes("am_never_replies", &[1, 1]).succeeds();
}

#[test]
fn leaf_handlers_answer_for_a_rank_that_waits_in_a_port() {
    Job::on_one_node("am_leaf", 2).succeeds();
    Job::on_nodes("am_leaf", &[1, 1]).succeeds();
}

#[test]
fn payloads_of_every_kind_and_size_arrive_whole_on_one_node() {
    Job::on_one_node("am_sizes", 2).succeeds();
}

#[test]
fn payloads_of_every_kind_and_size_arrive_whole_on_two_nodes() {
    Job::on_nodes("am_sizes", &[1, 1]).succeeds();
}

#[test]
fn requests_to_a_killed_rank_come_back_and_nobody_hangs() {
    for nodes in [&[3][..], &[2, 1]] {
        let keeper = Keeper::start(Job::on_nodes("am_killed", nodes));
        keeper.hear(0);
        keeper.hear(1);
        keeper.kill(2);
        let ended = keeper.wait();
        assert!(ended[0].success() && ended[1].success(), "{ended:?}");
        assert_eq!(ended[2].signal(), Some(9));
    }
}

#[test]
fn a_storm_of_long_replies_drains_though_both_sides_only_ask() {
    Job::on_one_node("am_storm", 2).succeeds();
    Job::on_nodes("am_storm", &[1, 1]).succeeds();
}

#[test]
fn what_is_not_deliverable_comes_back_with_its_reason() {
    Job::on_one_node("am_returned", 2).succeeds();
    Job::on_nodes("am_returned", &[1, 1]).succeeds();
}

#[test]
fn several_threads_ask_and_a_helper_thread_answers_while_the_program_computes() {
    Job::on_one_node("am_served", 2).succeeds();
    Job::on_nodes("am_served", &[1, 1]).succeeds();
}

#[test]
fn a_rank_that_ends_still_sends_the_reply_it_owes() {
    Job::on_one_node("am_last_reply", 2).succeeds();
    Job::on_nodes("am_last_reply", &[1, 1]).succeeds();
}

#[test]
fn a_rank_whose_threads_wait_for_active_messages_burns_no_time() {
    Job::on_one_node("am_idle", 2).succeeds();
    Job::on_nodes("am_idle", &[1, 1]).succeeds();
}
