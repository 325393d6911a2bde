//! A job that another launcher has started, without any psid: ranks know each other through PMI-1, and the first one of each node starts
//! a keeper there, which brokers channels as `pulc run`'s does and ends with the last of them. From then on everything is as
//! under `pulc run`. Called by `attach`; the launcher starts and ends processes, nothing here does.

pub(crate) mod fuzz;
mod keeper;
mod pmi;

use crate::error::Error;
use pmi::Pmi;
use pulc_base::boot::{Boot, BootNode, BootTask, GuestGo, GuestOrder, GuestReady, JobSecret, decode, encode};
use pulc_base::{JobId, NodeId, PROTOCOL_VERSION, Rank};
use std::fs::File;
use std::sync::{Mutex, PoisonError};

/// Descriptor of the connection to the launcher.
const ENV_FD: &str = "PMI_FD";
const ENV_RANK: &str = "PMI_RANK";
const ENV_SIZE: &str = "PMI_SIZE";
const MAPPING: &str = "PMI_process_mapping";

/// The connection to the launcher, from joining to the end.
static LAUNCHER: Mutex<Option<Pmi<File>>> = Mutex::new(None);

/// What takes the place of a keeper's environment.
pub(crate) struct Invitation {
    pub keeper: String,
    pub rank: Rank,
    pub cookie: [u8; 16],
}

/// Whether another launcher has started this process as one of several.
pub(crate) fn is_guest() -> bool {
    std::env::var_os(ENV_FD).is_some() && number(ENV_SIZE).is_ok_and(|size| size > 1)
}

/// Meets the other ranks.
pub(crate) fn join() -> Result<Invitation, Error> {
    let (rank, size) = (number(ENV_RANK)?, number(ENV_SIZE)?);
    let fd =
        pulc_hal::os::process::inherited_fd(number(ENV_FD)? as i32).map_err(|source| Error::Launcher { source })?;
    let mut pmi = Pmi::start(File::from(fd)).map_err(|source| Error::Launcher { source })?;
    let met = meet(&mut pmi, rank, size as usize).map_err(|source| Error::Launcher { source });
    *LAUNCHER.lock().unwrap_or_else(PoisonError::into_inner) = Some(pmi);
    let ready = met?;
    Ok(Invitation { keeper: ready.keeper, rank: Rank(rank), cookie: ready.cookie })
}

/// Tells the launcher that this process ends as it should.
pub(crate) fn finalize() {
    if let Some(mut pmi) = LAUNCHER.lock().unwrap_or_else(PoisonError::into_inner).take() {
        // A launcher that is gone ends this process anyway.
        let _ = pmi.finalize();
    }
}

/// Has the launcher end the job; false when there is none.
pub(crate) fn abort(code: u8, text: &str) -> bool {
    let mut launcher = LAUNCHER.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(pmi) = launcher.as_mut() else { return false };
    eprintln!("pulc: {text}");
    pmi.abort(code).is_ok()
}

fn number(name: &'static str) -> Result<u32, Error> {
    let value = std::env::var(name).unwrap_or_default();
    value.parse().map_err(|_| Error::BadEnvironment { name, value })
}

fn meet(pmi: &mut Pmi<File>, rank: u32, size: usize) -> std::io::Result<GuestReady> {
    let mapping = pmi.get(MAPPING)?;
    let other = |text: String| std::io::Error::other(text);
    let nodes = pmi::nodes_of(&mapping, size).ok_or_else(|| other(format!("it places ranks by {mapping:?}")))?;
    let Some(&node) = nodes.get(rank as usize) else {
        return Err(other(format!("it calls this process rank {rank} of {size}")));
    };
    let here: Vec<u32> = (0..size as u32).filter(|rank| nodes[*rank as usize] == node).collect();
    let (first, count) = (here[0], here.len() as u32);
    if here.last() != Some(&(first + count - 1)) {
        return Err(other("it deals ranks to nodes in turn: place them in blocks, as -ppn does".to_owned()));
    }
    let is_spread = nodes.iter().any(|other| *other != nodes[0]);
    let mut own = None;
    if rank == first {
        let order = GuestOrder { version: PROTOCOL_VERSION, first, count, is_spread };
        let (keeper, ready) = keeper::start(&order)?;
        pmi.put(&format!("pulc-keeper-{node}"), &hex(&encode(&GuestReady { addresses: Vec::new(), ..ready.clone() })))?;
        for (at, addresses) in ready.addresses.iter().enumerate() {
            pmi.put(&format!("pulc-rails-{}", first + at as u32), &hex(&encode(addresses)))?;
        }
        own = Some(keeper);
    }
    pmi.meet()?;
    let ready = |pmi: &mut Pmi<File>, node: u32| -> std::io::Result<GuestReady> {
        let text = pmi.get(&format!("pulc-keeper-{node}"))?;
        unhex(&text).and_then(|bytes| decode(&bytes).ok()).ok_or_else(|| other(format!("it kept {text:?}")))
    };
    if let Some(keeper) = own {
        let go = whole(pmi, &nodes, is_spread, ready)?;
        keeper.go(&go)?;
    }
    ready(pmi, node)
}

/// The whole job, the same on every node.
fn whole(
    pmi: &mut Pmi<File>,
    nodes: &[u32],
    is_spread: bool,
    ready: impl Fn(&mut Pmi<File>, u32) -> std::io::Result<GuestReady>,
) -> std::io::Result<GuestGo> {
    let mut known: Vec<u32> = Vec::new();
    let (mut all, mut tasks, mut secret) = (Vec::new(), Vec::new(), None);
    for (rank, node) in nodes.iter().enumerate() {
        let index = match known.iter().position(|other| other == node) {
            Some(index) => index,
            None => {
                let ready = ready(pmi, *node)?;
                // Of the first rank's keeper; all of them have drawn one.
                secret.get_or_insert(ready.secret);
                known.push(*node);
                all.push(BootNode { id: NodeId(ready.cookie), name: ready.node });
                known.len() - 1
            }
        };
        let mut rails = Vec::new();
        if is_spread {
            let text = pmi.get(&format!("pulc-rails-{rank}"))?;
            let addresses = unhex(&text).and_then(|bytes| decode(&bytes).ok());
            rails = addresses.ok_or_else(|| std::io::Error::other(format!("it kept {text:?}")))?;
        }
        tasks.push(BootTask { node: index as u32, rails });
    }
    let secret = secret.unwrap_or(JobSecret([0; 32]));
    let number = u64::from_le_bytes(secret.0[..8].try_into().expect("eight of thirty-two bytes"));
    // The number is shown; the secret is not.
    let job = JobId(number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 16);
    Ok(GuestGo { boot: Boot { version: PROTOCOL_VERSION, job, nodes: all, tasks }, secret })
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let pair = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    if text.len().is_multiple_of(2) { text.as_bytes().chunks_exact(2).map(pair).collect() } else { None }
}
