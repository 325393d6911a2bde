//! Fields to pictures of another size and images to grids of another size. Pure functions on rows of numbers.

use crate::decomposition::Grid;
use crate::palette::Scale;

/// The field as `size.columns` x `size.rows` palette indices: every pixel is the mean of the cells it covers, or the cell it
/// lies in when there are more pixels than cells.
pub fn to_pixels(field: &[f64], grid: Grid, size: Grid, scale: Scale, pixels: &mut Vec<u8>) {
    let across: Vec<_> = (0..size.columns).map(|x| covered(x, size.columns, grid.columns)).collect();
    pixels.clear();
    pixels.reserve(size.cells());
    let mut sums = vec![0.0f64; size.columns];
    for y in 0..size.rows {
        let rows = covered(y, size.rows, grid.rows);
        sums.fill(0.0);
        for line in field[rows.start * grid.columns..rows.end * grid.columns].chunks_exact(grid.columns) {
            for (sum, columns) in sums.iter_mut().zip(&across) {
                *sum += line[columns.clone()].iter().sum::<f64>();
            }
        }
        pixels.extend(
            sums.iter().zip(&across).map(|(sum, columns)| scale.index(sum / (rows.len() * columns.len()) as f64)),
        );
    }
}

/// Cells under pixel `index` of `pixels` along one direction; never empty.
fn covered(index: usize, pixels: usize, cells: usize) -> std::ops::Range<usize> {
    let first = index * cells / pixels;
    first..((index + 1) * cells / pixels).max(first + 1)
}

/// Resamples an image to another grid with a tent filter as wide as the coarser of the two (bilinear when enlarging).
pub fn resample(values: &[f64], from: Grid, to: Grid) -> Vec<f64> {
    if from == to {
        return values.to_vec();
    }
    let across = weights(from.columns, to.columns);
    let narrow: Vec<f64> = values
        .chunks_exact(from.columns)
        .flat_map(|line| across.iter().map(|taps| taps.iter().map(|(at, weight)| line[*at] * weight).sum::<f64>()))
        .collect();
    let mut out = vec![0.0; to.cells()];
    for (line, taps) in out.chunks_exact_mut(to.columns).zip(weights(from.rows, to.rows)) {
        for (row, weight) in taps {
            let source = &narrow[row * to.columns..][..to.columns];
            line.iter_mut().zip(source).for_each(|(cell, value)| *cell += weight * value);
        }
    }
    out
}

/// For each of `to` cells the cells of `from` it is made of, weights adding up to 1.
fn weights(from: usize, to: usize) -> Vec<Vec<(usize, f64)>> {
    let ratio = from as f64 / to as f64;
    let reach = ratio.max(1.0);
    (0..to)
        .map(|index| {
            let centre = (index as f64 + 0.5) * ratio - 0.5;
            let (first, last) = ((centre - reach).ceil() as i64, (centre + reach).floor() as i64);
            let tent = |at: i64| (1.0 - (at as f64 - centre).abs() / reach).max(0.0);
            let total: f64 = (first..=last).map(tent).sum();
            (first..=last).map(|at| (at.clamp(0, from as i64 - 1) as usize, tent(at) / total)).collect()
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn resampling_keeps_a_flat_image_flat_and_stays_in_range(
            from in (1usize..20, 1usize..20), to in (1usize..30, 1usize..30), seed in 0u64..1000
        ) {
            let (from, to) = (Grid { rows: from.0, columns: from.1 }, Grid { rows: to.0, columns: to.1 });
            let flat = resample(&vec![0.7; from.cells()], from, to);
            prop_assert!(flat.iter().all(|value| (value - 0.7).abs() < 1e-12));
            let noise: Vec<f64> = (0..from.cells()).map(|at| ((at as u64 * 7919 + seed) % 101) as f64 / 100.0).collect();
            let out = resample(&noise, from, to);
            prop_assert_eq!(out.len(), to.cells());
            prop_assert!(out.iter().all(|value| (-1e-12..=1.0 + 1e-12).contains(value)));
        }

        #[test]
        fn every_pixel_covers_a_cell(rows in 1usize..30, columns in 1usize..30, height in 1usize..40, width in 1usize..40) {
            let (grid, size) = (Grid { rows, columns }, Grid { rows: height, columns: width });
            let mut pixels = Vec::new();
            to_pixels(&vec![1.0; grid.cells()], grid, size, Scale::new(0.0, 1.0), &mut pixels);
            prop_assert_eq!(pixels, vec![255u8; size.cells()]);
        }
    }
}
