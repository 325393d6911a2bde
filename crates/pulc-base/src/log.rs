//! A line logger to stderr, chosen by `PULC_LOG` (error, warn, info, debug; default warn). For rare events only: the data
//! path never logs. An error is logged once, by whoever decides what to do about it.

use std::io::Write;
use std::sync::OnceLock;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Level {
    Error,
    Warn,
    Info,
    Debug,
}

/// Whether lines of this level are written.
pub fn enabled(level: Level) -> bool {
    static LIMIT: OnceLock<Level> = OnceLock::new();
    level
        <= *LIMIT.get_or_init(|| match std::env::var("PULC_LOG").as_deref() {
            Ok("error") => Level::Error,
            Ok("info") => Level::Info,
            Ok("debug") => Level::Debug,
            _ => Level::Warn,
        })
}

/// Writes one line; called by [`crate::log!`]. A full or closed stderr loses the line and nothing else.
pub fn write(level: Level, area: &str, text: std::fmt::Arguments<'_>) {
    let name = match level {
        Level::Error => "error",
        Level::Warn => "warning",
        Level::Info => "info",
        Level::Debug => "debug",
    };
    let line = format!("pulc: {name}: {area}: {text}\n");
    let _ = std::io::stderr().write_all(line.as_bytes());
}

/// `log!(Warn, "keeper", "rank {rank} …")`
#[macro_export]
macro_rules! log {
    ($level:ident, $area:expr, $($text:tt)*) => {
        if $crate::log::enabled($crate::log::Level::$level) {
            $crate::log::write($crate::log::Level::$level, $area, format_args!($($text)*));
        }
    };
}
