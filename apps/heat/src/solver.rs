//! One rank's part of the field and one time step over it. Driven by `run`; talks to neighbours only through [`Exchange`].
//! A step sends the edges first, computes what needs no neighbour while they travel, and finishes the rim when theirs are in.
//! All buffers are made at the start; a step allocates nothing.

use crate::decomposition::{Decomposition, Side, Tile};
use crate::error::HeatError;
use crate::exchange::{Exchange, ExchangeError, Purpose, pack, recv_long, send_long, tag, unpack};
use crate::kernel::{self, Faces};
use std::ops::Range;

/// What happens at the rim of the plate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Boundary {
    /// The rim is held at temperature 0 (Dirichlet).
    Fixed,
    /// No heat passes the rim (Neumann).
    Insulated,
}

/// What all ranks agree on.
#[derive(Clone, Copy, Debug)]
pub struct Problem {
    pub cut: Decomposition,
    pub boundary: Boundary,
    pub r: f64,
}

/// The field of one rank with one ring of ghost cells around it.
pub struct Solver {
    tile: Tile,
    stride: usize,
    now: Vec<f64>,
    next: Vec<f64>,
    faces: Option<FaceField>,
    r: f64,
    boundary: Boundary,
    neighbours: [Option<usize>; 4],
    /// Where no ghost cell from a neighbour is needed.
    inner_rows: Range<usize>,
    inner_columns: Range<usize>,
    column: Vec<f64>,
    message: Vec<u8>,
}

/// Conductivities of all faces of a tile.
struct FaceField {
    /// (rows + 1) x columns, entry (i, j) above cell (i, j).
    level: Vec<f64>,
    /// rows x (columns + 1), entry (i, j) left of cell (i, j).
    upright: Vec<f64>,
}

impl Solver {
    /// `start` holds the tile's cells row by row; `conductivity`, if it varies, the tile's cells and one ring around them.
    pub fn new(
        problem: &Problem,
        rank: usize,
        start: &[f64],
        conductivity: Option<&[f64]>,
    ) -> Result<Solver, HeatError> {
        let tile = problem.cut.tile(rank);
        let stride = tile.columns + 2;
        let mut now = zeros("the field", (tile.rows + 2) * stride)?;
        let next = zeros("the field", (tile.rows + 2) * stride)?;
        for (row, cells) in start.chunks_exact(tile.columns).enumerate() {
            now[(row + 1) * stride + 1..][..tile.columns].copy_from_slice(cells);
        }
        let neighbours = Side::ALL.map(|side| problem.cut.neighbour(rank, side));
        let has = |side: Side| usize::from(neighbours[side as usize].is_some());
        let first_row = has(Side::Up);
        let first_column = has(Side::Left);
        Ok(Solver {
            tile,
            stride,
            now,
            next,
            faces: conductivity.map(|ring| FaceField::new(tile, ring)).transpose()?,
            r: problem.r,
            boundary: problem.boundary,
            neighbours,
            inner_rows: first_row..(tile.rows - has(Side::Down)).max(first_row),
            inner_columns: first_column..(tile.columns - has(Side::Right)).max(first_column),
            column: vec![0.0; tile.rows],
            message: vec![0; 8 * tile.rows.max(tile.columns)],
        })
    }

    /// One time step; `meanwhile` runs between the inner part and the wait for the neighbours' edges.
    pub fn step<F>(&mut self, exchange: &mut dyn Exchange, step: u64, meanwhile: F) -> Result<(), ExchangeError>
    where
        F: FnOnce(&mut dyn Exchange) -> Result<(), ExchangeError>,
    {
        if self.boundary == Boundary::Insulated {
            self.mirror_rim();
        }
        self.send_edges(exchange, step)?;
        self.compute(self.inner_rows.clone(), self.inner_columns.clone());
        meanwhile(exchange)?;
        self.recv_edges(exchange, step)?;
        self.compute_rim();
        std::mem::swap(&mut self.now, &mut self.next);
        Ok(())
    }

    /// Copies the tile's cells, row by row, little-endian.
    pub fn snapshot(&self, bytes: &mut [u8]) {
        for (row, slot) in bytes.chunks_exact_mut(8 * self.tile.columns).enumerate() {
            pack(&self.now[(row + 1) * self.stride + 1..][..self.tile.columns], slot);
        }
    }

    fn compute_rim(&mut self) {
        let Tile { rows, columns, .. } = self.tile;
        let (inner_rows, inner_columns) = (self.inner_rows.clone(), self.inner_columns.clone());
        self.compute(0..inner_rows.start.min(rows), 0..columns);
        self.compute(inner_rows.end..rows, 0..columns);
        self.compute(inner_rows.clone(), 0..inner_columns.start.min(columns));
        self.compute(inner_rows, inner_columns.end..columns);
    }

    fn compute(&mut self, rows: Range<usize>, columns: Range<usize>) {
        let (n, stride) = (columns.len(), self.stride);
        if n == 0 {
            return;
        }
        for row in rows {
            let first = row * stride + columns.start;
            let up = &self.now[first + 1..][..n];
            let middle = &self.now[first + stride..][..n + 2];
            let down = &self.now[first + 2 * stride + 1..][..n];
            let out = &mut self.next[first + stride + 1..][..n];
            match &self.faces {
                None => kernel::uniform(out, up, middle, down, self.r),
                Some(faces) => {
                    kernel::material(out, up, middle, down, faces.around(row, &columns, self.tile.columns), self.r);
                }
            }
        }
    }

    /// Insulated: a ghost cell beyond the rim has the temperature of the cell it mirrors, so nothing flows.
    fn mirror_rim(&mut self) {
        let (Tile { rows, columns, .. }, stride) = (self.tile, self.stride);
        let outside = |side: Side| self.neighbours[side as usize].is_none();
        if outside(Side::Up) {
            self.now.copy_within(stride..2 * stride, 0);
        }
        if outside(Side::Down) {
            self.now.copy_within(rows * stride..(rows + 1) * stride, (rows + 1) * stride);
        }
        let (left, right) = (outside(Side::Left), outside(Side::Right));
        if left || right {
            for line in self.now.chunks_exact_mut(stride).skip(1).take(rows) {
                if left {
                    line[0] = line[1];
                }
                if right {
                    line[columns + 1] = line[columns];
                }
            }
        }
    }

    fn send_edges(&mut self, exchange: &mut dyn Exchange, step: u64) -> Result<(), ExchangeError> {
        let Tile { rows, columns, .. } = self.tile;
        for side in Side::ALL {
            let Some(neighbour) = self.neighbours[side as usize] else { continue };
            let edge = match side {
                Side::Up => &self.now[self.stride + 1..][..columns],
                Side::Down => &self.now[rows * self.stride + 1..][..columns],
                Side::Left | Side::Right => {
                    let offset = if side == Side::Left { 1 } else { columns };
                    let lines = self.now.chunks_exact(self.stride).skip(1);
                    self.column.iter_mut().zip(lines).for_each(|(cell, line)| *cell = line[offset]);
                    &self.column
                }
            };
            let bytes = &mut self.message[..8 * edge.len()];
            pack(edge, bytes);
            send_long(exchange, neighbour, tag(Purpose::Edge, step, side as u64), bytes)?;
        }
        Ok(())
    }

    fn recv_edges(&mut self, exchange: &mut dyn Exchange, step: u64) -> Result<(), ExchangeError> {
        let (Tile { rows, columns, .. }, stride) = (self.tile, self.stride);
        for side in Side::ALL {
            let Some(neighbour) = self.neighbours[side as usize] else { continue };
            let len = if matches!(side, Side::Up | Side::Down) { columns } else { rows };
            let bytes = &mut self.message[..8 * len];
            recv_long(exchange, neighbour, tag(Purpose::Edge, step, side.opposite() as u64), bytes)?;
            match side {
                Side::Up => unpack(bytes, &mut self.now[1..][..columns]),
                Side::Down => unpack(bytes, &mut self.now[(rows + 1) * stride + 1..][..columns]),
                Side::Left | Side::Right => {
                    unpack(bytes, &mut self.column);
                    let offset = if side == Side::Left { 0 } else { columns + 1 };
                    let lines = self.now.chunks_exact_mut(stride).skip(1);
                    self.column.iter().zip(lines).for_each(|(cell, line)| line[offset] = *cell);
                }
            }
        }
        Ok(())
    }
}

impl FaceField {
    fn new(tile: Tile, ring: &[f64]) -> Result<FaceField, HeatError> {
        let Tile { rows, columns, .. } = tile;
        let at = |row: usize, column: usize| ring[row * (columns + 2) + column];
        let mut level = zeros("the material", (rows + 1) * columns)?;
        let mut upright = zeros("the material", rows * (columns + 1))?;
        for (index, face) in level.iter_mut().enumerate() {
            let (row, column) = (index / columns, index % columns + 1);
            *face = kernel::face(at(row, column), at(row + 1, column));
        }
        for (index, face) in upright.iter_mut().enumerate() {
            let (row, column) = (index / (columns + 1) + 1, index % (columns + 1));
            *face = kernel::face(at(row, column), at(row, column + 1));
        }
        Ok(FaceField { level, upright })
    }

    fn around(&self, row: usize, columns: &Range<usize>, width: usize) -> Faces<'_> {
        let n = columns.len();
        Faces {
            above: &self.level[row * width + columns.start..][..n],
            below: &self.level[(row + 1) * width + columns.start..][..n],
            sides: &self.upright[row * (width + 1) + columns.start..][..n + 1],
        }
    }
}

/// Zeroed numbers, or an error that says what they were for.
pub fn zeros(what: &'static str, len: usize) -> Result<Vec<f64>, HeatError> {
    let mut values = Vec::new();
    values.try_reserve_exact(len).map_err(|_| HeatError::NoMemory { what, bytes: len.saturating_mul(8) })?;
    values.resize(len, 0.0);
    Ok(values)
}
