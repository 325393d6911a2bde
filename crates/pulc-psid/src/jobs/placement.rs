//! Which nodes a job runs on and how its ranks are dealt: in blocks, the local node first. Pure; the launcher calls it.

use super::message::OrderNode;
use pulc_control::{Host, NodeInfo, NodeState};

/// Deals `ranks` ranks. `nodes` are all known nodes with the local one first; `wanted` the number of nodes asked for, else
/// as many as have cores for all ranks.
///
/// # Errors
/// One line for the user.
pub fn place(nodes: &[NodeInfo], ranks: u32, wanted: Option<u32>, hosts: &[Host]) -> Result<Vec<OrderNode>, String> {
    if ranks == 0 {
        return Err("a job needs at least one rank; use -n 1 or more".to_owned());
    }
    let up: Vec<&NodeInfo> = nodes.iter().filter(|node| node.state == NodeState::Up).collect();
    if !hosts.is_empty() {
        return by_name(&up, ranks, hosts);
    }
    match wanted {
        None => Ok(by_cores(&up, ranks)),
        Some(0) => Err("a job needs at least one node; use --nodes 1 or more".to_owned()),
        Some(wanted) if wanted > ranks => {
            Err(format!("{wanted} nodes asked for, but the job has only {ranks} ranks; use -n {wanted} or more"))
        }
        Some(wanted) if wanted as usize > up.len() => {
            Err(format!("{wanted} nodes asked for, but only {} up; see `pulc nodes`", are(up.len())))
        }
        Some(wanted) => Ok(evenly(&up[..wanted as usize], ranks)),
    }
}

/// Where it was asked for: in the order of the names, each with its own number of ranks or an even share of the rest.
fn by_name(up: &[&NodeInfo], ranks: u32, hosts: &[Host]) -> Result<Vec<OrderNode>, String> {
    let is_here = |name: &str| ["localhost", "127.0.0.1", "::1"].contains(&name);
    let named = |host: &Host| {
        up.iter()
            .find(|info| info.name == host.name || info.me && is_here(&host.name))
            .copied()
            .ok_or_else(|| format!("no node {:?} is up; `pulc nodes` shows those that are", host.name))
    };
    let mut found: Vec<(&NodeInfo, Option<u32>)> = Vec::new();
    for host in hosts {
        let info = named(host)?;
        match found.iter_mut().find(|(known, _)| known.id == info.id) {
            Some((_, count)) => *count = count.zip(host.ranks).map(|(one, other)| one + other),
            None => found.push((info, host.ranks)),
        }
    }
    let (mut left, mut placed) = (ranks, Vec::new());
    for (index, (info, count)) in found.iter().enumerate() {
        let share = left.div_ceil((found.len() - index) as u32);
        let here = count.unwrap_or(share).min(left);
        if here > 0 {
            placed.push(node(info, here));
        }
        left -= here;
    }
    if left > 0 {
        return Err(format!(
            "{ranks} ranks asked for, but the nodes named take {left} fewer; name more, or more ranks there"
        ));
    }
    Ok(placed)
}

fn are(count: usize) -> String {
    if count == 1 { "1 is".to_owned() } else { format!("{count} are") }
}

fn node(info: &NodeInfo, ranks: u32) -> OrderNode {
    OrderNode { id: info.id, name: info.name.clone(), ranks }
}

/// Fills node after node; when there are more ranks than cores everywhere, deals all of them evenly.
fn by_cores(up: &[&NodeInfo], ranks: u32) -> Vec<OrderNode> {
    let cores: u64 = up.iter().map(|node| u64::from(node.cores.max(1))).sum();
    if cores < ranks.into() {
        return evenly(up, ranks);
    }
    let mut left = ranks;
    let mut placed = Vec::new();
    for info in up {
        let here = left.min(info.cores.max(1));
        if here > 0 {
            placed.push(node(info, here));
        }
        left -= here;
    }
    placed
}

fn evenly(up: &[&NodeInfo], ranks: u32) -> Vec<OrderNode> {
    let count = (up.len() as u32).min(ranks);
    (0..count).zip(up).map(|(index, info)| node(info, ranks / count + u32::from(index < ranks % count))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use pulc_base::NodeId;

    fn nodes(cores: &[u32]) -> Vec<NodeInfo> {
        (0..)
            .zip(cores)
            .map(|(index, cores)| NodeInfo {
                id: NodeId([index; 16]),
                name: format!("n{index}"),
                addresses: Vec::new(),
                state: NodeState::Up,
                me: index == 0,
                cores: *cores,
                load_milli: 0,
                version: 1,
            })
            .collect()
    }

    fn dealt(nodes: &[NodeInfo], ranks: u32, wanted: Option<u32>) -> Vec<u32> {
        place(nodes, ranks, wanted, &[]).unwrap().iter().map(|node| node.ranks).collect()
    }

    #[test]
    fn ranks_fill_cores_first_and_are_spread_evenly_when_there_are_too_many() {
        assert_eq!(dealt(&nodes(&[2, 4]), 2, None), [2]);
        assert_eq!(dealt(&nodes(&[2, 4]), 5, None), [2, 3]);
        assert_eq!(dealt(&nodes(&[2, 4]), 8, None), [4, 4]);
        assert_eq!(dealt(&nodes(&[2]), 64, None), [64]);
    }

    #[test]
    fn asked_for_nodes_get_equal_blocks() {
        assert_eq!(dealt(&nodes(&[2, 2, 2]), 8, Some(3)), [3, 3, 2]);
        assert!(place(&nodes(&[2]), 8, Some(3), &[]).unwrap_err().contains("only 1 is up"));
        assert!(place(&nodes(&[2, 2]), 1, Some(2), &[]).unwrap_err().contains("only 1 ranks"));
        assert!(place(&nodes(&[2]), 0, None, &[]).is_err());
    }

    #[test]
    fn nodes_that_are_not_up_get_nothing() {
        let mut nodes = nodes(&[2, 2, 2]);
        nodes[1].state = NodeState::Torpid;
        let placed = place(&nodes, 4, Some(2), &[]).unwrap();
        assert_eq!(placed[1].name, "n2");
    }

    #[test]
    fn nodes_by_name_get_what_was_said_and_the_rest_is_shared() {
        let host = |name: &str, ranks| Host { name: name.to_owned(), ranks };
        let dealt = |ranks, hosts: &[Host]| -> Vec<(String, u32)> {
            place(&nodes(&[2, 2, 2]), ranks, None, hosts)
                .unwrap()
                .into_iter()
                .map(|node| (node.name, node.ranks))
                .collect()
        };
        assert_eq!(dealt(5, &[host("n2", None), host("n0", None)]), [("n2".into(), 3), ("n0".into(), 2)]);
        assert_eq!(dealt(5, &[host("n1", Some(4)), host("localhost", None)]), [("n1".into(), 4), ("n0".into(), 1)]);
        let refused = |hosts: &[Host]| place(&nodes(&[2, 2]), 4, None, hosts).unwrap_err();
        assert!(refused(&[host("n7", None)]).contains("no node \"n7\" is up"));
        assert!(refused(&[host("n1", Some(3))]).contains("1 fewer"));
    }
}
