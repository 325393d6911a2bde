//! The loop of a broker: one thread, no runtime. Accepts lines, hands each request to its broker, looks now and then for what is over. Knows no
//! request.

use pulc_hal::os::fdpass::{Listener, Seqpacket};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io;
use std::os::fd::AsFd as _;
use std::time::{Duration, Instant};

/// Requests that are being read at a time; more wait to be accepted.
const CLIENTS_MAX: usize = 256;
/// Between two looks for connections that are over, while there are any.
const TICK: Duration = Duration::from_secs(10);
/// After a request could not be accepted.
const BREATH: Duration = Duration::from_millis(20);

/// A broker.
pub trait Service {
    /// A request has come; whether the line may bring more.
    fn serve(&mut self, client: &Seqpacket) -> bool;
    /// Forgets what is over.
    fn clear_up(&mut self);
    /// Whether it may end, nobody having asked for so long.
    fn may_end(&mut self, idle: Duration) -> bool;
    /// Lines that one user may have at a time; more are closed.
    fn lines_of_a_user(&self) -> usize;
}

/// Serves until the broker may end.
pub fn run(listener: &Listener, broker: &mut impl Service) -> io::Result<()> {
    // With the user.
    let mut clients: Vec<(u32, Seqpacket)> = Vec::new();
    let mut busy = Instant::now();
    loop {
        let tick = Timespec { tv_sec: TICK.as_secs() as i64, tv_nsec: 0 };
        let readable = wait(listener, &clients, &tick)?;
        if readable.is_empty() {
            broker.clear_up();
            if clients.is_empty() && broker.may_end(busy.elapsed()) {
                return Ok(());
            }
            continue;
        }
        busy = Instant::now();
        // From the end, so that numbers before stay what they are.
        for index in readable.into_iter().rev() {
            match index.checked_sub(1) {
                None => accept(listener, &mut clients, broker.lines_of_a_user()),
                Some(client) if broker.serve(&clients[client].1) => {}
                Some(client) => drop(clients.swap_remove(client)),
            }
        }
    }
}

/// Which descriptors can be read: 0 the listener, then the clients.
fn wait(listener: &Listener, clients: &[(u32, Seqpacket)], limit: &Timespec) -> io::Result<Vec<usize>> {
    let wanted = if clients.len() < CLIENTS_MAX { PollFlags::IN } else { PollFlags::empty() };
    let mut fds = vec![PollFd::from_borrowed_fd(listener.as_fd(), wanted)];
    fds.extend(clients.iter().map(|(_, client)| PollFd::from_borrowed_fd(client.as_fd(), PollFlags::IN)));
    match poll(&mut fds, Some(limit)) {
        Ok(_) => {}
        Err(rustix::io::Errno::INTR) => return Ok(Vec::new()),
        Err(error) => return Err(error.into()),
    }
    Ok(fds.iter().enumerate().filter(|(_, fd)| !fd.revents().is_empty()).map(|(index, _)| index).collect())
}

fn accept(listener: &Listener, clients: &mut Vec<(u32, Seqpacket)>, lines: usize) {
    while clients.len() < CLIENTS_MAX {
        match listener.accept().and_then(|client| Ok((client.peer()?.uid, client))) {
            Ok((uid, client)) => {
                // Dropped: nobody keeps all others out.
                if clients.iter().filter(|(other, _)| *other == uid).count() < lines {
                    clients.push((uid, client));
                }
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
            Err(_) => {
                // No descriptors, no memory: whoever waits would wake us again at once.
                std::thread::sleep(BREATH);
                return;
            }
        }
    }
}
