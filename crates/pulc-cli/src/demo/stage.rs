//! One run of the demo: starts it, forwards its picture to the terminal, takes its report out of the stream.

use pulc_base::boot::ENV_ENDS_WITH;
use pulc_heat::decomposition::Grid;
use pulc_heat::report::Report;
use pulc_heat::terminal::Terminal;
use std::ffi::OsString;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Command, Stdio};

/// What carries the messages of a run, and what it is written in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Face {
    /// `pulc heat`, on ports.
    Ports,
    /// Programs on MPI, of the tree that this binary stands in.
    MpiC,
    MpiPython,
}

/// How one run is started.
pub struct Stage {
    pub face: Face,
    /// In the table.
    pub name: &'static str,
    pub title: &'static str,
    pub ranks: u32,
    /// 0: without the launcher.
    pub nodes: u32,
}

/// Where the demo writes: a terminal that pictures are drawn on, or plain text.
pub struct Screen {
    terminal: Option<Terminal>,
    grid: Grid,
    /// A picture stands above the cursor, with its heading.
    drawn: bool,
}

/// Sizes beyond which a larger picture costs more than it shows.
const COLUMNS_MAX: usize = 200;
const LINES_MAX: usize = 60;

impl Screen {
    pub fn new(terminal: Option<Terminal>, grid: Grid) -> Screen {
        let terminal = terminal.map(|terminal| Terminal {
            columns: terminal.columns.min(COLUMNS_MAX),
            lines: terminal.lines.min(LINES_MAX),
            ..terminal
        });
        Screen { terminal, grid, drawn: false }
    }

    pub fn terminal(&self) -> Option<&Terminal> {
        self.terminal.as_ref()
    }

    /// One line of text. A closed output is found out by the next run, which then fails.
    pub fn line(&self, text: &str) {
        let _ = writeln!(std::io::stdout(), "{text}");
    }

    pub fn bold(&self, text: &str) -> String {
        if super::can_colour(self.terminal.as_ref()) { format!("\x1b[1m{text}\x1b[0m") } else { text.to_owned() }
    }

    /// The heading of a run, over the picture of the run before.
    fn heading(&mut self, text: &str) {
        let mut out = String::new();
        if let Some(terminal) = self.terminal.as_ref().filter(|_| self.drawn) {
            out = format!("\x1b[{}A\r\x1b[K", super::drawing_lines(terminal, self.grid) + 1);
        }
        self.drawn = self.terminal.is_some();
        self.line(&format!("{out}{}", self.bold(text)));
    }
}

impl Stage {
    pub fn describe(&self) -> String {
        match self.ranks {
            1 => self.title.to_owned(),
            ranks => format!("{}, {ranks} ranks", self.title),
        }
    }

    /// Runs it and returns its report.
    ///
    /// # Errors
    /// In words: what could not be started, or how it ended.
    pub fn run(&self, heat: &[OsString], heading: &str, screen: &mut Screen) -> Result<Report, String> {
        let pulc = std::env::current_exe().map_err(|error| format!("cannot find the program pulc itself: {error}"))?;
        screen.heading(heading);
        let mut command = Command::new(&pulc);
        if self.nodes > 0 {
            command.args(["run", "--alone", "-n"]).arg(self.ranks.to_string());
            if self.nodes > 1 {
                command.arg("--nodes").arg(self.nodes.to_string());
            }
            command.arg("--");
        }
        match self.face {
            Face::Ports if self.nodes > 0 => command.arg(&pulc).arg("heat"),
            Face::Ports => command.arg("heat"),
            Face::MpiC => command.arg(super::mpi::program(&pulc)),
            Face::MpiPython => command.arg(super::mpi::PYTHON).arg(super::mpi::script(&pulc)),
        };
        command.args(heat).stdin(Stdio::null()).stdout(Stdio::piped());
        command.env(ENV_ENDS_WITH, std::process::id().to_string());
        let mut child = command.spawn().map_err(|error| format!("cannot start {}: {error}", pulc.display()))?;
        let report = child.stdout.take().map(|output| forward(output, screen.terminal.is_some()));
        let status = child.wait().map_err(|error| format!("cannot wait for {heading:?}: {error}"))?;
        match report {
            Some(Ok(Some(report))) if status.success() => {
                if screen.terminal.is_none() {
                    screen.line(&format!("     {:.2} s, field {}", report.seconds, report.hash));
                }
                Ok(report)
            }
            Some(Err(error)) => Err(format!("the output of {heading:?} broke off: {error}")),
            _ if status.success() => Err(format!("{heading:?} ended well but gave no result")),
            _ => Err(format!("{heading:?} failed ({status}); its own words are above")),
        }
    }
}

/// Passes lines on until the end, keeping the report for itself.
fn forward(output: impl Read, pictures: bool) -> std::io::Result<Option<Report>> {
    let mut output = BufReader::with_capacity(1 << 16, output);
    let mut screen = std::io::stdout().lock();
    let (mut line, mut report) = (Vec::new(), None);
    while output.read_until(b'\n', &mut line)? > 0 {
        match std::str::from_utf8(&line).ok().and_then(|text| Report::from_json(text.trim_end())) {
            Some(found) => report = Some(found),
            None => screen.write_all(&line)?,
        }
        line.clear();
        // A whole picture at a time: flush when nothing more is waiting.
        if pictures && output.buffer().is_empty() {
            screen.flush()?;
        }
    }
    screen.flush()?;
    Ok(report)
}
