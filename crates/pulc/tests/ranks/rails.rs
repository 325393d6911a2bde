//! What carries frames between nodes: the same scenes over every kind of rail, over rails that spoil frames or die, and encrypted.

use crate::keeper::Job;

/// Sizes up to some MiB there and back, and everyone to everyone.
fn scenes_succeed(with: &[(&'static str, &str)]) {
    for (scene, nodes) in [("sizes", &[1, 1][..]), ("all_to_all", &[2, 1, 2])] {
        let job = with.iter().fold(Job::on_nodes(scene, nodes), |job, (name, value)| job.with(name, value));
        job.succeeds();
    }
}

#[test]
fn jobs_run_over_tcp_where_udp_is_filtered() {
    scenes_succeed(&[("PULC_RAILS", "tcp")]);
}

#[test]
fn a_slow_receiver_over_tcp_pushes_back_and_loses_nothing() {
    let job = Job::on_nodes("slow_receiver", &[1, 1]).with("PULC_UNEXPECTED_MAX_BYTES", "1m");
    job.with("PULC_RAILS", "tcp").succeeds();
}

#[test]
fn jobs_run_over_two_rails_of_different_kinds() {
    scenes_succeed(&[("PULC_RAILS", "udp,tcp")]);
}

#[test]
fn jobs_run_encrypted_over_every_kind_of_rail() {
    scenes_succeed(&[("PULC_LINK_ENCRYPT", "1")]);
    scenes_succeed(&[("PULC_LINK_ENCRYPT", "1"), ("PULC_RAILS", "tcp")]);
}

#[test]
fn jobs_run_over_rails_that_drop_double_reorder_bend_and_stall() {
    for rails in ["udp", "tcp", "udp,tcp"] {
        scenes_succeed(&[
            ("PULC_RAILS", rails),
            ("PULC_LOG", "error"),
            ("PULC_FAULT_SEED", "7"),
            ("PULC_FAULT_DROP_PERMILLE", "50"),
            ("PULC_FAULT_DUPLICATE_PERMILLE", "50"),
            ("PULC_FAULT_REORDER_PERMILLE", "50"),
            ("PULC_FAULT_CORRUPT_PERMILLE", "20"),
            ("PULC_FAULT_STALL_PERMILLE", "1"),
        ]);
    }
}

#[test]
fn when_one_rail_dies_under_way_the_other_one_takes_over() {
    for (rails, dying) in [("udp,tcp", "0"), ("udp,tcp", "1"), ("tcp,udp", "0")] {
        for frames in ["1", "300"] {
            scenes_succeed(&[
                ("PULC_RAILS", rails),
                ("PULC_FAULT_RAIL", dying),
                ("PULC_FAULT_DIE_AFTER_FRAMES", frames),
            ]);
        }
    }
}
