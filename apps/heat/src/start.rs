//! Start fields that need no file. Every rank computes its own cells from their place in the grid; only `mode` uses functions
//! (sine, cosine) whose last bit depends on the C library, the rest is the same on every machine.

use crate::decomposition::{Grid, Tile};
use crate::solver::Boundary;
use std::f64::consts::PI;

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Start {
    /// The word PULC, glowing on a cold plate.
    Letters,
    /// The slowest mode of the plate, whose decay is known exactly.
    Mode,
    /// A dozen hot spots of different size.
    Spots,
    /// A hot ring around a cold centre.
    Ring,
    /// The left half hot, the right half cold.
    Half,
}

impl Start {
    /// Lowest and highest temperature, for the colours. Diffusion never leaves this range.
    pub fn range(self, boundary: Boundary) -> (f64, f64) {
        if self == Start::Mode && boundary == Boundary::Insulated { (-1.0, 1.0) } else { (0.0, 1.0) }
    }

    /// The cells of one tile, row by row.
    pub fn fill(self, grid: Grid, boundary: Boundary, tile: Tile, cells: &mut [f64]) {
        let columns: Vec<f64> = (0..grid.columns).map(|column| mode(column, grid.columns, boundary)).collect();
        let aspect = grid.columns as f64 / grid.rows as f64;
        for (index, cell) in cells.iter_mut().enumerate() {
            let (row, column) = (tile.first_row + index / tile.columns, tile.first_column + index % tile.columns);
            // Middle of the cell: y in 0..1 downwards, x in 0..aspect.
            let y = (row as f64 + 0.5) / grid.rows as f64;
            let x = (column as f64 + 0.5) / grid.columns as f64 * aspect;
            *cell = match self {
                Start::Mode => mode(row, grid.rows, boundary) * columns[column],
                Start::Letters => letters(x - aspect / 2.0, y - 0.5, aspect),
                Start::Spots => spots(x / aspect, y, aspect),
                Start::Ring => {
                    let off_centre = length(x - aspect / 2.0, y - 0.5);
                    soft(0.08 * aspect.min(1.0) - (off_centre - 0.3 * aspect.min(1.0)).abs(), 1.0 / grid.rows as f64)
                }
                Start::Half => f64::from(u8::from(2 * column < grid.columns)),
            };
        }
    }
}

/// The slowest mode along one direction of `n` cells: a half sine between rims held at 0, a half cosine between insulated ones.
pub fn mode(index: usize, n: usize, boundary: Boundary) -> f64 {
    match boundary {
        Boundary::Fixed => (PI * (index + 1) as f64 / (n + 1) as f64).sin(),
        Boundary::Insulated if n == 1 => 1.0,
        Boundary::Insulated => (PI * (index as f64 + 0.5) / n as f64).cos(),
    }
}

fn length(x: f64, y: f64) -> f64 {
    (x * x + y * y).sqrt()
}

/// 1 well inside (positive distance), 0 well outside, a straight ramp of `width` between.
fn soft(inside: f64, width: f64) -> f64 {
    (inside / width + 0.5).clamp(0.0, 1.0)
}

fn spots(x: f64, y: f64, aspect: f64) -> f64 {
    /// x, y, radius, temperature
    const SPOTS: [(f64, f64, f64, f64); 12] = [
        (0.18, 0.22, 0.09, 1.00),
        (0.47, 0.15, 0.05, 0.75),
        (0.80, 0.20, 0.11, 0.90),
        (0.31, 0.50, 0.06, 0.60),
        (0.58, 0.42, 0.13, 0.80),
        (0.90, 0.52, 0.04, 1.00),
        (0.10, 0.63, 0.05, 0.85),
        (0.22, 0.83, 0.10, 0.70),
        (0.45, 0.76, 0.07, 1.00),
        (0.66, 0.85, 0.05, 0.65),
        (0.83, 0.78, 0.09, 0.95),
        (0.72, 0.63, 0.03, 1.00),
    ];
    let spot = |(cx, cy, radius, heat): (f64, f64, f64, f64)| {
        heat * soft(radius - length((x - cx) * aspect, y - cy), radius * 0.4)
    };
    SPOTS.into_iter().map(spot).fold(0.0, f64::max)
}

/// The word PULC in strokes of round pen, centred at the origin. Each letter stands in a box 0.56 wide and 1 high.
fn letters(x: f64, y: f64, aspect: f64) -> f64 {
    /// Left edges, closer behind the open side of the L.
    const LEFT: [f64; 4] = [0.0, 0.95, 1.93, 2.83];
    const WORD: f64 = 2.83 + 0.56;
    const PEN: f64 = 0.095;
    // Height of a letter so that the word fills the plate with a margin.
    let height = (0.62f64).min(aspect * 0.84 / WORD);
    let (x, y) = (x / height + WORD / 2.0, y / height);
    let away = [letter_p, letter_u, letter_l, letter_c]
        .iter()
        .enumerate()
        .map(|(index, letter)| letter(x - LEFT[index], y))
        .fold(f64::INFINITY, f64::min);
    soft(PEN - away, 0.03)
}

fn stroke(x: f64, y: f64, from: (f64, f64), to: (f64, f64)) -> f64 {
    let (dx, dy) = (to.0 - from.0, to.1 - from.1);
    let along = (((x - from.0) * dx + (y - from.1) * dy) / (dx * dx + dy * dy)).clamp(0.0, 1.0);
    length(x - from.0 - along * dx, y - from.1 - along * dy)
}

fn letter_p(x: f64, y: f64) -> f64 {
    let stem = stroke(x, y, (0.0, -0.5), (0.0, 0.5));
    let top = stroke(x, y, (0.0, -0.5), (0.28, -0.5));
    let bottom = stroke(x, y, (0.0, 0.04), (0.28, 0.04));
    let bow = if x >= 0.28 { (length(x - 0.28, y + 0.23) - 0.27).abs() } else { f64::INFINITY };
    stem.min(top).min(bottom).min(bow)
}

fn letter_u(x: f64, y: f64) -> f64 {
    let left = stroke(x, y, (0.0, -0.5), (0.0, 0.22));
    let right = stroke(x, y, (0.56, -0.5), (0.56, 0.22));
    let bow = if y >= 0.22 { (length(x - 0.28, y - 0.22) - 0.28).abs() } else { f64::INFINITY };
    left.min(right).min(bow)
}

fn letter_l(x: f64, y: f64) -> f64 {
    stroke(x, y, (0.0, -0.5), (0.0, 0.5)).min(stroke(x, y, (0.0, 0.5), (0.50, 0.5)))
}

fn letter_c(x: f64, y: f64) -> f64 {
    // Two half bows joined by a stem, opened to the right, with round ends.
    let ends = length(x - 0.56, y.abs() - 0.22);
    let upper = if y <= -0.22 { (length(x - 0.28, y + 0.22) - 0.28).abs() } else { f64::INFINITY };
    let lower = if y >= 0.22 { (length(x - 0.28, y - 0.22) - 0.28).abs() } else { f64::INFINITY };
    stroke(x, y, (0.0, -0.22), (0.0, 0.22)).min(upper).min(lower).min(ends)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decomposition::{Decomposition, Layout};

    #[test]
    fn every_start_stays_in_its_range_and_is_not_flat() {
        for start in [Start::Letters, Start::Mode, Start::Spots, Start::Ring, Start::Half] {
            for boundary in [Boundary::Fixed, Boundary::Insulated] {
                let grid = Grid { rows: 40, columns: 90 };
                let tile = Decomposition::new(grid, Layout::Rows, 1).unwrap().tile(0);
                let mut cells = vec![f64::NAN; grid.cells()];
                start.fill(grid, boundary, tile, &mut cells);
                let (low, high) = start.range(boundary);
                assert!(cells.iter().all(|u| (low..=high).contains(u)), "{start:?} leaves {low}..{high}");
                let max = cells.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                let min = cells.iter().copied().fold(f64::INFINITY, f64::min);
                assert!(max - min > 0.7, "{start:?} is nearly flat: {min}..{max}");
            }
        }
    }

    #[test]
    fn a_tile_is_filled_as_the_same_part_of_the_whole() {
        let grid = Grid { rows: 23, columns: 31 };
        let whole = Decomposition::new(grid, Layout::Rows, 1).unwrap().tile(0);
        let cut = Decomposition::new(grid, Layout::Exact { down: 2, across: 3 }, 6).unwrap();
        for start in [Start::Letters, Start::Mode, Start::Spots, Start::Ring, Start::Half] {
            let mut all = vec![0.0; grid.cells()];
            start.fill(grid, Boundary::Fixed, whole, &mut all);
            for rank in 0..6 {
                let tile = cut.tile(rank);
                let mut cells = vec![0.0; tile.cells()];
                start.fill(grid, Boundary::Fixed, tile, &mut cells);
                for (index, cell) in cells.iter().enumerate() {
                    let (row, column) =
                        (tile.first_row + index / tile.columns, tile.first_column + index % tile.columns);
                    assert_eq!(cell.to_bits(), all[row * grid.columns + column].to_bits());
                }
            }
        }
    }
}
