//! A request among other things that a thread waits for: ports, channels, descriptors. Asked by the wait of another interface; the request
//! stays as it is, a test completes it.

use super::Known;
use crate::collective;
use crate::handle::Request;
use crate::matcher::Matcher;
use crate::world;
use pulc_base::Proto;
use pulc_handler::{Awaited, Engine, Look};

/// A request that is waited for beside other things. Ready when a test of it would complete it or fail; the null request never is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pending(pub Request);

impl Awaited for Pending {
    fn look(&self, engine: &mut Engine) -> Look {
        // A test says what is wrong.
        let Some(table) = engine.handler::<Matcher>(Proto::MPI) else { return Look::Ready };
        match table.look_up(self.0) {
            Ok(Known::Nothing) => Look::Nothing,
            Ok(Known::Active(_)) if table.requests.schedule_news && collective::any_active() => Look::GoOn,
            Ok(Known::Active(_)) => Look::Nothing,
            Ok(Known::Sent | Known::Done(_)) | Err(_) => Look::Ready,
        }
    }

    fn go_on(&self) {
        if collective::any_active()
            && let Ok(process) = world::process()
        {
            collective::drive(process);
        }
    }
}
