//! Bundles: the unit of progress. Whoever polls or waits on a bundle runs the handlers of its endpoints, never with the engine
//! locked. Public; everything in this room that blocks goes through [`Inner::drive`].

use super::arrival::Arrival;
use super::arrive::lane_of;
use super::endpoint::Endpoint;
use super::event::{Event, Group};
use super::graveyard;
use super::run;
use super::send;
use super::serve::Server;
use super::table::{AmTable, BundleState, Tally};
use super::token::Call;
use crate::{Error, Pulc, params};
use pulc_base::Proto;
use pulc_base::clock::{self, Nanos};
use pulc_handler::{Engine, Guard, Hand, Process, Waited, Watch};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

/// Handlers run in one poll at most.
const POLL_BUDGET: usize = 256;

/// And so often is looked for more meanwhile.
const POLLS_MAX: usize = 16;

/// Batches of handlers between two looks at the clock.
const BATCHES_PER_LOOK: u32 = 64;

/// Whether handlers of a bundle may run at the same time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    /// One after another, whichever threads poll.
    Sequential,
    /// Each thread that polls may run one.
    Parallel,
}

/// A progress domain: its handlers run in the threads that call it. Handlers never get one, so they cannot block.
///
/// ```compile_fail,E0521
/// # use pulc::am::{Bundle, Endpoint, Short};
/// const WAIT: Short<()> = Short::new(1);
/// fn open(bundle: &Bundle, endpoint: &Endpoint) {
///     endpoint.on(WAIT, |_token, ()| drop(bundle.wait(None))).unwrap();
/// }
/// ```
pub struct Bundle {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub process: &'static Process,
    pub number: u32,
    pub lookup: Nanos,
}

impl Drop for Inner {
    fn drop(&mut self) {
        if self.process.check_fork().is_ok() {
            let mut guard = self.process.lock();
            let state = send::table(&mut guard.engine).bundles.remove(self.number);
            graveyard::leave(guard);
            drop(state);
        }
    }
}

/// Why a drive looked up.
enum Next<R> {
    Done(R),
    Run,
}

impl Bundle {
    /// A new bundle of this process.
    ///
    /// # Errors
    /// [`Error::Forked`] in a fork of the attached process.
    pub fn new(pulc: &Pulc, mode: Mode) -> Result<Bundle, Error> {
        let process = pulc.process;
        process.check_fork()?;
        let mut guard = process.lock();
        if guard.engine.handler::<AmTable>(Proto::AM).is_none() {
            let credits_max = params::AM_CREDITS_MAX.read().value as u16;
            let ranks = guard.engine.size();
            guard.engine.register(Proto::AM, Box::new(AmTable::new(credits_max, ranks)))?;
        }
        let sequential = mode == Mode::Sequential;
        let state = BundleState { inbox: VecDeque::new(), sequential, running: 0, leaves_ran: 0, panicked: None };
        let number = send::table(&mut guard.engine).bundles.add(|_| state);
        drop(guard);
        let number = number.ok_or(Error::TooManyPorts { limit: super::ENDPOINTS_MAX })?;
        let lookup = Nanos::from_ms(params::AM_LOOKUP_MS.read().value);
        Ok(Bundle { inner: Arc::new(Inner { process, number, lookup }) })
    }

    /// Opens an endpoint whose handlers run in this bundle. Requests must be sent over mappings made with the same `tag`.
    ///
    /// # Errors
    /// [`Error::BadName`], [`Error::NameTaken`].
    pub fn endpoint(&self, name: &str, tag: u64) -> Result<Endpoint, Error> {
        Endpoint::open(&self.inner, name, tag)
    }

    /// Makes progress and runs what handlers can run, without waiting; how many have run.
    ///
    /// # Errors
    /// [`Error::InHandler`] when called from one.
    pub fn poll(&self) -> Result<usize, Error> {
        self.inner.check()?;
        let mut guard = self.inner.process.lock();
        self.inner.process.poll(&mut guard, &mut Hand::empty());
        Ok(self.inner.run_queued(guard).0)
    }

    /// Waits until at least one handler has run; how many have. `None` waits without limit. Sleeps when nothing comes.
    ///
    /// # Errors
    /// [`Error::Timeout`], [`Error::InHandler`].
    pub fn wait(&self, timeout: Option<Duration>) -> Result<usize, Error> {
        self.inner.check()?;
        let deadline = deadline(timeout);
        let (inner, mut guard) = (&*self.inner, self.inner.process.lock());
        if inner.look_shortly(&mut guard) {
            let (count, next) = inner.run_queued(guard);
            if count > 0 {
                return Ok(count);
            }
            guard = next;
        }
        loop {
            let (waited, next) = inner.process.wait(guard, &mut Hand::empty(), deadline, Watch::News, |engine, _| {
                send::table(engine).is_ready(inner.number).then_some(())
            });
            if let Waited::Timeout = waited {
                graveyard::leave(next);
                return Err(Error::Timeout);
            }
            let (count, next) = inner.run_queued(next);
            if count > 0 {
                return Ok(count);
            }
            guard = next;
        }
    }

    /// Runs handlers until `done` says so. It is asked after every batch of handlers, and whenever another thread may have
    /// changed something.
    ///
    /// # Errors
    /// [`Error::Timeout`], [`Error::InHandler`].
    pub fn wait_until(&self, timeout: Option<Duration>, mut done: impl FnMut() -> bool) -> Result<(), Error> {
        let deadline = deadline(timeout);
        let inner = &*self.inner;
        inner.check()?;
        let mut batches = 0_u32;
        loop {
            let mut guard = inner.process.lock();
            let seen = send::table(&mut guard.engine).tally.handled;
            drop(guard);
            // Asked without the engine's lock, so that it may be anything.
            if done() {
                return Ok(());
            }
            let mut guard = inner.process.lock();
            // A deadline counts also for whoever is flooded with what is not enough.
            batches = batches.wrapping_add(1);
            if !batches.is_multiple_of(BATCHES_PER_LOOK) && inner.look_shortly(&mut guard) {
                drop(inner.run_queued(guard).1);
                continue;
            }
            let now = clock::now();
            if deadline.is_some_and(|deadline| now >= deadline) {
                return Err(Error::Timeout);
            }
            let look_again = now + super::LOOK_AGAIN;
            let until = deadline.map_or(look_again, |deadline| deadline.min(look_again));
            let (_, guard) = inner.process.wait(guard, &mut Hand::empty(), Some(until), Watch::News, |engine, _| {
                let table = send::table(engine);
                (table.is_ready(inner.number) || table.tally.handled != seen).then_some(())
            });
            drop(inner.run_queued(guard).1);
        }
    }

    /// Waits until an event is complete; whether it went well.
    pub fn wait_event(&self, event: &Event, timeout: Option<Duration>) -> Result<bool, Error> {
        self.inner.drive(deadline(timeout), Watch::News, |_| event.outcome())?.ok_or(Error::Timeout)
    }

    /// Waits until nothing of a group is under way any more; how many failed.
    pub fn wait_group(&self, group: &Group, timeout: Option<Duration>) -> Result<usize, Error> {
        let done = |_: &mut Engine| (group.open() == 0).then(|| group.failed());
        self.inner.drive(deadline(timeout), Watch::News, done)?.ok_or(Error::Timeout)
    }

    /// Runs the handlers of this bundle in a thread of its own until the server is stopped or dropped. It sleeps while nothing
    /// comes, and works while the program computes.
    ///
    /// # Errors
    /// [`Error::System`] when there can be no further thread.
    pub fn serve(&self) -> Result<Server, Error> {
        self.inner.check()?;
        Server::start(&self.inner)
    }

    /// What active messages of this process have done, in all bundles.
    pub fn tally(&self) -> Tally {
        if self.inner.process.check_fork().is_err() {
            return Tally::default();
        }
        send::table(&mut self.inner.process.lock().engine).tally
    }
}

/// Whether a handler of the bundle can run.
pub(crate) fn is_ready(engine: &mut Engine, bundle: &Bundle) -> bool {
    send::table(engine).is_ready(bundle.inner.number)
}

pub(crate) fn deadline(timeout: Option<Duration>) -> Option<Nanos> {
    timeout.map(|timeout| clock::now() + Nanos::from(timeout))
}

impl Inner {
    /// Blocking is allowed here.
    #[inline]
    pub fn check(&self) -> Result<(), Error> {
        self.process.check_fork()?;
        if run::in_handler() { Err(Error::InHandler) } else { Ok(()) }
    }

    /// Runs handlers of the bundle until `done` has a result, which is asked with the engine locked. `None`: the deadline is
    /// over.
    pub fn drive<R>(
        &self,
        deadline: Option<Nanos>,
        watch: Watch,
        mut done: impl FnMut(&mut Engine) -> Option<R>,
    ) -> Result<Option<R>, Error> {
        self.check()?;
        let mut guard = self.process.lock();
        loop {
            let (waited, next) = self.process.wait(guard, &mut Hand::empty(), deadline, watch, |engine, _| {
                if let Some(result) = done(engine) {
                    return Some(Next::Done(result));
                }
                send::table(engine).is_ready(self.number).then_some(Next::Run)
            });
            match waited {
                Waited::Ready(Next::Done(result)) => {
                    graveyard::leave(next);
                    return Ok(Some(result));
                }
                Waited::Ready(Next::Run) => guard = self.run_queued(next).1,
                Waited::Timeout => {
                    graveyard::leave(next);
                    return Ok(None);
                }
            }
        }
    }

    /// Whether a handler can run now, or after a moment of polling: the way of most waits.
    #[inline]
    fn look_shortly(&self, guard: &mut Guard<'_>) -> bool {
        send::table(&mut guard.engine).is_ready(self.number)
            || self.process.poll_shortly(guard, &mut Hand::watching(lane_of(self.number)))
    }

    /// Polls for more while acknowledgements wait for company.
    #[inline]
    fn poll_hot(&self, guard: &mut Guard<'_>) -> bool {
        send::table(&mut guard.engine).acks_wait = true;
        let came = self.process.poll_hot(guard);
        send::table(&mut guard.engine).acks_wait = false;
        came
    }

    /// A leaf handler has panicked: what it panicked with goes on here, with the engine unlocked.
    #[cold]
    fn raise(&self, mut guard: Guard<'_>) -> ! {
        let state = send::table(&mut guard.engine).bundles.get(self.number);
        let panic = state.and_then(|state| state.panicked.take());
        send::flush_acks(&mut guard.engine);
        self.process.announce(&guard);
        drop(guard);
        match panic {
            Some(panic) => std::panic::resume_unwind(panic),
            None => panic!("a leaf handler panicked"),
        }
    }

    /// Runs what waits for its handler; how many have run, leaf handlers among them.
    #[inline]
    pub fn run_queued<'p>(&'p self, mut guard: Guard<'p>) -> (usize, Guard<'p>) {
        let (mut count, mut polls) = (0, 0);
        let mut next = send::table(&mut guard.engine).take(self.number);
        loop {
            while let Some(mut arrival) = next {
                drop(guard);
                let is_request = run::is_request(&arrival);
                let Arrival { about, payload } = &mut *arrival;
                let call = Call::of(self.process, about, is_request);
                let verdict = run::run(self, &call, payload);
                if let Err(forked) = self.process.check_fork() {
                    panic!("a handler forked and returned in the child: {forked}");
                }
                guard = self.process.lock();
                run::finish(self, &mut guard, &call, verdict);
                count += 1;
                let table = send::table(&mut guard.engine);
                table.used(arrival);
                next = if count < POLL_BUDGET { table.take(self.number) } else { None };
            }
            let table = send::table(&mut guard.engine);
            let (leaves, panicked) = table.leaves(self.number);
            count += leaves;
            if panicked {
                self.raise(guard);
            }
            if !table.has_chores() {
                break;
            }
            // Acknowledgements wait for company while there are more messages to handle.
            polls += 1;
            if count == 0 || count >= POLL_BUDGET || polls > POLLS_MAX || !self.poll_hot(&mut guard) {
                send::flush_acks(&mut guard.engine);
                guard = graveyard::emptied(self.process, guard);
                break;
            }
            next = send::table(&mut guard.engine).take(self.number);
        }
        if count > 0 {
            // Credit may be back that other threads wait for, and the next handler's turn has come.
            self.process.announce(&guard);
        }
        (count, guard)
    }
}
