//! A rank that fills its keeper's attach socket with connections, while a job-mate wants to attach: the keeper listens to
//! those that say hello.

use super::{Chance, ENV_BEGUN, ENV_PART, copy, sockets};
use crate::harness::{Job, TempDir, command, tag};
use pulc_testkit::wait_until;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use rustix::process::{Pid, Signal, kill_process};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

/// More than any system lets wait at a socket.
const CONNECTIONS_MAX: usize = 100_000;

/// What each rank of the job does.
pub fn part() {
    let me: u32 = std::env::var("PULC_RANK").expect("this is a rank").parse().expect("a number");
    let place = std::env::var(ENV_BEGUN).expect("the test says where");
    let (is_full, is_over) = (format!("{place}/full"), format!("{place}/over"));
    if me == 0 {
        return crowd(&is_full, &is_over);
    }
    wait_until(|| Path::new(&is_full).exists().then_some(())).expect("the other rank fills the socket");
    let attached = pulc::Pulc::attach();
    crate::harness::write_file(&is_over, b"");
    println!("rank {me} has attached: {:?}", attached.map(|pulc| pulc.rank()));
}

/// Fills the queue of the keeper while that is stopped, and goes on connecting until told that it is over.
fn crowd(is_full: &str, is_over: &str) {
    let keeper = std::env::var("PULC_KEEPER").expect("this is a rank");
    let name = SocketAddrUnix::new_abstract_name(keeper.as_bytes()).expect("a name of the keeper's own making");
    // Our parent, which lives: the job ends with it.
    let parent = Pid::from_raw(std::os::unix::process::parent_id() as i32).expect("it has one");
    kill_process(parent, Signal::STOP).expect("it is this user's");
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let mut silent = Vec::new();
    let waiting = (0..CONNECTIONS_MAX).take_while(|_| {
        let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None);
        let socket = socket.expect("there are descriptors");
        let is_taken = rustix::net::connect(&socket, &name).is_ok();
        // What is closed waits there all the same.
        if silent.len() < 100 {
            silent.push(socket);
        }
        is_taken
    });
    let waiting = waiting.count();
    assert!(waiting > 0, "the keeper's socket takes connections");
    crate::harness::write_file(is_full, b"");
    kill_process(parent, Signal::CONT).expect("it is this user's");
    let stop = AtomicBool::new(false);
    let said = std::thread::scope(|scope| {
        let talker = scope.spawn(|| sockets::garbage(&keeper, Chance(7), &stop));
        let over = wait_until(|| Path::new(is_over).exists().then_some(()));
        stop.store(true, Ordering::Relaxed);
        over.map(|()| talker.join().expect("it does not panic"))
    });
    println!("{waiting} connections waited; {said:?} words afterwards");
}

#[test]
fn a_rank_attaches_while_another_one_fills_the_keepers_socket_with_connections() {
    let (copy, begun, tag) = (copy(), TempDir::new(), tag());
    let words: Vec<&str> = ["-n", "2", "--"].into_iter().chain(copy.iter().map(String::as_str)).collect();
    let mut command = command(&tag, &words);
    command.env(ENV_PART, "fills_the_keepers_socket").env(ENV_BEGUN, &begun.0);
    let ended = Job::of(&mut command, tag).finish();
    assert_eq!(ended.code(), 0, "{}\n{}", ended.text(), ended.stderr);
    assert!(ended.text().contains("rank 1 has attached: Ok("), "{}\n{}", ended.text(), ended.stderr);
}
