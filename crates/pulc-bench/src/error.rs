//! What can go wrong in a benchmark. Shown once, by the driver; a row that cannot be measured is told and left out.

/// Errors of the benchmarks.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    #[error("{doing}: {source}")]
    System {
        doing: &'static str,
        #[source]
        source: std::io::Error,
    },
    #[error(transparent)]
    Hal(#[from] pulc_hal::HalError),
    #[error("the other process has ended")]
    Ended,
    #[error("the other process sent {0:?}, which makes no sense here")]
    Nonsense(String),
    #[error("the measurement took longer than {seconds} s and was given up")]
    Hung { seconds: u64 },
    #[error("{0}")]
    Worker(String),
    #[error("ended by {0}")]
    Interrupted(&'static str),
    #[error("{program} failed: {text}")]
    Program { program: String, text: String },
    #[error("the plot cannot be drawn: {0}")]
    Drawing(String),
    #[error("no rows to draw: give a file that `pulc bench layers --json` has written")]
    NoRows,
    #[error("{layer} cannot be measured here: {why}")]
    NotHere { layer: &'static str, why: String },
}

impl Error {
    /// For `map_err`: what was being done when the system refused.
    pub(crate) fn system<E: Into<std::io::Error>>(doing: &'static str) -> impl FnOnce(E) -> Error {
        move |source| Error::System { doing, source: source.into() }
    }
}
