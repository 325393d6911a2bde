//! What a run must satisfy, computed on rank 0 from the gathered field: the exact decay of the slowest mode, the conserved sum
//! between insulated walls, and a hash that is equal for every decomposition.
//! Source: von Neumann analysis of the explicit five-point scheme; sine and cosine modes are its exact eigenvectors.

use crate::decomposition::Grid;
use crate::solver::Boundary;
use crate::start::mode;
use serde::{Deserialize, Serialize};
use std::f64::consts::PI;

/// Largest relative deviation from the exact decay that passes.
pub const MODE_ERROR_MAX: f64 = 1e-12;

/// The slowest mode is not followed below this part of its height: rounding of tiny numbers would be measured instead.
const MODE_HEIGHT_MIN: f64 = 1e-200;

/// Outcome of the checks. `None` where a check does not apply.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Verification {
    /// Relative deviation of the slowest mode from its exact decay.
    pub mode_error: Option<f64>,
    /// Steps over which it was followed.
    pub mode_steps: Option<u64>,
    /// |sum after - sum before| of an insulated plate.
    pub sum_drift: Option<f64>,
    /// What rounding alone may cause.
    pub sum_drift_max: Option<f64>,
}

impl Verification {
    /// What failed, in words.
    pub fn failure(&self) -> Option<String> {
        // A NaN fails.
        if let Some(error) = self.mode_error.filter(|error| error.is_nan() || *error > MODE_ERROR_MAX) {
            return Some(format!(
                "the slowest mode is off its exact decay by {error:.3e}, allowed are {MODE_ERROR_MAX:e}"
            ));
        }
        match (self.sum_drift, self.sum_drift_max) {
            (Some(drift), Some(max)) if drift.is_nan() || drift > max => {
                Some(format!("the sum of an insulated plate changed by {drift:.3e}, rounding explains {max:.3e}"))
            }
            _ => None,
        }
    }
}

/// Natural logarithm of the factor by which the slowest mode shrinks per step. On a square plate between fixed rims the factor
/// is 1 - 8 r sin^2(pi h / 2), h = 1 / (cells + 1).
pub fn log_decay(grid: Grid, boundary: Boundary, r: f64) -> f64 {
    let term = |n: usize| {
        let h = match boundary {
            Boundary::Fixed => 1.0 / (n + 1) as f64,
            Boundary::Insulated if n == 1 => 0.0,
            Boundary::Insulated => 1.0 / n as f64,
        };
        (PI * h / 2.0).sin().powi(2)
    };
    (-4.0 * r * (term(grid.rows) + term(grid.columns))).ln_1p()
}

/// How many of `wanted` steps the mode can be followed before it has shrunk too far to be measured.
pub fn measurable_steps(grid: Grid, boundary: Boundary, r: f64, wanted: u64) -> u64 {
    let log = log_decay(grid, boundary, r);
    if log == 0.0 { wanted } else { ((MODE_HEIGHT_MIN.ln() / log) as u64).min(wanted) }
}

/// Relative deviation of `field` from the slowest mode after `steps` steps.
pub fn mode_error(grid: Grid, boundary: Boundary, r: f64, steps: u64, field: &[f64]) -> f64 {
    let factor = if steps == 0 { 1.0 } else { (steps as f64 * log_decay(grid, boundary, r)).exp() };
    let across: Vec<f64> = (0..grid.columns).map(|column| mode(column, grid.columns, boundary)).collect();
    let (mut worst, mut height) = (0.0f64, 0.0f64);
    for (row, line) in field.chunks_exact(grid.columns).enumerate() {
        let down = mode(row, grid.rows, boundary);
        for (cell, across) in line.iter().zip(&across) {
            let exact = factor * (down * across);
            let off = (cell - exact).abs();
            if off.is_nan() {
                return f64::NAN;
            }
            worst = worst.max(off);
            height = height.max(exact.abs());
        }
    }
    worst / height
}

/// Sum of the field and sum of its absolute values, with compensated addition (Neumaier), so that the check measures the
/// solver's rounding and not its own.
pub fn sums(field: &[f64]) -> (f64, f64) {
    let (mut sum, mut lost, mut size) = (0.0f64, 0.0f64, 0.0f64);
    for cell in field {
        let total = sum + cell;
        lost += if sum.abs() >= cell.abs() { (sum - total) + cell } else { (cell - total) + sum };
        sum = total;
        size += cell.abs();
    }
    (sum + lost, size)
}

/// What rounding may change in the sum: each of `steps` steps rounds each cell by at most four units in the last place.
pub fn sum_drift_max(size: f64, steps: u64) -> f64 {
    4.0 * f64::EPSILON * size * (steps + 1) as f64
}

/// FNV-1a over the bits of the field, row by row.
pub fn hash(field: &[f64]) -> u64 {
    field
        .iter()
        .flat_map(|cell| cell.to_le_bytes())
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decay_of_a_square_plate_is_the_textbook_factor() {
        let (n, r) = (63usize, 0.2f64);
        let factor = 1.0 - 8.0 * r * (PI / (n + 1) as f64 / 2.0).sin().powi(2);
        let ours = log_decay(Grid { rows: n, columns: n }, Boundary::Fixed, r).exp();
        assert!((ours - factor).abs() < 1e-15, "{ours} {factor}");
    }

    #[test]
    fn a_field_that_is_off_or_not_a_number_fails() {
        let off = |error| Verification { mode_error: Some(error), ..Verification::default() }.failure();
        assert!(off(9e-13).is_none());
        assert!(off(2e-12).is_some());
        assert!(off(f64::NAN).is_some());
        let drift = |drift| {
            Verification { sum_drift: Some(drift), sum_drift_max: Some(1e-9), ..Verification::default() }.failure()
        };
        assert!(drift(1e-10).is_none());
        assert!(drift(1e-8).is_some());
    }

    #[test]
    fn one_changed_bit_changes_the_hash() {
        let field = vec![0.25f64; 100];
        let mut other = field.clone();
        other[57] = f64::from_bits(other[57].to_bits() ^ 1);
        assert_ne!(hash(&field), hash(&other));
    }

    #[test]
    fn steps_stop_before_the_mode_vanishes() {
        let grid = Grid { rows: 4, columns: 4 };
        let steps = measurable_steps(grid, Boundary::Fixed, 0.2, 1_000_000);
        assert!(steps > 100 && steps < 1_000_000);
        assert_eq!(measurable_steps(Grid { rows: 500, columns: 500 }, Boundary::Fixed, 0.2, 700), 700);
    }
}
