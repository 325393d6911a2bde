//! The result of a run, as JSON (one line, read by the demo) and in words.

use crate::exchange::Traffic;
use crate::verify::Verification;
use serde::{Deserialize, Serialize};
use std::fmt::Write;
use std::path::PathBuf;

/// Everything rank 0 knows at the end.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// Always "heat": marks the line among others.
    pub program: String,
    pub width: usize,
    pub height: usize,
    pub steps: u64,
    pub r: f64,
    pub ranks: usize,
    pub nodes: usize,
    /// Tiles down and across.
    pub decomposition: [usize; 2],
    /// Wall-clock time of the steps and gathers, without reading input and writing files.
    pub seconds: f64,
    pub cells_per_second: f64,
    /// FNV-1a over the bits of the final field; 16 hexadecimal digits.
    pub hash: String,
    /// What all ranks together have sent, by device.
    pub traffic: Vec<Traffic>,
    pub verification: Option<Verification>,
    pub png: Option<PathBuf>,
    pub gif: Option<PathBuf>,
}

pub const PROGRAM: &str = "heat";

impl Report {
    /// One line of JSON.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("a report has only string keys and finite or null numbers")
    }

    /// The report in this line of output, if it is one.
    pub fn from_json(line: &str) -> Option<Report> {
        if !line.starts_with("{\"program\":\"heat\"") {
            return None;
        }
        serde_json::from_str(line).ok()
    }

    pub fn to_text(&self) -> String {
        let mut text = format!(
            "{}x{} cells, {} steps, {} rank{} on {} node{}, {} down x {} across: {:.3} s, {:.0} Mcells/s\nfield {}\n",
            self.width,
            self.height,
            self.steps,
            self.ranks,
            if self.ranks == 1 { "" } else { "s" },
            self.nodes,
            if self.nodes == 1 { "" } else { "s" },
            self.decomposition[0],
            self.decomposition[1],
            self.seconds,
            self.cells_per_second / 1e6,
            self.hash
        );
        for Traffic { device, messages, bytes } in &self.traffic {
            let _ = writeln!(text, "{device}: {messages} messages, {}", amount(*bytes));
        }
        if let Some(checks) = &self.verification {
            if let (Some(error), Some(steps)) = (checks.mode_error, checks.mode_steps) {
                let _ = writeln!(text, "slowest mode off its exact decay by {error:.1e} after {steps} steps");
            }
            if let (Some(drift), Some(max)) = (checks.sum_drift, checks.sum_drift_max) {
                let _ =
                    writeln!(text, "sum of the insulated plate changed by {drift:.1e}, rounding explains {max:.1e}");
            }
            match checks.failure() {
                None => text.push_str("verification passed\n"),
                Some(why) => _ = writeln!(text, "verification FAILED: {why}"),
            }
        }
        for path in [&self.png, &self.gif].into_iter().flatten() {
            let _ = writeln!(text, "wrote {}", path.display());
        }
        text
    }
}

/// Bytes with a unit that keeps three or four digits.
pub fn amount(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["B", "kB", "MB", "GB", "TB"];
    let (mut value, mut unit) = (bytes as f64, 0);
    while value >= 999.5 && unit + 1 < UNITS.len() {
        value /= 1000.0;
        unit += 1;
    }
    if unit == 0 || value >= 99.95 {
        format!("{value:.0} {}", UNITS[unit])
    } else {
        format!("{value:.1} {}", UNITS[unit])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_survives_the_line_it_is_printed_in() {
        let report = Report {
            program: PROGRAM.into(),
            width: 3,
            height: 2,
            steps: 1,
            r: 0.25,
            ranks: 2,
            nodes: 1,
            decomposition: [2, 1],
            seconds: 0.5,
            cells_per_second: 12.0,
            hash: "00ff".into(),
            traffic: vec![Traffic { device: "shm".into(), messages: 4, bytes: 64 }],
            verification: Some(Verification::default()),
            png: Some("a \"b\".png".into()),
            gif: None,
        };
        assert_eq!(Report::from_json(&report.to_json()), Some(report));
        assert_eq!(Report::from_json("{\"program\":\"heat\"}"), None);
        assert_eq!(Report::from_json("step 3"), None);
    }

    #[test]
    fn amounts_keep_their_digits() {
        assert_eq!([0, 999, 1500, 999_600, 123_456_789].map(amount), ["0 B", "999 B", "1.5 kB", "1.0 MB", "123 MB"]);
    }
}
