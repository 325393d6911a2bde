//! What rank 0 shows while it computes: picture, progress, animation. A thread of its own turns frames into pictures; the solver
//! only hands frames over and never waits for the terminal. Frames that come faster than they can be drawn are dropped, except
//! those that belong into the animation.

use crate::decomposition::Decomposition;
use crate::error::HeatError;
use crate::gather::Frame;
use crate::image_files::Animation;
use crate::palette::Scale;
use crate::resample::to_pixels;
use crate::terminal::{Canvas, Colours, Terminal, TerminalSize, bar};
use std::io::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Shortest time between two pictures: smooth to the eye, cheap for the processor.
const PICTURE_INTERVAL: Duration = Duration::from_millis(100);
/// Time between progress lines where there is no terminal.
const LINE_INTERVAL: Duration = Duration::from_secs(10);
/// The viewer looks at the progress this often when no frame comes.
const IDLE_INTERVAL: Duration = Duration::from_millis(250);

/// What to show and where.
pub struct View {
    pub cut: Decomposition,
    pub scale: Scale,
    pub steps: u64,
    /// Steps from one frame to the next, 0 if none come.
    pub every: u64,
    pub quiet: bool,
    pub terminal: TerminalSize,
    pub animation: Option<Animation>,
}

struct Shared {
    state: Mutex<State>,
    changed: Condvar,
    step: AtomicU64,
}

#[derive(Default)]
struct State {
    /// The newest frame, and whether it must not be dropped.
    pending: Option<(Frame, bool)>,
    spare: Vec<Frame>,
    done: bool,
    /// The thread has ended, perhaps early.
    ended: bool,
}

/// The solver's end.
pub struct Viewer {
    shared: Arc<Shared>,
    thread: JoinHandle<Result<(), HeatError>>,
    /// Every so many frames one goes into the animation; 0: none.
    keep_every: u64,
    every: u64,
    cut: Decomposition,
}

impl Viewer {
    pub fn start(view: View) -> Viewer {
        let shared = Arc::new(Shared { state: Mutex::default(), changed: Condvar::new(), step: AtomicU64::new(0) });
        let frames = view.steps.checked_div(view.every).unwrap_or(0);
        let keep_every = if view.animation.is_some() { frames.div_ceil(Animation::FRAMES_MAX).max(1) } else { 0 };
        let (every, cut, theirs) = (view.every, view.cut, shared.clone());
        let thread = std::thread::spawn(move || {
            let result = Painter::new(view).run(&theirs);
            lock(&theirs).ended = true;
            theirs.changed.notify_all();
            result
        });
        Viewer { shared, thread, keep_every, every, cut }
    }

    /// A frame to fill: an old one if there is one.
    pub fn frame(&self) -> Result<Frame, HeatError> {
        match lock(&self.shared).spare.pop() {
            Some(frame) => Ok(frame),
            None => Frame::new(&self.cut),
        }
    }

    /// Tells how far the solver is. Costs one store.
    pub fn progress(&self, step: u64) {
        self.shared.step.store(step, Ordering::Relaxed);
    }

    /// Hands over a filled frame. Waits only for the animation.
    pub fn offer(&self, frame: Frame) {
        let keep = self.keep_every > 0 && (frame.step / self.every.max(1)).is_multiple_of(self.keep_every);
        self.hand_over(frame, keep, false);
    }

    /// Shows the last frame and ends the thread.
    pub fn finish(self, last: Frame) -> Result<(), HeatError> {
        self.progress(last.step);
        self.hand_over(last, true, true);
        self.thread.join().expect("the viewer does not panic")
    }

    fn hand_over(&self, frame: Frame, keep: bool, done: bool) {
        let mut state = lock(&self.shared);
        while !state.ended && matches!(state.pending, Some((_, true))) {
            state = self.shared.changed.wait(state).expect("the viewer's lock is not poisoned");
        }
        if let Some((dropped, _)) = state.pending.replace((frame, keep)) {
            state.spare.push(dropped);
        }
        state.done = done;
        drop(state);
        self.shared.changed.notify_all();
    }
}

fn lock(shared: &Shared) -> MutexGuard<'_, State> {
    shared.state.lock().expect("the viewer's lock is not poisoned")
}

/// The thread's end.
struct Painter {
    view: View,
    terminal: Option<Terminal>,
    canvas: Option<Canvas>,
    field: Vec<f64>,
    pixels: Vec<u8>,
    started: Instant,
    shown: Instant,
}

impl Painter {
    fn new(view: View) -> Painter {
        let terminal = if view.quiet { None } else { Terminal::find(view.terminal) };
        let now = Instant::now();
        let field = Vec::new();
        Painter { view, terminal, canvas: None, field, pixels: Vec::new(), started: now, shown: now }
    }

    fn run(mut self, shared: &Shared) -> Result<(), HeatError> {
        loop {
            let (frame, done) = next(shared);
            let due = self.canvas.is_none() || self.shown.elapsed() >= PICTURE_INTERVAL || done;
            match frame {
                Some((frame, keep)) => {
                    let draw = due && self.terminal.is_some();
                    let last = frame.step == self.view.steps;
                    if draw || keep || last {
                        self.field.resize(self.view.cut.grid.cells(), 0.0);
                        frame.assemble(&self.view.cut, &mut self.field);
                    }
                    let step = frame.step;
                    lock(shared).spare.push(frame);
                    if let Some(animation) = self.view.animation.as_mut().filter(|_| keep || last) {
                        to_pixels(&self.field, self.view.cut.grid, animation.size, self.view.scale, &mut self.pixels);
                        animation.push(&self.pixels, last)?;
                    }
                    if draw {
                        self.draw(step, true);
                    } else if self.terminal.is_none() {
                        self.line(step);
                    }
                }
                None if self.terminal.is_some() && due => self.draw(shared.step.load(Ordering::Relaxed), false),
                None => self.line(shared.step.load(Ordering::Relaxed)),
            }
            if done {
                return self.view.animation.take().map_or(Ok(()), Animation::finish);
            }
        }
    }

    /// A terminal that cannot be written to is given up silently: the computation goes on.
    fn write(&mut self, text: &str) {
        let mut out = std::io::stdout().lock();
        if out.write_all(text.as_bytes()).and_then(|()| out.flush()).is_err() {
            self.terminal = None;
            self.view.quiet = true;
        }
    }

    fn draw(&mut self, step: u64, picture: bool) {
        let Some(terminal) = Terminal::find(self.view.terminal) else { return };
        let size = terminal.picture_size(self.view.cut.grid);
        if self.canvas.as_ref().is_none_or(|canvas| canvas.size() != size) {
            self.canvas = Some(Canvas::new(&terminal, size));
        }
        self.pixels.clear();
        if picture {
            to_pixels(&self.field, self.view.cut.grid, size, self.view.scale, &mut self.pixels);
        }
        let status = self.status(step, terminal.columns, terminal.colours);
        let mut out = String::new();
        if let Some(canvas) = &mut self.canvas {
            canvas.draw(&self.pixels, &status, &mut out);
        }
        self.write(&out);
        self.shown = Instant::now();
    }

    fn line(&mut self, step: u64) {
        if self.terminal.is_some() || self.view.quiet || self.shown.elapsed() < LINE_INTERVAL {
            return;
        }
        let status = self.status(step, 100, Colours::None);
        self.write(&format!("{status}\n"));
        self.shown = Instant::now();
    }

    fn status(&self, step: u64, columns: usize, colours: Colours) -> String {
        self.status_after(self.started.elapsed().as_secs_f64(), step, columns, colours)
    }

    fn status_after(&self, seconds: f64, step: u64, columns: usize, colours: Colours) -> String {
        let share = if self.view.steps == 0 { 1.0 } else { step as f64 / self.view.steps as f64 };
        let speed = step as f64 * self.view.cut.grid.cells() as f64 / seconds.max(1e-9) / 1e6;
        let left = if step == 0 { f64::NAN } else { seconds * (1.0 - share) / share };
        let left = if step >= self.view.steps {
            format!("{seconds:.1} s")
        } else if left.is_nan() {
            "ETA -".into()
        } else {
            format!("ETA {}", duration(left))
        };
        // Everything padded, so that the bar keeps its length.
        let digits = self.view.steps.to_string().len();
        let text = format!(" step {step:>digits$}/{}  {speed:>5.0} Mcells/s  {left:<12}", self.view.steps);
        let width = columns.saturating_sub(text.chars().count() + 10).min(40);
        format!(" {} {:3.0} % {text}", bar(share, width, colours), 100.0 * share)
    }
}

/// The next frame, or none after a while without one; and whether it is over.
fn next(shared: &Shared) -> (Option<(Frame, bool)>, bool) {
    let mut state = lock(shared);
    if state.pending.is_none() && !state.done {
        (state, _) = shared.changed.wait_timeout(state, IDLE_INTERVAL).expect("the viewer's lock is not poisoned");
    }
    let frame = state.pending.take();
    let done = state.done;
    drop(state);
    shared.changed.notify_all();
    (frame, done)
}

fn duration(seconds: f64) -> String {
    let whole = seconds.ceil() as u64;
    match whole {
        0..60 => format!("{whole} s"),
        60..3600 => format!("{}:{:02} min", whole / 60, whole % 60),
        _ => format!("{}:{:02} h", whole / 3600, whole % 3600 / 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decomposition::{Grid, Layout};

    /// A million cells, 400 steps.
    fn painter() -> Painter {
        let cut = Decomposition::new(Grid { rows: 1000, columns: 1000 }, Layout::Rows, 1).unwrap();
        let (scale, terminal) = (Scale::new(0.0, 1.0), TerminalSize::Off);
        Painter::new(View { cut, scale, steps: 400, every: 0, quiet: true, terminal, animation: None })
    }

    #[test]
    fn the_progress_line_tells_share_speed_and_the_time_that_is_left() {
        let status = |seconds, step| painter().status_after(seconds, step, 100, Colours::None);
        let bar = |full, empty| "#".repeat(full) + &".".repeat(empty);
        assert_eq!(
            status(30.0, 100),
            format!(" {}  25 %  step 100/400      3 Mcells/s  ETA 1:30 min", bar(10, 30)),
            "a quarter in 30 s: three quarters take 90 s"
        );
        let left = |seconds, step| status(seconds, step).trim_end().rsplit("  ").next().unwrap().to_owned();
        assert_eq!(left(0.5, 0), "ETA -", "nothing is known before the first step");
        assert_eq!(left(8.0, 320), "ETA 2 s");
        assert_eq!(left(0.5, 399), "ETA 1 s", "what is not over is not said to be over");
        assert_eq!(left(3600.0, 100), "ETA 3:00 h");
        assert_eq!(
            status(12.34, 400).trim_end(),
            format!(" {} 100 %  step 400/400     32 Mcells/s  12.3 s", bar(40, 0))
        );
    }

    #[test]
    fn the_bar_keeps_its_length_and_gives_way_on_a_narrow_terminal() {
        let length =
            |seconds, step, columns| painter().status_after(seconds, step, columns, Colours::True).chars().count();
        for columns in [60, 80, 120] {
            let lengths = [(0.0, 0), (1.0, 1), (30.0, 100), (3600.0, 100), (99.0, 400)]
                .map(|(seconds, step)| length(seconds, step, columns));
            assert!(lengths.iter().all(|length| *length == lengths[0] && *length < columns), "{columns}: {lengths:?}");
        }
    }
}
