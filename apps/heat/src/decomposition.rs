//! Who computes which part of the grid, and who is whose neighbour. Called by the solver and by the gather on rank 0; pure
//! arithmetic, every rank gets the same answer without asking anyone.

use crate::error::HeatError;
use std::str::FromStr;

/// Cells of the whole field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grid {
    pub rows: usize,
    pub columns: usize,
}

impl Grid {
    pub fn cells(self) -> usize {
        self.rows * self.columns
    }
}

/// How the grid is cut, as asked for on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// Bands of whole rows.
    Rows,
    /// The block arrangement with the shortest inner edges.
    Blocks,
    /// So many blocks down, so many across.
    Exact { down: usize, across: usize },
}

impl FromStr for Layout {
    type Err = String;

    fn from_str(text: &str) -> Result<Layout, String> {
        match text {
            "rows" => Ok(Layout::Rows),
            "blocks" => Ok(Layout::Blocks),
            _ => match text.split_once('x').map(|(down, across)| (down.parse(), across.parse())) {
                Some((Ok(down), Ok(across))) if down > 0 && across > 0 => Ok(Layout::Exact { down, across }),
                _ => Err(format!("{text:?} is neither rows nor blocks nor DOWNxACROSS such as 2x3")),
            },
        }
    }
}

/// A side of a tile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    Up,
    Down,
    Left,
    Right,
}

impl Side {
    pub const ALL: [Side; 4] = [Side::Up, Side::Down, Side::Left, Side::Right];

    pub fn opposite(self) -> Side {
        match self {
            Side::Up => Side::Down,
            Side::Down => Side::Up,
            Side::Left => Side::Right,
            Side::Right => Side::Left,
        }
    }
}

/// The rectangle of cells that one rank owns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tile {
    pub first_row: usize,
    pub first_column: usize,
    pub rows: usize,
    pub columns: usize,
}

impl Tile {
    pub fn cells(self) -> usize {
        self.rows * self.columns
    }
}

/// A grid cut into `down` times `across` tiles, ranks numbered row by row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decomposition {
    pub grid: Grid,
    pub down: usize,
    pub across: usize,
}

impl Decomposition {
    /// Cuts `grid` for `ranks` ranks.
    ///
    /// # Errors
    /// When some rank would get no cell, or the arrangement asked for does not have `ranks` tiles.
    pub fn new(grid: Grid, layout: Layout, ranks: usize) -> Result<Decomposition, HeatError> {
        let Grid { rows, columns } = grid;
        let (down, across) = match layout {
            Layout::Rows if ranks > rows => return Err(HeatError::TooFewRows { ranks, rows }),
            Layout::Rows => (ranks, 1),
            Layout::Blocks => shortest_edges(grid, ranks).ok_or(HeatError::TooFewCells { ranks, rows, columns })?,
            Layout::Exact { down, across } if down.checked_mul(across) != Some(ranks) => {
                return Err(HeatError::WrongArrangement { down, across, ranks });
            }
            Layout::Exact { down, across } if down > rows || across > columns => {
                return Err(HeatError::TooFewCells { ranks, rows, columns });
            }
            Layout::Exact { down, across } => (down, across),
        };
        Ok(Decomposition { grid, down, across })
    }

    pub fn ranks(&self) -> usize {
        self.down * self.across
    }

    pub fn tile(&self, rank: usize) -> Tile {
        let (first_row, rows) = share(self.grid.rows, self.down, rank / self.across);
        let (first_column, columns) = share(self.grid.columns, self.across, rank % self.across);
        Tile { first_row, first_column, rows, columns }
    }

    /// The rank beyond `side`, none at the edge of the plate.
    pub fn neighbour(&self, rank: usize, side: Side) -> Option<usize> {
        let (row, column) = (rank / self.across, rank % self.across);
        match side {
            Side::Up => (row > 0).then(|| rank - self.across),
            Side::Down => (row + 1 < self.down).then(|| rank + self.across),
            Side::Left => (column > 0).then(|| rank - 1),
            Side::Right => (column + 1 < self.across).then(|| rank + 1),
        }
    }
}

/// Part `index` of `len` cells in `parts` nearly equal parts, the longer ones first: (first cell, number of cells).
fn share(len: usize, parts: usize, index: usize) -> (usize, usize) {
    let (each, longer) = (len / parts, len % parts);
    (index * each + index.min(longer), each + usize::from(index < longer))
}

/// Of all arrangements of `ranks` tiles that fit, the one with the fewest cells along inner edges; bands when equal.
fn shortest_edges(grid: Grid, ranks: usize) -> Option<(usize, usize)> {
    (1..=ranks)
        .filter(|across| ranks.is_multiple_of(*across))
        .map(|across| (ranks / across, across))
        .filter(|(down, across)| *down <= grid.rows && *across <= grid.columns)
        .min_by_key(|(down, across)| (down - 1) * grid.columns + (across - 1) * grid.rows)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn layouts() -> impl Strategy<Value = Layout> {
        prop_oneof![
            Just(Layout::Rows),
            Just(Layout::Blocks),
            (1usize..6, 1usize..6).prop_map(|(down, across)| Layout::Exact { down, across })
        ]
    }

    proptest! {
        #[test]
        fn tiles_cover_every_cell_exactly_once(rows in 1usize..40, columns in 1usize..40, ranks in 1usize..30, layout in layouts()) {
            let Ok(cut) = Decomposition::new(Grid { rows, columns }, layout, ranks) else { return Ok(()) };
            let mut owners = vec![0u32; rows * columns];
            for rank in 0..ranks {
                let tile = cut.tile(rank);
                prop_assert!(tile.cells() > 0, "rank {rank} has no cell");
                for row in tile.first_row..tile.first_row + tile.rows {
                    for column in tile.first_column..tile.first_column + tile.columns {
                        owners[row * columns + column] += 1;
                    }
                }
            }
            prop_assert!(owners.iter().all(|count| *count == 1));
        }

        #[test]
        fn neighbours_are_mutual_and_touch(rows in 1usize..40, columns in 1usize..40, ranks in 1usize..30, layout in layouts()) {
            let Ok(cut) = Decomposition::new(Grid { rows, columns }, layout, ranks) else { return Ok(()) };
            for rank in 0..ranks {
                for side in Side::ALL {
                    let Some(other) = cut.neighbour(rank, side) else { continue };
                    prop_assert_eq!(cut.neighbour(other, side.opposite()), Some(rank));
                    let (here, there) = (cut.tile(rank), cut.tile(other));
                    if side == Side::Right {
                        prop_assert_eq!((here.first_row, here.rows), (there.first_row, there.rows));
                        prop_assert_eq!(here.first_column + here.columns, there.first_column);
                    }
                    if side == Side::Down {
                        prop_assert_eq!((here.first_column, here.columns), (there.first_column, there.columns));
                        prop_assert_eq!(here.first_row + here.rows, there.first_row);
                    }
                }
            }
        }
    }

    #[test]
    fn more_ranks_than_rows_is_an_error_that_names_both() {
        let text = Decomposition::new(Grid { rows: 4, columns: 90 }, Layout::Rows, 5).unwrap_err().to_string();
        assert!(text.contains("5 ranks") && text.contains("4 rows"), "{text}");
        assert!(Decomposition::new(Grid { rows: 2, columns: 2 }, Layout::Blocks, 5).is_err());
        assert!(Decomposition::new(Grid { rows: 9, columns: 9 }, "2x3".parse().unwrap(), 4).is_err());
    }

    #[test]
    fn blocks_of_a_square_grid_are_square() {
        let cut = Decomposition::new(Grid { rows: 100, columns: 100 }, Layout::Blocks, 4).unwrap();
        assert_eq!((cut.down, cut.across), (2, 2));
        let cut = Decomposition::new(Grid { rows: 50, columns: 100 }, Layout::Blocks, 2).unwrap();
        assert_eq!((cut.down, cut.across), (1, 2));
    }

    #[test]
    fn layouts_that_make_no_sense_are_refused() {
        for text in ["", "0x3", "3x", "columns", "2x2x2", "-1x4"] {
            assert!(text.parse::<Layout>().is_err(), "{text:?} was accepted");
        }
    }
}
