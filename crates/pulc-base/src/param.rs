//! The parameter table: every limit and threshold is one row with name, default, unit and meaning; `pulc info` prints it
//! with the source of each value. A parameter is set by the environment variable `PULC_` + upper-case name; some have been
//! measured on this machine (`pulc_hal::calibration`), which counts where the environment says nothing. Limits that nobody can set are
//! rows as well ([`Fixed`]).

use std::sync::OnceLock;

/// What was measured, by name of the parameter.
static CALIBRATED: OnceLock<Vec<(String, u64)>> = OnceLock::new();

/// Says what was measured on this machine. Only the first call counts; later reads obey it.
pub fn set_calibrated(values: Vec<(String, u64)>) {
    let _ = CALIBRATED.set(values);
}

/// One row. Declared as a `static` beside the code that obeys it and listed in its crate's `PARAMS`.
pub struct Param {
    /// Lower case, unit last: `eager_max_bytes`.
    pub name: &'static str,
    pub default: u64,
    pub min: u64,
    pub max: u64,
    pub text: &'static str,
}

/// A limit that is built in: a fact of layouts and formats that no setting changes. Named beside the code that obeys it and listed in its
/// crate's `FIXED`.
pub struct Fixed {
    /// Lower case, unit last.
    pub name: &'static str,
    pub value: u64,
    pub text: &'static str,
}

/// Where a value came from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Source {
    Default,
    Environment,
    /// Measured on this machine.
    Calibration,
}

/// A value in use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Value {
    pub value: u64,
    pub source: Source,
}

impl Param {
    /// Name of the environment variable that sets this parameter.
    pub fn variable(&self) -> String {
        format!("PULC_{}", self.name.to_ascii_uppercase())
    }

    /// The value in force: the environment's if it parses and lies within the limits (a warning is logged otherwise), else
    /// the default. Reads the environment: call at start-up and keep the result.
    pub fn read(&self) -> Value {
        let default = self.unasked();
        let Ok(text) = std::env::var(self.variable()) else { return default };
        match parse(&text) {
            Some(value) if (self.min..=self.max).contains(&value) => Value { value, source: Source::Environment },
            _ => {
                crate::log!(
                    Warn,
                    "param",
                    "{}={text} is not a number in {}..={}; using {}",
                    self.variable(),
                    self.min,
                    self.max,
                    default.value
                );
                default
            }
        }
    }
}

impl Param {
    /// The value that counts while the environment says nothing.
    fn unasked(&self) -> Value {
        let measured = CALIBRATED.get().and_then(|values| values.iter().find(|(name, _)| name == self.name));
        match measured {
            Some((_, value)) if (self.min..=self.max).contains(value) => {
                Value { value: *value, source: Source::Calibration }
            }
            _ => Value { value: self.default, source: Source::Default },
        }
    }
}

/// A decimal number with an optional binary suffix k, m or g.
fn parse(text: &str) -> Option<u64> {
    let text = text.trim().to_ascii_lowercase();
    let (digits, shift) = match text.strip_suffix(['k', 'm', 'g']) {
        Some(digits) => (
            digits,
            match text.as_bytes().last()? {
                b'k' => 10,
                b'm' => 20,
                _ => 30,
            },
        ),
        None => (text.as_str(), 0),
    };
    digits.parse::<u64>().ok()?.checked_mul(1 << shift)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_measured_counts_within_the_limits_and_where_the_environment_is_silent() {
        static MEASURED: Param = Param { name: "test_measured", default: 5, min: 1, max: 10, text: "" };
        static BEYOND: Param = Param { name: "test_beyond", default: 5, min: 1, max: 10, text: "" };
        set_calibrated(vec![("test_measured".into(), 7), ("test_beyond".into(), 11)]);
        assert_eq!(MEASURED.read(), Value { value: 7, source: Source::Calibration });
        assert_eq!(BEYOND.read(), Value { value: 5, source: Source::Default });
    }

    #[test]
    fn suffixes_are_binary_and_overflow_is_refused() {
        assert_eq!(parse("64k"), Some(65536));
        assert_eq!(parse(" 2M "), Some(2 << 20));
        assert_eq!(parse("17"), Some(17));
        assert_eq!(parse("18446744073709551615g"), None);
        assert_eq!(parse("many"), None);
        assert_eq!(parse(""), None);
    }
}
