//! Who may ask for what. A daemon of one user serves that user and root. One that serves several (`pulc up --system`) learns from the kernel who
//! calls: everybody has jobs of their own, and sees and stops those only; what concerns all is for operators. Part of the job room.

use super::connection::ClientId;
use super::origin::CODE_STOPPED;
use super::{Room, own_user};
use pulc_base::{JobId, NodeId, log};
use pulc_control::owner::Owner;
use pulc_control::queue::QueueRequest;
use pulc_control::{LaunchSpec, Reply, Request, RunSpec, StopKind};
use pulc_hal::os::account;
use pulc_helper::{Line, Permits};
use pulc_sched::Cause;
use std::path::PathBuf;
use std::sync::Arc;
use tokio::net::UnixStream;

/// Clients of one user at once, where a daemon has several users.
pub(super) const CLIENTS_OF_ONE_MAX: usize = 64;

/// What a daemon for several users has that others have not.
#[derive(Clone)]
pub struct System {
    pub helper: Arc<Line>,
    /// Root's file, which names the operators.
    pub users: PathBuf,
    /// With which what keepers bring back is known for this node's own.
    pub seal: [u8; 32],
}

/// Who calls.
#[derive(Clone, Debug)]
pub struct Caller {
    pub uid: u32,
    /// As this machine knows it; none in a daemon of one user, which has no need of it.
    name: Option<String>,
    groups: Vec<u32>,
    /// May see and change what is others'.
    pub is_operator: bool,
}

impl Caller {
    /// The one user that a daemon has.
    pub fn owner() -> Caller {
        Caller { uid: own_user(), name: None, groups: Vec::new(), is_operator: true }
    }

    /// The one at the other end.
    ///
    /// # Errors
    /// One line.
    ///
    /// # Blocking
    /// As long as the system's user database takes.
    pub fn at_the_other_end(stream: &UnixStream, system: &System) -> Result<Caller, String> {
        let peer = stream.peer_cred().map_err(|error| format!("the kernel does not say who calls: {error}"))?;
        let mut groups = account::groups_of_peer(stream)
            .map_err(|error| format!("the kernel does not say which groups the caller is in: {error}"))?;
        groups.push(peer.gid());
        groups.sort_unstable();
        groups.dedup();
        let uid = peer.uid();
        let found = account::by_number(uid).map_err(|error| format!("user {uid} cannot be looked up: {error}"))?;
        let permits = Permits::read(&system.users).unwrap_or_else(|why| {
            log!(Error, "psid", "{why}; nobody but root is an operator");
            Permits::default()
        });
        let is_operator = permits.is_operator(uid, &groups);
        Ok(Caller { uid, name: found.map(|account| account.name), groups, is_operator })
    }

    /// Whose jobs the caller may see and stop; 0 for everybody's.
    pub(super) fn sees(&self) -> u32 {
        if self.is_operator { 0 } else { self.uid }
    }

    /// Whether that is one of this user's.
    pub(super) fn may_touch(sees: u32, user: u32) -> bool {
        sees == 0 || sees == user
    }
}

impl Room {
    pub(super) fn serves_several(&self) -> bool {
        self.config.system.is_some()
    }

    /// Who can do what only root can.
    pub(super) fn helper(&self) -> Option<Arc<Line>> {
        self.config.system.as_ref().map(|system| system.helper.clone())
    }

    pub(super) fn caller(&self, client: ClientId) -> Caller {
        self.clients.get(&client).map_or_else(Caller::owner, |client| client.caller.clone())
    }

    /// Whether this client may ask that; it is told and logged if not.
    pub(super) fn may_ask(&self, id: ClientId, request: &Request) -> bool {
        if !self.serves_several() {
            return true;
        }
        let caller = self.caller(id);
        let why = match request {
            Request::Token | Request::Down { .. } | Request::Restart if !caller.is_operator => "only operators may",
            Request::Queue(request) if !caller.is_operator && concerns_all(request) => "only operators may",
            Request::Run(_) if caller.uid == 0 => ROOT,
            Request::Queue(request) if caller.uid == 0 && matches!(**request, QueueRequest::Submit(_)) => ROOT,
            Request::Run(spec) if !self.is_own_allocation(spec, caller.uid) => "the slots are another user's",
            _ => return true,
        };
        log!(Warn, "psid", "user {} was refused {}: {why}", caller.uid, what(request));
        let why = format!("{}: {why}", what(request));
        self.reply(id, Reply::Refused { why });
        false
    }

    /// `sees`: whose jobs the asker may stop; 0: everybody's.
    pub(super) fn kill(&mut self, id: JobId, kind: StopKind, asked_at: NodeId, sees: u32) -> bool {
        let Some(user) = self.origin.get(&id).map(|job| job.user) else { return false };
        if !Caller::may_touch(sees, user) {
            log!(Warn, "psid", "user {sees} was refused to stop job {id}, which is user {user}'s");
            return false;
        }
        let name = self.config.mesh.nodes().into_iter().find(|node| node.id == asked_at).map(|node| node.name);
        self.set_cause(id, Cause::Killed);
        let text =
            format!("job {id} was stopped by `pulc kill` on node {}", name.unwrap_or_else(|| asked_at.to_string()));
        self.end_job(id, kind, CODE_STOPPED, &text);
        true
    }

    /// A step runs in the slots of its user's own job.
    fn is_own_allocation(&self, spec: &RunSpec, uid: u32) -> bool {
        let job = spec.allocation.and_then(|job| self.origin.get(&job));
        job.is_none_or(|job| job.user == uid)
    }

    /// Writes into a launch whose it is; only where there are several users, and never what a client says.
    ///
    /// # Errors
    /// When this machine does not know the caller.
    pub(super) fn own_launch(&self, id: ClientId, launch: &mut LaunchSpec) -> Result<u32, String> {
        Owner::take_out(launch);
        if !self.serves_several() {
            return Ok(own_user());
        }
        let Caller { uid, name, groups, .. } = self.caller(id);
        let Some(name) = name else { return Err(format!("user {uid} has no name on this machine, so nothing is run")) };
        Owner { uid, name, groups }.put(launch);
        Ok(uid)
    }
}

const ROOT: &str = "nothing is run as root where a daemon serves several users; ask as one of them";

fn concerns_all(request: &QueueRequest) -> bool {
    use QueueRequest::{Config, Node, Reserve, Unreserve};
    match request {
        Node { .. } | Reserve(_) | Unreserve(_) => true,
        Config(settings) => !settings.is_empty(),
        _ => false,
    }
}

fn what(request: &Request) -> &'static str {
    match request {
        Request::Token => "a token",
        Request::Down { .. } => "taking the daemon down",
        Request::Restart => "starting the daemon again",
        Request::Run(_) => "running a job",
        Request::Queue(request) => match **request {
            QueueRequest::Submit(_) => "submitting a job",
            QueueRequest::Node { .. } => "changing a node",
            QueueRequest::Reserve(_) | QueueRequest::Unreserve(_) => "changing reservations",
            _ => "changing the cluster's settings",
        },
        _ => "that",
    }
}

/// What a keeper keeps for a later daemon, so that nobody else can have written it.
pub(super) fn sealed(memo: Vec<u8>, job: JobId, system: Option<&System>) -> Vec<u8> {
    match system {
        Some(system) => {
            let mark = mark(&memo, job, system);
            [mark.as_bytes(), &memo[..]].concat()
        }
        None => memo,
    }
}

/// What was sealed, if it was sealed here.
pub(super) fn unsealed<'a>(memo: &'a [u8], job: JobId, system: Option<&System>) -> Option<&'a [u8]> {
    let Some(system) = system else { return Some(memo) };
    let (theirs, memo) = memo.split_first_chunk::<32>()?;
    // The comparison takes the same time for all.
    (mark(memo, job, system) == *theirs).then_some(memo)
}

/// Of this job and no other.
fn mark(memo: &[u8], job: JobId, system: &System) -> blake3::Hash {
    blake3::Hasher::new_keyed(&system.seal).update(&job.0.to_le_bytes()).update(memo).finalize()
}

#[cfg(test)]
mod tests {
    use super::*;
    use pulc_hal::os::fdpass::Seqpacket;

    #[test]
    fn what_was_not_sealed_here_is_not_believed() {
        let (line, _other) = Seqpacket::pair().unwrap();
        let helper = Arc::new(Line::new(line.into()).unwrap());
        let mut system = System { helper, users: PathBuf::new(), seal: [7; 32] };
        let memo = sealed(b"order".to_vec(), JobId(5), Some(&system));
        assert_eq!(unsealed(&memo, JobId(5), Some(&system)), Some(&b"order"[..]));
        for at in 0..memo.len() {
            let mut bent = memo.clone();
            bent[at] ^= 1;
            assert_eq!(unsealed(&bent, JobId(5), Some(&system)), None, "byte {at}");
        }
        assert_eq!(unsealed(&memo, JobId(6), Some(&system)), None);
        assert_eq!(unsealed(b"short", JobId(5), Some(&system)), None);
        system.seal = [8; 32];
        assert_eq!(unsealed(&memo, JobId(5), Some(&system)), None);
        assert_eq!(unsealed(&sealed(b"order".to_vec(), JobId(5), None), JobId(6), None), Some(&b"order"[..]));
    }

    #[test]
    fn everybody_sees_their_own_and_operators_see_all() {
        assert!(
            Caller::may_touch(0, 7) && Caller::may_touch(7, 7) && !Caller::may_touch(7, 8) && !Caller::may_touch(7, 0)
        );
        let user = Caller { uid: 7, name: None, groups: Vec::new(), is_operator: false };
        assert_eq!((user.sees(), Caller { is_operator: true, ..user }.sees()), (7, 0));
    }
}
