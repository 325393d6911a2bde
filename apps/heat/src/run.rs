//! A whole run on one rank: agree on the problem, compute, gather, verify, report. Called by [`crate::main`] and by tests, on
//! any [`Exchange`]. Files are touched and things shown by rank 0 only.

use crate::decomposition::{Decomposition, Grid, Tile};
use crate::error::HeatError;
use crate::exchange::{Exchange, Purpose, Traffic, barrier, outlive_rank_0, pack, recv_long, send_long, tag, unpack};
use crate::gather::{Frame, Gather, place};
use crate::image_files::{Animation, check_writable, png_size, read_luminance, write_png};
use crate::options::{Options, SIDE_MAX, Size};
use crate::palette::Scale;
use crate::report::{PROGRAM, Report};
use crate::resample::{resample, to_pixels};
use crate::solver::{Boundary, Problem, Solver, zeros};
use crate::start::Start;
use crate::verify::{self, Verification};
use crate::viewer::{View, Viewer};
use std::time::Instant;

/// Runs this rank's part. Rank 0 gets the report, the others `None`.
///
/// # Errors
/// Whatever rank 0 finds wrong before the start ends the run on all ranks, with the reason on rank 0 only.
pub fn run(options: &Options, nodes: usize, exchange: &mut dyn Exchange) -> Result<Option<Report>, HeatError> {
    let (setup, images) = agree(options, exchange)?;
    let Setup { problem, .. } = setup;
    let start = start_cells(options, &setup, &images, exchange)?;
    let conductivity = conductivity_ring(&setup, &images, exchange)?;
    drop(images);
    let mut solver = Solver::new(&problem, exchange.rank(), &start, conductivity.as_deref())?;
    let before = options.verify.then(|| gather_whole(&problem.cut, &solver, exchange)).transpose()?;
    let viewer = (exchange.rank() == 0).then(|| view(options, &setup)).transpose()?.map(Viewer::start);

    let started = Instant::now();
    barrier(exchange, 0)?;
    let last = compute(options, &problem.cut, &mut solver, viewer.as_ref(), exchange)?;
    barrier(exchange, 1)?;
    let seconds = started.elapsed().as_secs_f64();
    let traffic = collect_traffic(exchange)?;
    let field = last.as_ref().map(|frame| assemble(&problem.cut, frame)).transpose()?;
    if let (Some(viewer), Some(frame)) = (viewer, last) {
        viewer.finish(frame)?;
    }

    let mut checks = options.verify.then(Verification::default);
    if let Some(checks) = &mut checks {
        check_mode(options, &setup, field.as_deref(), checks, exchange)?;
        if let (Some(field), Some(Some(before)), Boundary::Insulated) = (&field, &before, problem.boundary) {
            let ((sum, _), (sum_before, size)) = (verify::sums(field), verify::sums(before));
            checks.sum_drift = Some((sum - sum_before).abs());
            checks.sum_drift_max = Some(verify::sum_drift_max(size, options.steps));
        }
    }
    let Some(field) = field else { return Ok(None) };
    if let Some(path) = &options.png {
        let size = png_size(problem.cut.grid);
        let mut pixels = Vec::new();
        to_pixels(&field, problem.cut.grid, size, setup.scale, &mut pixels);
        write_png(path, size, &pixels)?;
    }
    let Grid { rows, columns } = problem.cut.grid;
    Ok(Some(Report {
        program: PROGRAM.into(),
        width: columns,
        height: rows,
        steps: options.steps,
        r: options.r,
        ranks: exchange.size(),
        nodes,
        decomposition: [problem.cut.down, problem.cut.across],
        seconds,
        cells_per_second: options.steps as f64 * problem.cut.grid.cells() as f64 / seconds,
        hash: format!("{:016x}", verify::hash(&field)),
        traffic,
        verification: checks,
        png: options.png.clone(),
        gif: options.gif.clone(),
    }))
}

/// What every rank knows after [`agree`].
struct Setup {
    problem: Problem,
    scale: Scale,
    from_image: bool,
    varying: bool,
}

/// Images as fields of the grid's size; only on rank 0.
#[derive(Default)]
struct Images {
    start: Option<Vec<f64>>,
    conductivity: Option<Vec<f64>>,
}

/// Rank 0 reads the files and settles the size of the grid; the others learn it, or that there will be no run.
fn agree(options: &Options, exchange: &mut dyn Exchange) -> Result<(Setup, Images), HeatError> {
    let tag = tag(Purpose::Setup, 0, 0);
    let mut message = [0u8; 16];
    let (grid, images) = if exchange.rank() == 0 {
        let prepared = prepare(options, exchange.size());
        if let Ok((grid, _)) = &prepared {
            message[..8].copy_from_slice(&(grid.rows as u64).to_le_bytes());
            message[8..].copy_from_slice(&(grid.columns as u64).to_le_bytes());
        }
        (1..exchange.size()).try_for_each(|rank| exchange.send(rank, tag, &message))?;
        prepared?
    } else {
        exchange.recv(0, tag, &mut message)?;
        let number = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().expect("8 bytes")) as usize;
        let grid = Grid { rows: number(&message[..8]), columns: number(&message[8..]) };
        if grid.rows == 0 {
            outlive_rank_0(exchange);
            return Err(HeatError::StoppedByRank0);
        }
        (grid, Images::default())
    };
    let cut = Decomposition::new(grid, options.decomposition, exchange.size())?;
    let problem = Problem { cut, boundary: options.boundary, r: options.r };
    let from_image = options.image.is_some();
    let (low, high) = if from_image { (0.0, 1.0) } else { options.start.range(options.boundary) };
    let setup = Setup { problem, scale: Scale::new(low, high), from_image, varying: options.material.is_some() };
    Ok((setup, images))
}

/// Rank 0: everything that can be found wrong before the run is found here.
fn prepare(options: &Options, ranks: usize) -> Result<(Grid, Images), HeatError> {
    if !(options.r > 0.0 && options.r <= 0.25) {
        return Err(HeatError::Unstable { r: options.r, conductivity: 1.0 });
    }
    let start = options.image.as_deref().map(read_luminance).transpose()?;
    let material = options.material.as_deref().map(read_luminance).transpose()?;
    let of_images = start.as_ref().or(material.as_ref()).map(|(grid, _)| *grid);
    let grid = match (options.size, of_images) {
        (Some(Size { width, height }), _) => Grid { rows: height, columns: width },
        (None, Some(grid)) => grid,
        (None, None) => Grid { rows: 512, columns: 512 },
    };
    if !(1..=SIDE_MAX).contains(&grid.rows) || !(1..=SIDE_MAX).contains(&grid.columns) {
        return Err(HeatError::GridSize { rows: grid.rows, columns: grid.columns, max: SIDE_MAX });
    }
    Decomposition::new(grid, options.decomposition, ranks)?;
    [&options.png, &options.gif].into_iter().flatten().try_for_each(|path| check_writable(path))?;
    let fitted = |image: Option<(Grid, Vec<f64>)>| image.map(|(from, values)| resample(&values, from, grid));
    Ok((grid, Images { start: fitted(start), conductivity: fitted(material) }))
}

/// This rank's start temperatures, from the image on rank 0 or computed.
fn start_cells(
    options: &Options,
    setup: &Setup,
    images: &Images,
    exchange: &mut dyn Exchange,
) -> Result<Vec<f64>, HeatError> {
    let cut = &setup.problem.cut;
    let tile = cut.tile(exchange.rank());
    if setup.from_image {
        return scatter(cut, images.start.as_deref(), 0, exchange);
    }
    let mut cells = zeros("the start field", tile.cells())?;
    options.start.fill(cut.grid, options.boundary, tile, &mut cells);
    Ok(cells)
}

/// This rank's conductivities with one ring around its tile, if they vary.
fn conductivity_ring(
    setup: &Setup,
    images: &Images,
    exchange: &mut dyn Exchange,
) -> Result<Option<Vec<f64>>, HeatError> {
    if !setup.varying {
        return Ok(None);
    }
    scatter(&setup.problem.cut, images.conductivity.as_deref(), 1, exchange).map(Some)
}

/// Sends every rank its tile of a field on rank 0, with a ring of `halo` cells (clamped at the rim).
fn scatter(
    cut: &Decomposition,
    field: Option<&[f64]>,
    halo: usize,
    exchange: &mut dyn Exchange,
) -> Result<Vec<f64>, HeatError> {
    let tag = tag(Purpose::Setup, 1 + halo as u64, 0);
    let length = |tile: Tile| (tile.rows + 2 * halo) * (tile.columns + 2 * halo);
    let mut mine = zeros("the start field", length(cut.tile(exchange.rank())))?;
    let Some(field) = field else {
        let mut bytes = vec![0; 8 * mine.len()];
        recv_long(exchange, 0, tag, &mut bytes)?;
        unpack(&bytes, &mut mine);
        return Ok(mine);
    };
    let clamped = |at: usize, first: usize, len: usize| (first + at).saturating_sub(halo).min(len - 1);
    for rank in (0..exchange.size()).rev() {
        let tile = cut.tile(rank);
        mine.resize(length(tile), 0.0);
        for (index, cell) in mine.iter_mut().enumerate() {
            let width = tile.columns + 2 * halo;
            let row = clamped(index / width, tile.first_row, cut.grid.rows);
            let column = clamped(index % width, tile.first_column, cut.grid.columns);
            *cell = field[row * cut.grid.columns + column];
        }
        if rank > 0 {
            let mut bytes = vec![0; 8 * mine.len()];
            pack(&mine, &mut bytes);
            send_long(exchange, rank, tag, &bytes)?;
        }
    }
    Ok(mine)
}

fn view(options: &Options, setup: &Setup) -> Result<View, HeatError> {
    let grid = setup.problem.cut.grid;
    Ok(View {
        cut: setup.problem.cut,
        scale: setup.scale,
        steps: options.steps,
        every: options.gather_every,
        quiet: options.quiet,
        terminal: options.terminal,
        animation: options.gif.as_deref().map(|path| Animation::create(path, grid)).transpose()?,
    })
}

/// All time steps, and the final field on rank 0.
fn compute(
    options: &Options,
    cut: &Decomposition,
    solver: &mut Solver,
    viewer: Option<&Viewer>,
    exchange: &mut dyn Exchange,
) -> Result<Option<Frame>, HeatError> {
    let mut gather = Gather::new(cut, exchange.rank(), options.gather_every)?;
    if gather.due(0) && options.steps > 0 {
        gather.begin(0, solver, viewer.map(Viewer::frame).transpose()?);
    }
    let show = |frame: Option<Frame>| {
        if let (Some(viewer), Some(frame)) = (viewer, frame) {
            viewer.offer(frame);
        }
    };
    for step in 1..=options.steps {
        let mut complete = None;
        solver.step(exchange, step, |exchange| {
            complete = gather.advance(exchange, step)?;
            Ok(())
        })?;
        show(complete);
        if gather.due(step) && step < options.steps {
            gather.begin(step, solver, viewer.map(Viewer::frame).transpose()?);
        }
        if let Some(viewer) = viewer {
            viewer.progress(step);
        }
    }
    show(gather.finish(exchange)?);
    let mut last = viewer.map(Viewer::frame).transpose()?;
    collect_field(cut, solver, last.as_mut(), exchange)?;
    if let Some(frame) = &mut last {
        frame.step = options.steps;
    }
    Ok(last)
}

/// The field as it is now, to `frame` on rank 0.
fn collect_field(
    cut: &Decomposition,
    solver: &Solver,
    frame: Option<&mut Frame>,
    exchange: &mut dyn Exchange,
) -> Result<(), HeatError> {
    let tag = tag(Purpose::Result, 0, 0);
    let Some(frame) = frame else {
        let mut bytes = vec![0; place(cut, exchange.rank()).len()];
        solver.snapshot(&mut bytes);
        return Ok(send_long(exchange, 0, tag, &bytes)?);
    };
    solver.snapshot(&mut frame.bytes[place(cut, 0)]);
    (1..exchange.size()).try_for_each(|rank| recv_long(exchange, rank, tag, &mut frame.bytes[place(cut, rank)]))?;
    Ok(())
}

/// The field as it is now, row by row; only on rank 0.
fn gather_whole(
    cut: &Decomposition,
    solver: &Solver,
    exchange: &mut dyn Exchange,
) -> Result<Option<Vec<f64>>, HeatError> {
    let mut frame = (exchange.rank() == 0).then(|| Frame::new(cut)).transpose()?;
    collect_field(cut, solver, frame.as_mut(), exchange)?;
    frame.map(|frame| assemble(cut, &frame)).transpose()
}

fn assemble(cut: &Decomposition, frame: &Frame) -> Result<Vec<f64>, HeatError> {
    let mut field = zeros("the final field", cut.grid.cells())?;
    frame.assemble(cut, &mut field);
    Ok(field)
}

/// Follows the slowest mode: in the run itself if that is what it computed, else in a short second run on the same grid with
/// the same decomposition.
fn check_mode(
    options: &Options,
    setup: &Setup,
    field: Option<&[f64]>,
    checks: &mut Verification,
    exchange: &mut dyn Exchange,
) -> Result<(), HeatError> {
    const STEPS_MAX: u64 = 500;
    let Problem { cut, r, boundary } = setup.problem;
    let itself = options.start == Start::Mode && !setup.from_image && !setup.varying;
    if itself && verify::measurable_steps(cut.grid, boundary, r, options.steps) == options.steps {
        checks.mode_steps = Some(options.steps);
        checks.mode_error = field.map(|field| verify::mode_error(cut.grid, boundary, r, options.steps, field));
        return Ok(());
    }
    let boundary = Boundary::Fixed;
    let steps = verify::measurable_steps(cut.grid, boundary, r, options.steps.min(STEPS_MAX));
    if steps == 0 {
        return Ok(());
    }
    let tile = cut.tile(exchange.rank());
    let mut cells = zeros("the verification", tile.cells())?;
    Start::Mode.fill(cut.grid, boundary, tile, &mut cells);
    let mut solver = Solver::new(&Problem { cut, r, boundary }, exchange.rank(), &cells, None)?;
    // Other step numbers than the run's, so that no message can be mixed up.
    let first = options.steps + 1;
    (first..first + steps).try_for_each(|step| solver.step(exchange, step, |_| Ok(())))?;
    let field = gather_whole(&cut, &solver, exchange)?;
    checks.mode_steps = Some(steps);
    checks.mode_error = field.map(|field| verify::mode_error(cut.grid, boundary, r, steps, &field));
    Ok(())
}

/// What all ranks have sent, on rank 0. A message of a fixed number of slots, so that its length is known.
fn collect_traffic(exchange: &mut dyn Exchange) -> Result<Vec<Traffic>, HeatError> {
    /// Name (padded with zeros), messages, bytes.
    const SLOT: usize = 32;
    const SLOTS: usize = 8;
    let tag = tag(Purpose::Result, 1, 0);
    let mut total = exchange.traffic();
    let mut message = [0u8; SLOT * SLOTS];
    if exchange.rank() > 0 {
        for (Traffic { device, messages, bytes }, slot) in total.iter().zip(message.chunks_exact_mut(SLOT)) {
            let name = &device.as_bytes()[..device.len().min(16)];
            slot[..name.len()].copy_from_slice(name);
            slot[16..24].copy_from_slice(&messages.to_le_bytes());
            slot[24..].copy_from_slice(&bytes.to_le_bytes());
        }
        exchange.send(0, tag, &message)?;
        return Ok(Vec::new());
    }
    let number = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().expect("8 bytes"));
    for rank in 1..exchange.size() {
        exchange.recv(rank, tag, &mut message)?;
        for slot in message.chunks_exact(SLOT).filter(|slot| slot[0] != 0) {
            let device = String::from_utf8_lossy(&slot[..16]).trim_end_matches('\0').to_owned();
            let (messages, bytes) = (number(&slot[16..24]), number(&slot[24..]));
            match total.iter_mut().find(|known| known.device == device) {
                Some(known) => (known.messages, known.bytes) = (known.messages + messages, known.bytes + bytes),
                None => total.push(Traffic { device, messages, bytes }),
            }
        }
    }
    total.retain(|traffic| traffic.messages > 0);
    Ok(total)
}
