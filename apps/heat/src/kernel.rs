//! The two inner loops, over one stretch of a row. Called by the solver only. Each cell is computed by one fixed sequence of
//! operations whatever the stretch, and Rust never fuses or reorders floating-point operations, so the result of a cell does
//! not depend on the decomposition or on how the compiler vectorises. Slices are cut to one length first: no bounds checks
//! remain in the loops.

/// Constant conductivity: u' = u + r (sum of the 4 neighbours - 4 u). `middle` has one cell more than `out` at either end.
#[inline]
pub fn uniform(out: &mut [f64], up: &[f64], middle: &[f64], down: &[f64], r: f64) {
    let n = out.len();
    let (up, down) = (&up[..n], &down[..n]);
    let (left, here, right) = (&middle[..n], &middle[1..n + 1], &middle[2..n + 2]);
    for i in 0..n {
        out[i] = here[i] + r * (((up[i] + down[i]) + (left[i] + right[i])) - 4.0 * here[i]);
    }
}

/// Conductivities of the faces around one stretch of a row.
#[derive(Clone, Copy)]
pub struct Faces<'a> {
    pub above: &'a [f64],
    pub below: &'a [f64],
    /// One more than cells: entry i lies left of cell i, entry i + 1 right of it.
    pub sides: &'a [f64],
}

/// Varying conductivity: u' = u + r (sum of the fluxes through the 4 faces). What leaves one cell enters its neighbour with
/// exactly the same bits.
#[inline]
pub fn material(out: &mut [f64], up: &[f64], middle: &[f64], down: &[f64], faces: Faces<'_>, r: f64) {
    let n = out.len();
    let (up, down) = (&up[..n], &down[..n]);
    let (left, here, right) = (&middle[..n], &middle[1..n + 1], &middle[2..n + 2]);
    let (above, below) = (&faces.above[..n], &faces.below[..n]);
    let (west, east) = (&faces.sides[..n], &faces.sides[1..n + 1]);
    for i in 0..n {
        let u = here[i];
        let across = east[i] * (right[i] - u) - west[i] * (u - left[i]);
        let along = below[i] * (down[i] - u) - above[i] * (u - up[i]);
        out[i] = u + r * (across + along);
    }
}

/// Conductivity of the face between two cells: the harmonic mean, so that a perfect insulator on either side lets nothing through.
pub fn face(one: f64, other: f64) -> f64 {
    if one + other > 0.0 { 2.0 * one * other / (one + other) } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn cells(n: usize) -> impl Strategy<Value = Vec<f64>> {
        proptest::collection::vec(-1e3f64..1e3, n)
    }

    proptest! {
        #[test]
        fn a_cell_does_not_depend_on_the_stretch_it_is_computed_in(
            (up, middle, down, cut) in (1usize..70).prop_flat_map(|n| (cells(n), cells(n + 2), cells(n), 0..=n))
        ) {
            let n = up.len();
            let mut whole = vec![0.0; n];
            uniform(&mut whole, &up, &middle, &down, 0.21);
            let mut parts = vec![0.0; n];
            let (first, second) = parts.split_at_mut(cut);
            uniform(first, &up[..cut], &middle[..cut + 2], &down[..cut], 0.21);
            uniform(second, &up[cut..], &middle[cut..], &down[cut..], 0.21);
            prop_assert_eq!(whole.iter().map(|u| u.to_bits()).collect::<Vec<_>>(), parts.iter().map(|u| u.to_bits()).collect::<Vec<_>>());
        }

        #[test]
        fn a_flat_field_stays_as_it_is(level in -1e3f64..1e3, n in 1usize..50, conductivity in 0.0f64..1.0) {
            let (row, middle, sides) = (vec![level; n], vec![level; n + 2], vec![conductivity; n + 1]);
            let mut out = vec![0.0; n];
            uniform(&mut out, &row, &middle, &row, 0.25);
            prop_assert!(out.iter().all(|u| *u == level));
            let faces = Faces { above: &sides[..n], below: &sides[..n], sides: &sides };
            material(&mut out, &row, &middle, &row, faces, 0.25);
            prop_assert!(out.iter().all(|u| *u == level));
        }

        #[test]
        fn no_cell_leaves_the_range_of_its_neighbourhood(
            (up, middle, down) in (1usize..70).prop_flat_map(|n| (cells(n), cells(n + 2), cells(n)))
        ) {
            let mut out = vec![0.0; up.len()];
            uniform(&mut out, &up, &middle, &down, 0.25);
            for (i, u) in out.iter().enumerate() {
                let around = [up[i], down[i], middle[i], middle[i + 1], middle[i + 2]];
                let low = around.iter().copied().fold(f64::INFINITY, f64::min);
                let high = around.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                prop_assert!((low - 1e-9..=high + 1e-9).contains(u));
            }
        }
    }

    #[test]
    fn an_insulator_on_either_side_closes_the_face() {
        assert_eq!(face(0.0, 1.0), 0.0);
        assert_eq!(face(0.0, 0.0), 0.0);
        assert_eq!(face(0.5, 0.5), 0.5);
    }
}
