//! Cartesian grids: ranks and coordinates, shifts, subgrids. The last dimension is the one whose neighbours have neighbouring ranks.
//!
//! Source: MPI-5.0, section 8.5.

use crate::consts::PROC_NULL;
use crate::error::{Class, Error, Result};

/// A grid.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Cart {
    dims: Vec<i32>,
    periods: Vec<bool>,
}

/// What one process needs to know to make its subgrid.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Part {
    /// Processes of one subgrid have the same number.
    pub color: i32,
    /// Rank in the subgrid.
    pub key: i32,
    pub grid: Cart,
}

impl Cart {
    /// A grid for a communicator of `size` processes; those that do not fit in stay outside.
    pub fn new(dims: &[i32], periods: &[bool], size: usize) -> Result<Cart> {
        if dims.len() != periods.len() {
            return Err(Error::new(Class::ARG, format!("{} dimensions and {} periods", dims.len(), periods.len())));
        }
        if let Some(dim) = dims.iter().find(|dim| **dim < 1) {
            return Err(Error::new(Class::DIMS, format!("a dimension of {dim}: at least 1")));
        }
        let cart = Cart { dims: dims.to_vec(), periods: periods.to_vec() };
        match dims.iter().try_fold(1usize, |product, dim| product.checked_mul(*dim as usize)) {
            Some(cells) if cells <= size => Ok(cart),
            _ => Err(Error::new(Class::TOPOLOGY, format!("a grid of {dims:?} is larger than its {size} processes"))),
        }
    }

    pub fn dims(&self) -> &[i32] {
        &self.dims
    }

    pub fn periods(&self) -> &[bool] {
        &self.periods
    }

    /// Processes in the grid.
    pub fn size(&self) -> i32 {
        self.dims.iter().product()
    }

    pub fn coords(&self, rank: i32) -> Result<Vec<i32>> {
        if !(0..self.size()).contains(&rank) {
            let text = format!("rank {rank} of a grid of {} processes: 0 to {}", self.size(), self.size() - 1);
            return Err(Error::new(Class::RANK, text));
        }
        let mut rest = rank;
        let mut coords = vec![0; self.dims.len()];
        for (coord, dim) in coords.iter_mut().zip(&self.dims).rev() {
            *coord = rest % dim;
            rest /= dim;
        }
        Ok(coords)
    }

    /// Coordinates of a periodic dimension may lie outside: they wrap.
    pub fn rank(&self, coords: &[i32]) -> Result<i32> {
        if coords.len() < self.dims.len() {
            let text = format!("{} coordinates for {} dimensions", coords.len(), self.dims.len());
            return Err(Error::new(Class::ARG, text));
        }
        let mut rank = 0;
        for (dimension, (&dim, &coord)) in self.dims.iter().zip(coords).enumerate() {
            let inside = if self.periods[dimension] { coord.rem_euclid(dim) } else { coord };
            if !(0..dim).contains(&inside) {
                let text =
                    format!("coordinate {coord} in dimension {dimension}: 0 to {}, for it does not wrap", dim - 1);
                return Err(Error::new(Class::ARG, text));
            }
            rank = rank * dim + inside;
        }
        Ok(rank)
    }

    /// Whom to receive from and whom to send to, so that data moves `by` steps in a direction.
    pub fn shift(&self, rank: i32, direction: i32, by: i32) -> Result<(i32, i32)> {
        let Some(dimension) = usize::try_from(direction).ok().filter(|&dimension| dimension < self.dims.len()) else {
            let text = format!("direction {direction} of a grid of {} dimensions", self.dims.len());
            return Err(Error::new(Class::ARG, text));
        };
        let coords = self.coords(rank)?;
        let beside = |by: i64| {
            let (at, dim) = (i64::from(coords[dimension]) + by, i64::from(self.dims[dimension]));
            let inside = if self.periods[dimension] { at.rem_euclid(dim) } else { at };
            if !(0..dim).contains(&inside) {
                return PROC_NULL;
            }
            let step: i64 = self.dims[dimension + 1..].iter().map(|dim| i64::from(*dim)).product();
            (i64::from(rank) + (inside - i64::from(coords[dimension])) * step) as i32
        };
        Ok((beside(-i64::from(by)), beside(i64::from(by))))
    }

    /// In each dimension the neighbour below and the one above.
    pub fn neighbours(&self, rank: i32) -> Vec<i32> {
        let both = |direction| self.shift(rank, direction, 1).map_or([PROC_NULL; 2], |(below, above)| [below, above]);
        (0..self.dims.len() as i32).flat_map(both).collect()
    }

    /// The subgrid of the remaining dimensions that `rank` is in.
    pub fn sub(&self, rank: i32, remain: &[bool]) -> Result<Part> {
        if remain.len() < self.dims.len() {
            let text = format!("{} choices for {} dimensions", remain.len(), self.dims.len());
            return Err(Error::new(Class::ARG, text));
        }
        let (mut color, mut key) = (0, 0);
        let mut grid = Cart { dims: Vec::new(), periods: Vec::new() };
        for (dimension, coord) in self.coords(rank)?.into_iter().enumerate() {
            let dim = self.dims[dimension];
            if remain[dimension] {
                key = key * dim + coord;
                grid.dims.push(dim);
                grid.periods.push(self.periods[dimension]);
            } else {
                color = color * dim + coord;
            }
        }
        Ok(Part { color, key, grid })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn grids() -> impl Strategy<Value = Cart> {
        prop::collection::vec((1i32..5, any::<bool>()), 0..5).prop_map(|both| {
            let (dims, periods): (Vec<i32>, Vec<bool>) = both.into_iter().unzip();
            Cart::new(&dims, &periods, 1000).unwrap()
        })
    }

    proptest! {
        #[test]
        fn ranks_and_coordinates_are_each_others_inverse(grid in grids()) {
            for rank in 0..grid.size() {
                prop_assert_eq!(grid.rank(&grid.coords(rank).unwrap()), Ok(rank));
            }
            prop_assert!(grid.coords(grid.size()).is_err());
        }

        #[test]
        fn shifts_move_one_coordinate_and_come_back(grid in grids(), by in -7i32..8) {
            for rank in 0..grid.size() {
                let coords = grid.coords(rank).unwrap();
                for direction in 0..grid.dims().len() {
                    let (source, dest) = grid.shift(rank, direction as i32, by).unwrap();
                    let mut moved = coords.clone();
                    moved[direction] += by;
                    prop_assert_eq!(dest, grid.rank(&moved).unwrap_or(PROC_NULL));
                    if dest != PROC_NULL {
                        prop_assert_eq!(grid.shift(dest, direction as i32, by).unwrap().0, rank);
                    }
                    prop_assert_eq!(grid.shift(rank, direction as i32, -by).unwrap(), (dest, source));
                }
            }
        }

        #[test]
        fn subgrids_part_the_grid_and_keep_its_order(grid in grids(), remain in prop::collection::vec(any::<bool>(), 5)) {
            let mut seen = std::collections::HashSet::new();
            for rank in 0..grid.size() {
                let part = grid.sub(rank, &remain).unwrap();
                prop_assert!(seen.insert((part.color, part.key)));
                prop_assert!(part.key < part.grid.size());
                let kept: Vec<i32> = grid.coords(rank).unwrap().into_iter().zip(&remain)
                    .filter_map(|(coord, stays)| stays.then_some(coord)).collect();
                prop_assert_eq!(part.grid.coords(part.key).unwrap(), kept);
            }
        }
    }

    #[test]
    fn grids_that_do_not_fit_and_wrong_coordinates_are_refused() {
        assert_eq!(Cart::new(&[2, 0], &[false; 2], 4).unwrap_err().class, Class::DIMS);
        assert_eq!(Cart::new(&[2, 3], &[false; 2], 5).unwrap_err().class, Class::TOPOLOGY);
        assert_eq!(Cart::new(&[i32::MAX, i32::MAX, 4], &[false; 3], 5).unwrap_err().class, Class::TOPOLOGY);
        let grid = Cart::new(&[2, 3], &[true, false], 6).unwrap();
        assert_eq!(grid.rank(&[-1, 1]), Ok(4));
        assert_eq!(grid.rank(&[0, 3]).unwrap_err().class, Class::ARG);
        assert_eq!(grid.shift(0, 2, 1).unwrap_err().class, Class::ARG);
        assert_eq!(grid.neighbours(0), [3, 3, PROC_NULL, 1]);
        assert_eq!(grid.shift(0, 0, i32::MIN).unwrap(), (0, 0));
    }
}
