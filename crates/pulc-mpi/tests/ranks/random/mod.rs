//! Random correct programs: every rank makes the same program from the seed, plays its part, and knows what must come out. A program is
//! a row of acts on a set of communicators: storms of messages, collectives, and the making and freeing of communicators.
//! The seed is printed; `PULC_TEST_SEED` replays it.

mod storm;
mod together;

use crate::values::{WORLD, place};
use pulc_mpi::call;
use pulc_mpi::consts::UNDEFINED;
use pulc_mpi::handle::Comm;

/// Communicators at a time.
const TEAMS_MAX: usize = 6;

/// SplitMix64: small, and the same everywhere.
#[derive(Clone)]
pub struct Dice(u64);

impl Dice {
    pub fn new(seed: u64) -> Dice {
        Dice(seed)
    }

    pub fn word(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    }

    pub fn below(&mut self, limit: usize) -> usize {
        (self.word() % limit as u64) as usize
    }

    pub fn one_in(&mut self, chances: usize) -> bool {
        self.below(chances) == 0
    }

    /// A random order of `0..n`.
    pub fn order(&mut self, n: usize) -> Vec<usize> {
        let mut order: Vec<usize> = (0..n).collect();
        (1..n).rev().for_each(|last| order.swap(last, self.below(last + 1)));
        order
    }
}

/// A communicator, as everybody knows it.
pub struct Team {
    /// Ranks in the job, by their rank here.
    pub members: Vec<usize>,
    /// This process's handle, if it is a member.
    comm: Option<Comm>,
}

impl Team {
    /// The handle and this process's rank.
    pub fn mine(&self, me: usize) -> Option<(Comm, usize)> {
        Some((self.comm?, self.members.iter().position(|member| *member == me)?))
    }
}

/// One program, as this process plays it.
pub struct Play {
    pub dice: Dice,
    /// Differs from rank to rank: for what must not matter.
    pub own_dice: Dice,
    pub me: usize,
    pub teams: Vec<Team>,
}

pub fn play() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let seed = number("PULC_TEST_SEED").expect("the test names a seed");
    let acts = number("PULC_TEST_ACTS").unwrap_or(20);
    let (me, n) = place(WORLD);
    let world = Team { members: (0..n as usize).collect(), comm: Some(WORLD) };
    let (dice, own_dice) = (Dice::new(seed), Dice::new(seed ^ (me as u64 + 1) << 32));
    let mut play = Play { dice, own_dice, me: me as usize, teams: vec![world] };
    for act in 0..acts {
        play.act(act);
    }
    for team in &mut play.teams[1..] {
        team.comm.as_mut().map(call::comm_free).transpose().unwrap();
    }
}

impl Play {
    fn act(&mut self, number: u64) {
        let at = self.dice.below(self.teams.len());
        match self.dice.below(8) {
            0 if self.teams.len() < TEAMS_MAX => self.split(at),
            1 if self.teams.len() < TEAMS_MAX => self.dup(at),
            2 if at > 0 => self.free(at),
            0..=4 => storm::play(self, at, number),
            _ => together::play(self, at, number),
        }
    }

    fn split(&mut self, at: usize) {
        let parent = &self.teams[at];
        let colors = 1 + self.dice.below(3);
        let drawn: Vec<(i32, i32)> = (0..parent.members.len())
            .map(|_| (self.dice.below(colors + 1) as i32 - 1, self.dice.below(4) as i32 - 2))
            .collect();
        let own = parent.mine(self.me).map(|(comm, rank)| {
            let (color, key) = drawn[rank];
            (color, call::comm_split(comm, if color < 0 { UNDEFINED } else { color }, key).unwrap())
        });
        let mut made = Vec::new();
        for color in 0..colors as i32 {
            let mut ranks: Vec<usize> = (0..drawn.len()).filter(|rank| drawn[*rank].0 == color).collect();
            // Stable: those of one key keep their order.
            ranks.sort_by_key(|rank| drawn[*rank].1);
            let members: Vec<usize> = ranks.iter().map(|rank| parent.members[*rank]).collect();
            let comm = own.filter(|(mine, _)| *mine == color).map(|(_, comm)| comm);
            if !members.is_empty() {
                made.push(Team { members, comm });
            }
        }
        if let Some((color, comm)) = own {
            assert_eq!(comm.is_null(), color < 0, "color {color}");
        }
        made.iter().for_each(|team| self.check(team));
        // More than there is room for are freed at once.
        let room = TEAMS_MAX - self.teams.len();
        for team in made.iter_mut().skip(room) {
            team.comm.as_mut().map(call::comm_free).transpose().unwrap();
        }
        made.truncate(room);
        self.teams.append(&mut made);
    }

    fn dup(&mut self, at: usize) {
        let parent = &self.teams[at];
        let comm = parent.mine(self.me).map(|(comm, _)| call::comm_dup(comm).unwrap());
        let team = Team { members: parent.members.clone(), comm };
        self.check(&team);
        self.teams.push(team);
    }

    fn free(&mut self, at: usize) {
        let mut team = self.teams.swap_remove(at);
        team.comm.as_mut().map(call::comm_free).transpose().unwrap();
    }

    /// Rank and size are what the program says.
    fn check(&self, team: &Team) {
        if let Some((comm, rank)) = team.mine(self.me) {
            assert_eq!(place(comm), (rank as i32, team.members.len() as i32));
        }
    }
}
