//! Active messages: a request names the handler that runs at its receiver; the handler may reply once, and the reply runs a
//! handler where the request came from. Beside ports on the message handler, never on top of them.
//!
//! ```no_run
//! use pulc::am::{Bundle, Mode, Reply, Short};
//! use std::sync::Arc;
//! use std::sync::atomic::{AtomicU64, Ordering};
//!
//! const PING: Short<(u64,)> = Short::new(1);
//! const PONG: Reply<(u64,)> = Reply::new(2);
//!
//! let pulc = pulc::Pulc::attach()?;
//! let bundle = Bundle::new(&pulc, Mode::Sequential)?;
//! let endpoint = bundle.endpoint("game", 7)?;
//! let got = Arc::new(AtomicU64::new(0));
//! endpoint.on(PING, |token, (ball,)| token.reply(PONG, (ball + 1,)))?;
//! endpoint.on_reply(PONG, {
//!     let got = Arc::clone(&got);
//!     move |_from, (ball,)| got.store(ball, Ordering::Relaxed)
//! })?;
//! let next = pulc::Rank((pulc.rank().0 + 1) % pulc.size());
//! let peer = endpoint.map(&bundle, next, "game", 7, 16)?;
//! peer.request(&bundle, PING, (41,))?;
//! bundle.wait_until(None, || got.load(Ordering::Relaxed) == 42)?;
//! # Ok::<(), pulc::Error>(())
//! ```
//!
//! The rules: a handler of a request answers at most once, by its token; a handler of a reply not at all; no handler blocks.
//! Each mapping has credits, the number of its requests that may be under way; an answer gives one back, and room for that
//! answer is reserved, so no set of handlers can deadlock. What cannot be delivered comes back to the error handler of its
//! endpoint. Handlers run when somebody polls or waits on their bundle, or in the thread of [`Bundle::serve`]. Leaf handlers
//! ([`Endpoint::on_leaf`]) promise to call nothing of PULC, and run in the poll that finds their message.
//!
//! Source: Mainwaring and Culler, Active Message Applications Programming Interface (AM-2); GASNet-EX for prepared payloads and
//! local completion; UCX for offers that are fetched.

mod allowance;
mod answer;
mod args;
mod arrival;
mod arrive;
mod arrive_leaf;
mod attempt;
mod bundle;
mod channels;
mod endpoint;
mod event;
mod front;
pub(crate) mod fuzz;
mod graveyard;
mod handlers;
#[cfg(test)]
mod hostile;
mod leaf;
mod lookup;
mod mapping;
mod parts;
mod peer;
mod places;
mod prepared;
mod returned;
mod run;
mod segment;
mod send;
mod serve;
mod table;
mod telling;
mod token;
mod wire;

pub use args::{Args, Fetch, Long, LongReply, Medium, MediumReply, Reply, Short, WORDS_MAX, Word, Words};
pub(crate) use bundle::is_ready;
pub use bundle::{Bundle, Mode};
pub use endpoint::Endpoint;
pub use event::{Event, Group};
pub use leaf::{LeafMessage, LeafToken, in_leaf_handler};
pub use peer::{Bytes, Peer, Posted};
pub use prepared::Prepared;
pub use returned::{Opcode, Returned, Status};
pub use serve::Server;
pub use table::Tally;
pub use telling::Telling;
pub use token::{Data, Landed, Message, Offer, Source, Token};

use pulc_base::clock::Nanos;

/// Longest payload of a medium message in bytes.
pub const MEDIUM_MAX: usize = 8 << 10;
/// The tag of an endpoint that refuses every request, and that nobody finds.
pub const TAG_NONE: u64 = 0;
/// The tag of an endpoint that takes every request.
pub const TAG_ALL: u64 = u64::MAX;
/// Longest name of an endpoint in bytes.
const NAME_MAX: usize = 200;
/// Endpoints, bundles or mappings of one process at most.
pub(crate) const ENDPOINTS_MAX: usize = places::PLACES_MAX;
/// How often a wait for something that no message announces is looked at.
const LOOK_AGAIN: Nanos = Nanos::from_ms(100);
