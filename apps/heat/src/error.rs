//! Everything that can go wrong in a heat run, in the words the user reads. Printed once, by rank 0.

use std::path::PathBuf;

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HeatError {
    #[error(
        "{ranks} ranks cannot share {rows} rows: use at most {rows} ranks, a larger --size, or --decomposition blocks"
    )]
    TooFewRows { ranks: usize, rows: usize },
    #[error(
        "{ranks} ranks cannot be arranged on {columns}x{rows} cells so that each has one: use fewer ranks or a larger --size"
    )]
    TooFewCells { ranks: usize, rows: usize, columns: usize },
    #[error("--decomposition {down}x{across} makes {} tiles but {ranks} ranks were started", down * across)]
    WrongArrangement { down: usize, across: usize, ranks: usize },
    #[error("r = {r} is unstable: r times the largest conductivity ({conductivity}) must be above 0 and at most 0.25")]
    Unstable { r: f64, conductivity: f64 },
    #[error("a grid of {columns}x{rows} cells is outside the limits of 1x1 to {max}x{max}: change --size")]
    GridSize { rows: usize, columns: usize, max: usize },
    #[error("no memory for {what} of {bytes} bytes: use a smaller --size or more nodes")]
    NoMemory { what: &'static str, bytes: usize },
    #[error("cannot read image {}: {why}", path.display())]
    ReadImage { path: PathBuf, why: String },
    #[error("cannot write {}: {why}", path.display())]
    WriteFile { path: PathBuf, why: String },
    #[error("verification failed: {0}")]
    Verification(String),
    #[error("communication failed: {0}")]
    Exchange(#[from] crate::exchange::ExchangeError),
    /// Rank 0 gave up and has already said why.
    #[error("rank 0 gave up before the start")]
    StoppedByRank0,
}

impl HeatError {
    /// Exit status: 2 for what the user can change on the command line, 1 for the rest.
    pub fn exit_code(&self) -> u8 {
        match self {
            HeatError::Verification(_)
            | HeatError::Exchange(_)
            | HeatError::WriteFile { .. }
            | HeatError::NoMemory { .. } => 1,
            _ => 2,
        }
    }
}
