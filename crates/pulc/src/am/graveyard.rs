//! What the table of active messages is done with and whose drop may run code of the user: handlers, payloads, segments. Such
//! code may own ports or peers, whose drop locks the engine, so nothing here is ever dropped with it locked. Filled by `table`
//! and its parts (engine locked), emptied by whoever lets go of the engine next in `bundle`, `endpoint` and `mapping`.

use super::send;
use pulc_handler::{Guard, Process};

#[derive(Default)]
pub(crate) struct Graveyard(Vec<Box<dyn Send>>);

impl Graveyard {
    /// Keeps a value until the engine is unlocked.
    #[cold]
    pub fn bury(&mut self, value: impl Send + 'static) {
        self.0.push(Box::new(value));
    }

    #[inline]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.0.len()
    }
}

/// Drops what is buried, with the engine unlocked meanwhile.
#[inline]
pub(crate) fn emptied<'p>(process: &'p Process, mut guard: Guard<'p>) -> Guard<'p> {
    if send::table(&mut guard.engine).graves.is_empty() {
        return guard;
    }
    leave(guard);
    process.lock()
}

/// Lets go of the engine, then drops what is buried.
#[inline]
pub(crate) fn leave(mut guard: Guard<'_>) {
    let graves = std::mem::take(&mut send::table(&mut guard.engine).graves);
    drop(guard);
    drop(graves);
}

#[cfg(test)]
mod tests {
    use super::super::table::{AmTable, Target, Transfer, header};
    use super::super::token::{Landing, Token};
    use super::super::wire::Kind;
    use super::super::{WORDS_MAX, Words};
    use pulc_base::Rank;
    use pulc_handler::{End, TransferId};
    use std::sync::Arc;

    struct Fetched(Arc<()>);

    impl Landing for Fetched {
        fn memory(&mut self) -> &mut [u8] {
            &mut []
        }

        fn there(self: Box<Self>, _token: Token<'_>) {
            assert_eq!(Arc::strong_count(&self.0), 0, "it never comes");
        }
    }

    #[test]
    fn what_is_fetched_from_a_peer_that_ends_is_not_dropped_by_the_table() {
        let (mut table, mine) = (AmTable::new(1, 2), Arc::new(()));
        let target = Target::Fetching(Box::new(Fetched(Arc::clone(&mine))));
        let (id, words) = (TransferId { src: Rank(1), id: 0 }, Words::new([0; WORDS_MAX], 0));
        let header = header(Kind::Fetch, 1);
        table.transfers.add(|_| Transfer { id, header, words, target, arrived: 0, total: 0 }).unwrap();
        table.forget(Rank(1), End::KeeperGone);
        assert_eq!((Arc::strong_count(&mine), table.graves.len()), (2, 1));
        drop(std::mem::take(&mut table.graves));
        assert_eq!(Arc::strong_count(&mine), 1);
    }
}
