//! Every fuzz target's corpus on a stable compiler, and inputs made of it by chance. One test a target; `fuzz/README.md` says which
//! bytes each of them stands for.

use pulc_testkit::replay;

#[test]
fn frames_of_a_hostile_rank_break_no_account() {
    replay("handler_frames", 3000, pulc_handler::fuzz::frames);
}

#[test]
fn what_keepers_and_ranks_say_when_they_meet_is_read_or_refused() {
    replay("boot_messages", 3000, pulc_handler::fuzz::boot_messages);
}

#[test]
fn frames_at_ports_are_taken_or_refused() {
    replay("port_frames", 3000, pulc::fuzz::ports);
}

#[test]
fn frames_at_rawdata_channels_are_taken_or_refused() {
    replay("rawdata_frames", 3000, pulc::fuzz::rawdata);
}

#[test]
fn frames_of_active_messages_are_taken_or_refused() {
    replay("am_frames", 1000, pulc::fuzz::active_messages);
}

#[test]
fn whatever_a_job_mate_writes_into_its_channel_is_read_or_refused() {
    replay("shm_channel", 300, pulc_hal::fuzz::shm_channel);
}

#[test]
fn whatever_a_job_mate_offers_is_mapped_or_refused() {
    replay("shm_offer", 300, pulc_hal::fuzz::shm_offer);
}

#[test]
fn whatever_stands_on_the_board_wakes_too_early_or_too_late() {
    replay("board", 1000, pulc_hal::fuzz::board);
}

#[test]
fn streams_of_strangers_at_the_tcp_device_are_taken_apart_or_refused() {
    replay("tcp_stream", 300, pulc_hal::fuzz::tcp_stream);
}

#[test]
fn calibration_files_are_read_or_ignored() {
    replay("calibration", 3000, pulc_hal::fuzz::calibration);
}

#[test]
fn frames_of_clients_and_daemons_are_read_or_refused() {
    replay("client_frames", 3000, pulc_control::fuzz::frames);
}

#[test]
fn frames_of_keepers_and_their_daemons_are_read_or_refused() {
    replay("keeper_frames", 3000, pulc_psid::fuzz::keeper_frames);
}

#[test]
fn datagrams_at_a_keeper_are_obeyed_or_refused() {
    replay("keeper_datagrams", 300, pulc_psid::fuzz::keeper_datagrams);
}

#[test]
fn frames_between_daemons_are_read_or_refused() {
    replay("mesh_frames", 3000, pulc_psid::fuzz::mesh_frames);
}

#[test]
fn tokens_are_read_or_refused() {
    replay("token", 3000, pulc_psid::fuzz::token);
}

#[test]
fn logs_of_the_queue_are_read_or_refused() {
    replay("queue_log", 3000, pulc_psid::fuzz::queue_log);
}

#[test]
fn answers_of_launchers_are_read_or_refused() {
    replay("launcher_words", 3000, pulc_handler::fuzz::launcher_words);
}

#[test]
fn datagrams_of_the_sockets_broker_are_read_or_refused() {
    replay("sockets_messages", 3000, pulc_sockets::fuzz::messages);
}

#[test]
fn whatever_an_end_writes_into_its_connection_the_other_one_reads_no_byte_too_many() {
    replay("sockets_channel", 300, pulc_sockets::fuzz::channel);
}

#[test]
fn files_of_programs_are_read_or_are_none() {
    replay("program_files", 3000, pulc_hal::fuzz::program);
}

#[test]
fn questions_of_programs_of_another_mpi_are_answered_or_refused() {
    replay("pmi_questions", 3000, pulc_psid::fuzz::pmi_questions);
}

#[test]
fn answers_of_the_kernel_about_sockets_are_read_or_refused() {
    replay("socket_answers", 3000, pulc_psid::fuzz::socket_answers);
}

#[test]
fn files_of_a_daemon_are_read_or_refused() {
    replay("state_files", 3000, pulc_psid::fuzz::state_files);
}

#[test]
fn certificates_that_somebody_has_changed_are_accepted_by_nobody() {
    replay("certificates", 300, pulc_psid::fuzz::certificates);
}
