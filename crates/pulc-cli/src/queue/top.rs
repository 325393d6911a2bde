//! `pulc top`: nodes and jobs, live, in the terminal. One key acts on the chosen job. Asks what `pulc nodes --queue` and `pulc queue` ask, once
//! a second; draws with the few codes that every terminal knows. Leaves the terminal as it was, however it ends.

use super::{ask, fail, list, operator};
use pulc_control::StopKind;
use pulc_control::queue::{JobNumber, JobView, QueueRequest, Target, Verb};
use pulc_hal::os::signals::{SIGHUP, SIGINT, SIGTERM, SignalFd};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::termios::{LocalModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcsetattr};
use std::fmt::Write as _;
use std::io::{IsTerminal as _, Write as _};
use std::process::ExitCode;

#[derive(clap::Args)]
pub struct Args {
    /// Print once and end, for files and scripts
    #[arg(long)]
    once: bool,
}

const HELP: &str = "q quit   up/down choose   c cancel   s suspend   r resume   h hold   l release";

pub fn run(args: &Args) -> ExitCode {
    if args.once || !std::io::stdin().is_terminal() || !std::io::stdout().is_terminal() {
        return super::print(look().map(|(nodes, jobs)| nodes + "\n" + &list::queue_table(&jobs)));
    }
    // Before the screen is changed: whoever ends us by a signal gets the terminal back as it was.
    let Ok(signals) = SignalFd::new(&[SIGINT, SIGTERM, SIGHUP], false) else { return fail("cannot watch signals") };
    let Ok(screen) = Screen::open() else { return fail("this is no terminal that can be set; use --once") };
    let code = watch(&signals);
    drop(screen);
    code
}

fn watch(signals: &SignalFd) -> ExitCode {
    // The chosen job, not its line: lines move when jobs start and end.
    let mut chosen: Option<JobNumber> = None;
    let mut word = String::new();
    loop {
        let (text, jobs) = match look() {
            Ok((nodes, jobs)) => (nodes, jobs),
            Err(why) => (format!("{why}\n"), Vec::new()),
        };
        let at = chosen.and_then(|number| jobs.iter().position(|job| job.number == number)).unwrap_or(0);
        chosen = jobs.get(at).map(|job| job.number);
        draw(&text, &jobs, at, &word);
        let to = |at: usize| jobs.get(at.min(jobs.len().saturating_sub(1))).map(|job| job.number);
        match next(signals) {
            Next::Key(b'q' | 3) => return ExitCode::SUCCESS,
            Next::Key(b'k') => chosen = to(at.saturating_sub(1)),
            Next::Key(b'j') => chosen = to(at + 1),
            Next::Key(key) => word = jobs.get(at).map(|job| act(job, key)).unwrap_or_default(),
            Next::Signal(signal) => return ExitCode::from(u8::try_from(128 + signal).unwrap_or(1)),
            Next::Closed => return ExitCode::SUCCESS,
            Next::Nothing => {}
        }
    }
}

fn look() -> Result<(String, Vec<JobView>), String> {
    let nodes = operator::nodes()?;
    Ok((operator::table(&nodes), list::jobs(QueueRequest::Queue)?))
}

fn act(job: &JobView, key: u8) -> String {
    let verb = match key {
        b'c' => Verb::Cancel(StopKind::Gently),
        b's' => Verb::Suspend,
        b'r' => Verb::Resume,
        b'h' => Verb::Hold,
        b'l' => Verb::Release,
        _ => return String::new(),
    };
    let targets = vec![Target { number: job.number, index: None }];
    match ask(QueueRequest::Change { targets, verb }) {
        Ok(_) => format!("job {}: done", job.label()),
        Err(why) => why,
    }
}

fn draw(nodes: &str, jobs: &[JobView], chosen: usize, word: &str) {
    let (width, height) = rustix::termios::tcgetwinsize(std::io::stdout())
        .map_or((80, 24), |size| (usize::from(size.ws_col.max(20)), usize::from(size.ws_row.max(8))));
    let mut text = String::from("\x1b[H\x1b[2J");
    let table = list::queue_table(jobs);
    // The head of the table is line 0.
    let marked = jobs.get(chosen).map(|_| chosen + 1);
    let lines = nodes.lines().map(|line| (line, false)).chain([("", false)]);
    let lines = lines.chain(table.lines().enumerate().map(|(at, line)| (line, Some(at) == marked)));
    for (line, marked) in lines.take(height - 2) {
        let line: String = line.chars().take(width).collect();
        let _ = if marked { write!(text, "\x1b[7m{line}\x1b[0m\r\n") } else { write!(text, "{line}\r\n") };
    }
    let foot: String = if word.is_empty() { HELP } else { word }.chars().take(width).collect();
    let _ = write!(text, "\x1b[{height};1H{foot}");
    let mut out = std::io::stdout();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

enum Next {
    Key(u8),
    Signal(i32),
    /// The terminal has gone.
    Closed,
    Nothing,
}

/// The next key or signal within a second; arrows are told as j and k.
fn next(signals: &SignalFd) -> Next {
    let stdin = std::io::stdin();
    let second = Timespec { tv_sec: 1, tv_nsec: 0 };
    let mut both = [PollFd::new(&stdin, PollFlags::IN), PollFd::new(signals, PollFlags::IN)];
    if !matches!(poll(&mut both, Some(&second)), Ok(1..)) {
        return Next::Nothing;
    }
    if both[1].revents().contains(PollFlags::IN) {
        return signals.read().map_or(Next::Closed, Next::Signal);
    }
    let mut bytes = [0; 8];
    // Not through the standard library's buffer, which would keep what comes behind the first key.
    match rustix::io::read(&stdin, &mut bytes) {
        Ok(0) | Err(_) => Next::Closed,
        Ok(_) if bytes.starts_with(b"\x1b[A") || bytes.starts_with(b"\x1bOA") => Next::Key(b'k'),
        Ok(_) if bytes.starts_with(b"\x1b[B") || bytes.starts_with(b"\x1bOB") => Next::Key(b'j'),
        Ok(_) => Next::Key(bytes[0]),
    }
}

/// Keys come one by one and are not shown, until this is dropped.
struct Screen(Termios);

impl Screen {
    fn open() -> std::io::Result<Screen> {
        let stdin = std::io::stdin();
        let before = tcgetattr(&stdin)?;
        let mut raw = before.clone();
        raw.local_modes.remove(LocalModes::ICANON | LocalModes::ECHO | LocalModes::ISIG);
        raw.special_codes[SpecialCodeIndex::VMIN] = 1;
        raw.special_codes[SpecialCodeIndex::VTIME] = 0;
        tcsetattr(&stdin, OptionalActions::Now, &raw)?;
        // Another screen, so that what stood here comes back.
        print!("\x1b[?1049h\x1b[?25l");
        Ok(Screen(before))
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        print!("\x1b[?25h\x1b[?1049l");
        let _ = std::io::stdout().flush();
        let _ = tcsetattr(std::io::stdin(), OptionalActions::Now, &self.0);
    }
}
