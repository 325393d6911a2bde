//! Operations of the program that look like requests.
//! Source: MPI-5.0, 13.2.

use crate::callback::GeneralizedRequest;
use crate::error::{Class, Error, Result};
use crate::handle::{Comm, Request};
use crate::matcher::{Requests, Work, matcher};
use crate::status::Status;
use crate::world;
use std::sync::Arc;

/// Begins an operation of the program.
pub fn grequest_start(operation: Arc<dyn GeneralizedRequest>) -> Result<Request> {
    let process = world::process()?;
    let mut guard = process.lock();
    let table = matcher(&mut guard.engine);
    let index = table.requests.add(Work::None, Comm::WORLD);
    table.requests.place(index).generalized = Some(operation);
    Ok(Requests::handle(index))
}

/// The program says that its operation is complete.
pub fn grequest_complete(request: Request) -> Result<()> {
    let process = world::process()?;
    let mut guard = process.lock();
    let table = matcher(&mut guard.engine);
    let index = table.requests.index(request).filter(|index| table.requests.place(*index).generalized.is_some());
    let Some(index) = index else {
        return Err(Error::new(Class::REQUEST, format!("{:#010x} is no generalized request", request.0)));
    };
    let freed = table.requests.place(index).released.then(|| table.requests.place(index).generalized.clone());
    table.requests.complete(index, Status::EMPTY, None);
    process.announce(&guard);
    drop(guard);
    if let Some(Some(operation)) = freed {
        operation.free();
    }
    Ok(())
}
