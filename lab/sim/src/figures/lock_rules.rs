//! How many locks per second the rules alone take and release: the product's tables in this process, with neither network nor threads.

use super::taking::{Kind, Request, cut};
use ccpfs_dlm::server::{Effect, Input, Origin, Resource};
use ccpfs_region::Region;
use ccpfs_types::{ClientId, Layout, LockId, LockMode, Policy, RequestId, Sn, Terms};
use std::time::{Duration, Instant};

/// Locks per second and server.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Rates {
    /// Taking: what the tables do.
    pub acquire: f64,
    /// Taking, with what the clients do to cut their region into requests.
    pub acquire_with_cut: f64,
    /// Releasing.
    pub release: f64,
    /// Requests that all clients made, once.
    pub requests: u64,
}

/// Time that some series took.
#[derive(Clone, Copy, Debug, Default)]
struct Times {
    cutting: Duration,
    taking: Duration,
    releasing: Duration,
    locks: u64,
}

/// Lets one client after the other take the locks of its region, then one after the other release them, until at least `least` has passed.
/// Regions must have no bytes in common.
///
/// # Errors
///
/// If a lock was not granted at once.
pub fn rates(
    regions: &[Region],
    layout: &Layout,
    kind: Kind,
    policy: Policy,
    least: Duration,
) -> Result<Rates, String> {
    let mut times = Times::default();
    let mut requests = 0;
    let start = Instant::now();
    while times.locks == 0 || start.elapsed() < least {
        requests = series(regions, layout, kind, policy, &mut times)?;
    }
    let servers = f64::from(layout.stripe_count());
    let rate = |time: Duration| times.locks as f64 / time.as_secs_f64().max(1e-9);
    // The tables of different servers work side by side: each has only its part of the time.
    let acquire = rate(times.taking);
    let with_cut =
        times.locks as f64 / (times.taking.as_secs_f64() + times.cutting.as_secs_f64() * servers).max(1e-9);
    Ok(Rates { acquire, acquire_with_cut: with_cut, release: rate(times.releasing), requests })
}

/// Everybody once; answers how many requests there were.
fn series(
    regions: &[Region],
    layout: &Layout,
    kind: Kind,
    policy: Policy,
    times: &mut Times,
) -> Result<u64, String> {
    let origin = Origin { sn: Sn(1), lock: LockId(1) };
    let mut tables: Vec<Resource> =
        (0..layout.stripe_count()).map(|_| Resource::new(policy, origin)).collect();
    let before = Instant::now();
    let requests: Vec<Vec<Request>> = regions.iter().map(|region| cut(region, layout, kind)).collect();
    // Clients cut side by side, each its own.
    times.cutting += before.elapsed() / u32::try_from(regions.len().max(1)).unwrap_or(u32::MAX);
    let inputs = inputs(&requests);
    let count = inputs.len() as u64;
    let mut held = Vec::with_capacity(inputs.len());
    let mut effects = Vec::new();
    let before = Instant::now();
    for (client, stripe, input) in inputs {
        tables[stripe].step(input, &mut effects);
        let Some(Effect::Grant { granted, .. }) = effects.pop() else {
            return Err(format!("client {client} was not granted a lock of stripe {stripe}"));
        };
        effects.clear();
        held.push((client, stripe, granted.lock));
    }
    times.taking += before.elapsed();
    let before = Instant::now();
    for (client, stripe, lock) in held {
        tables[stripe].step(Input::Release { from: ClientId(client), lock }, &mut effects);
        effects.clear();
    }
    times.releasing += before.elapsed();
    match tables.iter().find(|table| !table.is_idle()) {
        Some(_) => Err("a lock was not released".to_owned()),
        None => {
            times.locks += regions.iter().map(Region::piece_count).sum::<u64>();
            Ok(count)
        }
    }
}

/// The requests of all clients as the tables take them, client after client.
fn inputs(requests: &[Vec<Request>]) -> Vec<(u64, usize, Input)> {
    let mut inputs = Vec::new();
    for (client, requests) in (1..).zip(requests) {
        for (number, request) in (0..).zip(requests) {
            let input = Input::Enqueue {
                from: ClientId(client),
                request: RequestId(number),
                mode: LockMode::Pw,
                required: request.region.clone(),
                desired: request.region.clone(),
                terms: Terms { part: request.part, ..Terms::TRY },
            };
            inputs.push((client, request.stripe as usize, input));
        }
    }
    inputs
}

#[cfg(test)]
mod tests {
    use super::*;
    use ccpfs_region::Section;

    #[test]
    fn all_kinds_take_and_release_all_locks() {
        let layout = Layout::new(2, 65_536).expect("a layout");
        let region = |client: u64| Section::new(client * 64_000, 1, &[(64, 1000)]).expect("a section").into();
        let regions: Vec<Region> = (0..3).map(region).collect();
        for (kind, requests) in [(Kind::Posix, 3000), (Kind::Datatype, 5)] {
            let policy = "datatype".parse().expect("a policy");
            let rates = rates(&regions, &layout, kind, policy, Duration::ZERO).expect("nobody is in the way");
            assert!(rates.acquire > 0.0 && rates.release > 0.0 && rates.acquire_with_cut <= rates.acquire);
            assert_eq!(rates.requests, requests, "{kind:?}");
        }
        let same = vec![regions[0].clone(), regions[0].clone()];
        let refused = rates(&same, &layout, Kind::List, Policy::BASIC, Duration::ZERO);
        assert!(refused.is_err_and(|text| text.contains("client 2")));
    }
}
