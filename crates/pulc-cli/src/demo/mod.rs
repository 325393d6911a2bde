//! `pulc demo`: the first thing a stranger sees. Runs the heat application three times (alone, on one node, on two nodes of a
//! local cluster), shows the picture while it computes, compares the results bit for bit and prints what was gained.
//!
//! It starts this same binary again (`pulc run ... pulc heat ...`), so a fresh clone needs nothing else. It must never print an
//! escape code where there is no terminal, and never claim a success that was not checked.

mod mpi;
mod stage;
mod summary;

use pulc_heat::decomposition::Grid;
use pulc_heat::report::Report;
use pulc_heat::terminal::{Canvas, Colours, Terminal, TerminalSize};
use stage::{Face, Screen, Stage};
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

#[derive(clap::Args)]
pub struct Args {
    /// A few seconds on a small plate, for tests
    #[arg(long)]
    quick: bool,
    /// Folder that heat.png is written to
    #[arg(long, value_name = "DIR", default_value = ".")]
    out: PathBuf,
    /// Ranks of the parallel runs [default: one per core, at least 2]
    #[arg(short = 'n', long, value_parser = clap::value_parser!(u32).range(2..=64))]
    ranks: Option<u32>,
}

#[derive(clap::Args)]
#[command(disable_help_flag = true)]
pub struct HeatArgs {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<OsString>,
}

/// `pulc heat`: the heat application inside this binary.
pub fn heat(args: HeatArgs) -> ExitCode {
    pulc_heat::main(std::iter::once("heat".into()).chain(args.arguments))
}

/// Size of the plate and length of the run. Fixed, so that the field's hash is the same on every machine.
struct Plate {
    grid: Grid,
    steps: u64,
}

const FULL: Plate = Plate { grid: Grid { rows: 640, columns: 1280 }, steps: 6000 };
const QUICK: Plate = Plate { grid: Grid { rows: 160, columns: 320 }, steps: 400 };

pub fn run(args: Args) -> ExitCode {
    match demo(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("pulc demo: {why}");
            ExitCode::FAILURE
        }
    }
}

fn demo(args: &Args) -> Result<(), String> {
    let plate = if args.quick { QUICK } else { FULL };
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let ranks = args.ranks.unwrap_or_else(|| cores.clamp(2, 64) as u32);
    let out = std::path::absolute(&args.out).map_err(|error| format!("cannot use {}: {error}", args.out.display()))?;
    std::fs::create_dir_all(&out).map_err(|error| format!("cannot make the folder {}: {error}", out.display()))?;
    let png = out.join("heat.png");
    let pulc = std::env::current_exe().map_err(|error| format!("cannot find the program pulc itself: {error}"))?;
    let offer = mpi::offer(&pulc, ranks);
    let ports = |name, title, ranks, nodes| Stage { face: Face::Ports, name, title, ranks, nodes };
    let mut stages = vec![
        ports("alone", "one process, alone", 1, 0),
        ports("one node", "all cores of one node", ranks, 1),
        ports("two nodes", "two nodes of a local cluster", ranks, 2),
    ];
    stages.extend(offer.stages);
    let mut screen = Screen::new(Terminal::find(TerminalSize::Auto), plate.grid);
    screen.line(&screen.bold("PULC: ordinary machines as one parallel computer"));
    let Plate { grid: full @ Grid { rows, columns }, steps } = plate;
    screen.line(&format!("Heat spreads on a plate of {columns} x {rows} cells, {steps} steps. Neighbours exchange"));
    screen.line("their edges in each step; every 20 steps the whole plate is gathered and drawn.");
    screen.line("Each run must give the same field, bit for bit.");
    screen.line("");
    let mut reports: Vec<Report> = Vec::new();
    let all = stages.len() + offer.small.len();
    let mut play = |stage: &Stage, plate: &Plate, reports: &mut Vec<Report>| {
        let heading = format!("{}/{all}  {}", reports.len() + 1, stage.describe());
        let picture = Some(png.as_path()).filter(|_| stage.face == Face::Ports && plate.grid == full);
        reports.push(stage.run(&plate.arguments(stage.face, &screen, picture), &heading, &mut screen)?);
        Ok::<(), String>(())
    };
    stages.iter().try_for_each(|stage| play(stage, &plate, &mut reports))?;
    offer.small.iter().try_for_each(|stage| play(stage, &QUICK, &mut reports))?;
    stages.extend(offer.small);
    screen.line("");
    for line in summary::table(&stages, &reports, &screen) {
        screen.line(&line);
    }
    summary::check(&reports)?;
    for line in summary::verdict(&reports, cores, ranks) {
        screen.line(&line);
    }
    screen.line(&format!("picture      {}", png.display()));
    offer.missing.into_iter().for_each(|text| screen.line(text));
    screen.line("");
    // As it was typed, so that the lines can be copied.
    let pulc = std::env::args().next().unwrap_or_else(|| "pulc".into());
    screen.line(&format!("next         {pulc} run -n 2 -- {pulc} heat --image photo.png --png out.png"));
    screen.line(&format!("             {pulc} run -n 4 -- ./your-program"));
    Ok(())
}

impl Plate {
    /// What a run of the heat application is given; `picture` is a file that it writes.
    fn arguments(&self, face: Face, screen: &Screen, picture: Option<&std::path::Path>) -> Vec<OsString> {
        let Grid { rows, columns } = self.grid;
        let (size, steps) = (format!("{columns}x{rows}"), self.steps.to_string());
        // Less than the largest stable step: the word stays readable to the end.
        let plate = ["--size", &size, "--steps", &steps, "--boundary", "insulated", "-r", "0.1", "--json"];
        let mut arguments: Vec<OsString> = plate.map(OsString::from).into();
        if face != Face::Ports {
            return arguments;
        }
        let terminal = match screen.terminal() {
            Some(Terminal { columns, lines, .. }) if picture.is_some() => format!("{columns}x{lines}"),
            _ => "off".into(),
        };
        arguments.extend(["--verify", "--terminal", &terminal].map(OsString::from));
        if let Some(picture) = picture {
            arguments.extend(["--png".into(), picture.into()]);
        }
        arguments
    }
}

/// Lines that the heat application draws on this terminal.
fn drawing_lines(terminal: &Terminal, grid: Grid) -> usize {
    Canvas::lines(terminal.picture_size(grid))
}

fn can_colour(terminal: Option<&Terminal>) -> bool {
    terminal.is_some_and(|terminal| terminal.colours != Colours::None)
}
