//! What every MPI is made to run: the program's word, with how many processes, where. Pure.

use crate::row::Place;

/// One run of the program.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Task {
    /// Messages between two processes.
    Pair(Place),
    /// Processor time of one that waits.
    Blocked,
    /// Collectives.
    Many(u32),
    /// Shares of memory.
    Memory(u32),
    /// From the launcher's start to its end.
    Start(u32),
}

impl Task {
    pub fn word(self) -> &'static str {
        match self {
            // Some take milliseconds for each message there.
            Task::Pair(Place::Core) => "short",
            Task::Pair(_) => "pair",
            Task::Blocked => "blocked",
            Task::Many(_) => "many",
            Task::Memory(_) => "memory",
            Task::Start(_) => "start",
        }
    }

    pub fn ranks(self) -> u32 {
        match self {
            Task::Pair(_) | Task::Blocked => 2,
            Task::Many(ranks) | Task::Memory(ranks) | Task::Start(ranks) => ranks,
        }
    }

    pub fn place(self) -> Place {
        match self {
            Task::Pair(place) => place,
            Task::Blocked | Task::Many(_) | Task::Memory(_) | Task::Start(_) => Place::Node,
        }
    }

    /// How the program pins its ranks. Launchers differ in where they put processes, so others are told; where PULC puts them is part of
    /// what is measured. On one core all are told, and between nodes too, because the two "nodes" are one machine.
    pub fn pinning(self, is_ours: bool) -> Option<&'static str> {
        match self.place() {
            Place::Core => Some("one"),
            Place::Net => Some("pin"),
            Place::Node => (!is_ours).then_some("pin"),
        }
    }

    pub fn text(self) -> String {
        let place = match self.place() {
            Place::Node => "",
            Place::Core => " on one core",
            Place::Net => " between two nodes",
        };
        format!("{} with {} processes{place}", self.word(), self.ranks())
    }
}
