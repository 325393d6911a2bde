//! Collectives of random kind, form, length and root, some of them with a storm of messages in between.

use super::{Play, storm};
use crate::values::{INT, SUM, Values};
use pulc_mpi::call;
use pulc_mpi::handle::{Comm, Op, Request};
use pulc_mpi::memory::Ints;

const MAX: Op = Op(0x5800_0001);

/// What a member has, and what must come out.
struct Part {
    comm: Comm,
    rank: usize,
    size: usize,
    root: usize,
    len: usize,
    /// So that no two acts have the same data.
    salt: i32,
}

/// How a collective is called.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    Blocking,
    Nonblocking,
    /// With other messages between its begin and its end.
    Interrupted,
}

pub fn play(play: &mut Play, at: usize, act: u64) {
    let size = play.teams[at].members.len();
    let (kind, root) = (play.dice.below(9), play.dice.below(size));
    let len = match play.dice.below(6) {
        0 => 1,
        1..=3 => 1 + play.dice.below(40),
        4 => 1 + play.dice.below(4000),
        _ => 1 + play.dice.below(40_000) / size,
    };
    let form = [Form::Blocking, Form::Nonblocking, Form::Interrupted][play.dice.below(3)];
    let salt = (play.dice.word() & 0xffff) as i32;
    let own = play.teams[at].mine(play.me);
    let part = own.map(|(comm, rank)| Part { comm, rank, size, root, len, salt });
    let mut under_way = part.as_ref().map(|part| part.begin(kind, form));
    if form == Form::Interrupted {
        storm::play(play, at, act);
    }
    if let (Some(part), Some(under_way)) = (part, &mut under_way) {
        if let Some(request) = &mut under_way.request {
            call::wait(request).unwrap();
        }
        if let Some(expected) = part.expected(kind) {
            let (rank, root) = (part.rank, part.root);
            assert_eq!(under_way.into.get(), expected, "collective {kind}, rank {rank}, root {root}, length {len}");
        }
    }
}

struct UnderWay {
    request: Option<Request>,
    _out: Values,
    into: Values,
    /// Counts and displacements live until the end of a nonblocking one.
    _numbers: Vec<i32>,
}

impl Part {
    fn datum(&self, rank: usize, at: usize) -> i32 {
        self.salt + (rank * 1000 + at) as i32 % 7919
    }

    fn data(&self, rank: usize, len: usize) -> Vec<i32> {
        (0..len).map(|at| self.datum(rank, at)).collect()
    }

    /// Elements of `rank` where lengths differ.
    fn share(&self, rank: usize) -> usize {
        (self.len + rank) % 5
    }

    fn begin(&self, kind: usize, form: Form) -> UnderWay {
        let Part { comm, rank, size, root, len, .. } = *self;
        let shares: Vec<i32> = (0..size).map(|rank| self.share(rank) as i32).collect();
        let places: Vec<i32> = shares.iter().scan(0, |at, share| Some(std::mem::replace(at, *at + share))).collect();
        let (out_len, into_len) = match kind {
            2 | 3 => (len, len * size),
            4 => (len * size, len * size),
            5 => (self.share(rank), shares.iter().sum::<i32>() as usize),
            7 => (len * size, len),
            _ => (len, len),
        };
        let mut out = Values::of(&self.data(rank, out_len));
        let mut into = Values::filled(-1, into_len.max(1));
        if kind == 0 && rank == root {
            into = Values::of(&self.data(root, len));
        }
        let (from, to, count, wait, to_root) =
            (out.addr(), into.addr(), len as i64, form == Form::Blocking, root as i32);
        let counts = (Ints::Small(&shares), Ints::Small(&places));
        let mine = shares[rank] as i64;
        // The blocking form, or the request of the other one.
        let request = match (kind, wait) {
            (0, true) => done(call::bcast(to, count, INT, to_root, comm)),
            (0, false) => call::ibcast(to, count, INT, to_root, comm).map(Some),
            (1, true) => done(call::allreduce(from, to, count, INT, SUM, comm)),
            (1, false) => call::iallreduce(from, to, count, INT, SUM, comm).map(Some),
            (2, true) => done(call::allgather(from, count, INT, to, count, INT, comm)),
            (2, false) => call::iallgather(from, count, INT, to, count, INT, comm).map(Some),
            (3, true) => done(call::gather(from, count, INT, to, count, INT, to_root, comm)),
            (3, false) => call::igather(from, count, INT, to, count, INT, to_root, comm).map(Some),
            (4, true) => done(call::alltoall(from, count, INT, to, count, INT, comm)),
            (4, false) => call::ialltoall(from, count, INT, to, count, INT, comm).map(Some),
            (5, true) => done(call::allgatherv(from, mine, INT, to, counts.0, counts.1, INT, comm)),
            (5, false) => call::iallgatherv(from, mine, INT, to, counts.0, counts.1, INT, comm).map(Some),
            (6, true) => done(call::scan(from, to, count, INT, MAX, comm)),
            (6, false) => call::iscan(from, to, count, INT, MAX, comm).map(Some),
            (7, true) => done(call::reduce_scatter_block(from, to, count, INT, SUM, comm)),
            (7, false) => call::ireduce_scatter_block(from, to, count, INT, SUM, comm).map(Some),
            (_, true) => done(call::reduce(from, to, count, INT, MAX, to_root, comm)),
            (_, false) => call::ireduce(from, to, count, INT, MAX, to_root, comm).map(Some),
        };
        UnderWay { request: request.unwrap(), _out: out, into, _numbers: [shares, places].concat() }
    }

    /// What this member's result must be; `None` where it has none.
    fn expected(&self, kind: usize) -> Option<Vec<i32>> {
        let Part { rank, size, root, len, .. } = *self;
        let all = 0..size;
        let sum = |at: usize| (0..size).fold(0_i32, |sum, of| sum.wrapping_add(self.datum(of, at)));
        match kind {
            0 => Some(self.data(root, len)),
            1 => Some((0..len).map(sum).collect()),
            2 => Some(all.flat_map(|of| self.data(of, len)).collect()),
            3 => (rank == root).then(|| all.flat_map(|of| self.data(of, len)).collect()),
            4 => Some(all.flat_map(|of| (rank * len..(rank + 1) * len).map(move |at| self.datum(of, at))).collect()),
            5 => {
                let found: Vec<i32> = all.flat_map(|of| self.data(of, self.share(of))).collect();
                Some(if found.is_empty() { vec![-1] } else { found })
            }
            6 => Some((0..len).map(|at| (0..=rank).map(|of| self.datum(of, at)).max().unwrap_or(0)).collect()),
            7 => Some((rank * len..(rank + 1) * len).map(sum).collect()),
            _ if rank == root => {
                Some((0..len).map(|at| all.clone().map(|of| self.datum(of, at)).max().unwrap_or(0)).collect())
            }
            _ => None,
        }
    }
}

fn done(result: pulc_mpi::error::Result<()>) -> pulc_mpi::error::Result<Option<Request>> {
    result.map(|()| None)
}
