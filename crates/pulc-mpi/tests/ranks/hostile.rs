//! Ranks that keep the rules of MPI beside one that writes over all memory of PULC that it has, and floods them: on a communicator of
//! their own every collective and every message must be right. What happens on one that it is a member of is its to spoil.

use crate::halls;
use crate::memory::Mappings;
use crate::values::{INT, Values, WORLD, place};
use pulc_mpi::call;
use pulc_mpi::consts::UNDEFINED;
use pulc_mpi::handle::Comm;
use pulc_testkit::Chance;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// A guard against hanging.
const HANG: Duration = Duration::from_secs(110);

/// Turns of those who keep the rules.
const TURNS: i32 = 40;
/// A tag of which nobody receives anything.
const NOISE: i32 = 77;

/// The last rank is the hostile one.
pub fn play() {
    let (me, n) = place(WORLD);
    // Everybody has channels to everybody, and a hall with everybody.
    for _ in 0..10 {
        call::barrier(WORLD).unwrap();
    }
    let is_hostile = me == n - 1;
    let own = call::comm_split(WORLD, if is_hostile { UNDEFINED } else { 0 }, me).unwrap();
    if is_hostile {
        spoil(n);
    }
    say(&format!("{me} has its communicator"));
    hear(n as usize);
    for turn in 0..TURNS {
        exchange(own, turn);
    }
    halls::all(own);
    call::barrier(own).unwrap();
    say(&format!("{me} is through"));
}

/// Messages of several lengths round the ring of those who keep the rules.
fn exchange(own: Comm, turn: i32) {
    let (me, n) = place(own);
    let (to, from) = ((me + 1) % n, (me + n - 1) % n);
    for len in [1, 300, 5000, 100_000_usize] {
        let words = |rank: i32| (0..len as i32).map(|at| at ^ rank << 16 ^ turn).collect::<Vec<_>>();
        let (mut out, mut into) = (Values::of(&words(me)), Values::filled(0, len));
        let count = len as i64;
        call::sendrecv(out.addr(), count, INT, to, turn, into.addr(), count, INT, from, turn, own).unwrap();
        assert_eq!(into.get(), words(from), "turn {turn}, {len} numbers");
    }
}

/// Where everybody says how far it is: not by messages, which the hostile one may spoil.
fn folder() -> PathBuf {
    std::env::var_os("PULC_TEST_FOLDER").expect("the test says where").into()
}

fn say(what: &str) {
    std::fs::write(folder().join(what), "").unwrap();
}

fn said() -> usize {
    std::fs::read_dir(folder()).unwrap().count()
}

/// Waits until so much was said.
fn hear(count: usize) {
    let begin = Instant::now();
    while said() < count {
        assert!(begin.elapsed() < HANG, "{} of {count} words", said());
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Until the others are through, or have ended otherwise.
fn spoil(n: i32) -> ! {
    let seed = std::time::UNIX_EPOCH.elapsed().map_or(1, |since| since.as_nanos() as u64) | 1;
    eprintln!("the hostile rank's seed is {seed}");
    let (mut random, mut mappings) = (Chance(seed), Mappings::new());
    // Making a communicator of others is something that it takes part in.
    hear(n as usize - 1);
    say("the hostile one begins");
    let begin = Instant::now();
    while said() < 2 * n as usize - 1 && begin.elapsed() < HANG {
        mappings.look_again();
        (0..2000).for_each(|_| mappings.scribble(&mut random));
        assert!(mappings.written > 0, "nothing was written: this process maps nothing of PULC's");
        // Talks as long as it is listened to, so that there is something to spoil.
        let to = random.below(n as u64 - 1) as i32;
        let mut noise = Values::filled(0x5a5a_5a5a, 1 + random.below(50) as usize);
        let count = noise.count();
        let _ = call::isend(noise.addr(), count, INT, to, NOISE, WORLD);
        std::mem::forget(noise);
        std::thread::yield_now();
    }
    std::process::exit(crate::BEREFT);
}
