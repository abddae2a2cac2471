//! `ccpfs bench locks-rate`: how many lock requests one shard serves, and what a cached lock costs a client.

use super::environment::{ServerPlan, ServerSet, temporary};
use crate::failure::{Context, Failure, say};
use crate::sys;
use ccpfs_client::{Client, OpenOptions};
use ccpfs_config::ClientConfig;
use ccpfs_region::Region;
use ccpfs_transport::{Address, Connection, FrameSink, Wait, connect};
use ccpfs_types::{ClientId, Extent, FileId, LockMode, RequestId, ResourceId, Terms};
use ccpfs_wire::version::PROTOCOL_VERSION;
use ccpfs_wire::{Channel, LockRef, Message, decode_batch, encode_into};
use serde::Serialize;
use std::io::IoSliceMut;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How long an answer of the server may take.
const PATIENCE: Duration = Duration::from_secs(30);
/// Bytes that each lock covers.
const LOCK_BYTES: u64 = 4096;
/// Operations of one client in a row between two looks at the clock.
const OPERATIONS: u32 = 10_000;

/// Options of `ccpfs bench locks-rate`.
#[derive(Debug, clap::Args)]
pub(crate) struct LocksRateArguments {
    /// Connections that ask for locks at the same time.
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=1024))]
    connections: u32,
    /// Requests under way on each connection when pipelined.
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=1024))]
    depth: u32,
    /// Seconds of each measurement.
    #[arg(long, value_name = "S", default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=3600))]
    seconds: u64,
    /// Use a Unix socket instead of TCP.
    #[arg(long)]
    unix: bool,
    /// Write the results to this file as JSON.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// What was measured.
#[derive(Serialize)]
struct Rates {
    connections: u32,
    depth: u32,
    single_requests_per_second: f64,
    pipelined_requests_per_second: f64,
    cached_write_ns: f64,
    cached_read_ns: f64,
}

/// Measures and prints.
pub(crate) fn run(arguments: &LocksRateArguments) -> Result<(), Failure> {
    sys::catch_interrupts();
    let folder = temporary(None)?;
    let plan = ServerPlan {
        policy: "seqdlm",
        servers: 1,
        shards: 1,
        tcp: !arguments.unix,
        device_bandwidth: None,
        settings: &[],
    };
    let servers = ServerSet::start(folder.path(), &folder.path().join("data"), &plan)?;
    let address = &servers.config().servers[0];
    let single = server_rate(address, arguments, 1)?;
    let pipelined = server_rate(address, arguments, arguments.depth)?;
    let (cached_write_ns, cached_read_ns) = client_hits(servers.config())?;
    let network = if arguments.unix { "a Unix socket" } else { "TCP" };
    let (connections, depth) = (arguments.connections, arguments.depth);
    say(format!(
        "one shard over {network}, {connections} connections; each lock is requested, granted, released:"
    ));
    say(format!("  one request at a time:  {single:>10.0} lock requests/s"));
    say(format!("  {depth:>3} requests at a time: {pipelined:>10.0} lock requests/s"));
    say("one client, lock and page cached (system-call-free library calls of one byte, lock included):"
        .to_owned());
    say(format!("  write: {cached_write_ns:>6.0} ns\n  read:  {cached_read_ns:>6.0} ns"));
    if let Some(path) = &arguments.json {
        let rates = Rates {
            connections,
            depth,
            single_requests_per_second: single,
            pipelined_requests_per_second: pipelined,
            cached_write_ns,
            cached_read_ns,
        };
        let text = serde_json::to_string_pretty(&rates).expect("plain numbers");
        super::report::create_parent(path)?;
        std::fs::write(path, text + "\n").context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}

/// Lock requests per second over all connections, each with `depth` requests under way.
fn server_rate(address: &Address, arguments: &LocksRateArguments, depth: u32) -> Result<f64, Failure> {
    let mut askers = (0..arguments.connections)
        .map(|number| Asker::connect(address, number, depth))
        .collect::<Result<Vec<Asker>, Failure>>()?;
    let stop = AtomicBool::new(false);
    let start = Instant::now();
    let total: u64 = std::thread::scope(|scope| {
        let threads: Vec<_> = askers.iter_mut().map(|asker| scope.spawn(|| asker.ask_until(&stop))).collect();
        let duration = Duration::from_secs(arguments.seconds);
        while start.elapsed() < duration && !sys::interrupted() && threads.iter().all(|t| !t.is_finished()) {
            std::thread::sleep(Duration::from_millis(10));
        }
        stop.store(true, Ordering::Relaxed);
        let counts = threads.into_iter().map(|thread| thread.join().expect("does not panic"));
        counts.sum::<Result<u64, Failure>>()
    })?;
    let elapsed = start.elapsed().as_secs_f64();
    if sys::interrupted() { Err(Failure::interrupted()) } else { Ok(super::result::float(total) / elapsed) }
}

/// A client that only asks for locks.
struct Asker {
    control: Arc<dyn Connection>,
    callback: Arc<dyn Connection>,
    resource: ResourceId,
    depth: u32,
    next: u64,
}

/// Collects the messages of one frame.
#[derive(Default)]
struct Inbox {
    messages: Vec<Message>,
    malformed: bool,
}

impl FrameSink for Inbox {
    fn bulk_target(&mut self, _message: &[u8], _bulk_bytes: usize) -> Vec<IoSliceMut<'_>> {
        Vec::new()
    }

    fn frame(&mut self, message: &[u8], _bulk_bytes: usize) {
        for message in decode_batch(message) {
            match message {
                Ok(message) => self.messages.push(message),
                Err(_) => self.malformed = true,
            }
        }
    }
}

/// Sends messages in one frame.
pub(crate) fn send(link: &Arc<dyn Connection>, messages: &[Message]) -> Result<(), Failure> {
    let mut batch = Vec::new();
    for message in messages {
        encode_into(message, &mut batch);
    }
    link.send(&batch, &[]).context(|| "asking the server".to_owned())
}

/// Waits for a frame.
pub(crate) fn receive(link: &Arc<dyn Connection>) -> Result<Vec<Message>, Failure> {
    let mut inbox = Inbox::default();
    link.receive(Wait::For(PATIENCE), &mut inbox).context(|| "waiting for the server".to_owned())?;
    if inbox.malformed || inbox.messages.is_empty() {
        return Err(Failure::new("the server does not answer as it should"));
    }
    Ok(inbox.messages)
}

/// Takes in what is here already.
pub(crate) fn receive_ready(link: &Arc<dyn Connection>) -> Result<Vec<Message>, Failure> {
    let mut inbox = Inbox::default();
    link.receive_ready(&mut inbox).context(|| "listening to the server".to_owned())?;
    if inbox.malformed {
        return Err(Failure::new("the server does not answer as it should"));
    }
    Ok(inbox.messages)
}

/// Waits until there is something to take in on one of the connections.
pub(crate) fn wait_ready<'a>(links: impl Iterator<Item = &'a Arc<dyn Connection>>) -> Result<(), Failure> {
    let descriptors: Vec<i32> = links.map(|link| link.readiness()).collect();
    if sys::wait_readable_any(&descriptors, PATIENCE) {
        Ok(())
    } else {
        Err(Failure::new("the server does not answer"))
    }
}

/// Connects and introduces the client.
pub(crate) fn introduce(
    address: &Address,
    client: ClientId,
    channel: Channel,
) -> Result<Arc<dyn Connection>, Failure> {
    let link = connect(address, PATIENCE).context(|| "no connection".to_owned())?;
    let name = "locks-rate".to_owned();
    send(&link, &[Message::Hello { version: PROTOCOL_VERSION, client, channel, name }])?;
    let answer = receive(&link)?;
    match answer.first() {
        Some(Message::Welcome { .. }) => Ok(link),
        other => Err(Failure::new(format!("{address} does not welcome the client: {other:?}"))),
    }
}

impl Asker {
    fn connect(address: &Address, number: u32, depth: u32) -> Result<Asker, Failure> {
        let drawn = sys::monotonic_ns().wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let client = ClientId(drawn ^ u64::from(number) << 40);
        let mut file = [0; 16];
        file[..8].copy_from_slice(&client.0.to_le_bytes());
        Ok(Asker {
            control: introduce(address, client, Channel::Control)?,
            callback: introduce(address, client, Channel::Callback)?,
            resource: ResourceId { file: FileId(file), stripe: 0 },
            depth,
            next: 0,
        })
    }

    /// Requests and releases locks until `stop`; answers how many were granted.
    fn ask_until(&mut self, stop: &AtomicBool) -> Result<u64, Failure> {
        let first = self.next;
        while !stop.load(Ordering::Relaxed) {
            let requests: Vec<Message> = (0..self.depth).map(|_| self.request()).collect();
            send(&self.control, &requests)?;
            let mut locks = Vec::with_capacity(requests.len());
            while locks.len() < requests.len() {
                for message in receive(&self.control)? {
                    let Message::Grant { resource, granted, .. } = message else {
                        return Err(Failure::new(format!("no grant: {message:?}")));
                    };
                    locks.push(LockRef { resource, lock: granted.lock });
                }
            }
            send(&self.callback, &[Message::Release { locks }])?;
        }
        Ok(self.next - first)
    }

    /// Asks for bytes that were never asked for before, so that no request waits for another's release.
    fn request(&mut self) -> Message {
        let extent = Extent::with_length(self.next * LOCK_BYTES, LOCK_BYTES).expect("not empty");
        self.next += 1;
        Message::Enqueue {
            request: RequestId(self.next),
            resource: self.resource,
            mode: LockMode::Nbw,
            required: Region::from(extent),
            desired: Region::from(extent),
            terms: Terms::WAIT,
        }
    }
}

/// Nanoseconds of a one-byte write and read whose lock and page are cached: the fastest of several series.
fn client_hits(config: &ClientConfig) -> Result<(f64, f64), Failure> {
    let failed = || "measuring cached locks".to_owned();
    let client = Client::start(config.clone()).context(failed)?;
    let path = config.namespace.join("hits");
    let options =
        OpenOptions { read: true, write: true, create: true, mode: 0o600, ..OpenOptions::default() };
    let file = client.open(&path, &options).context(failed)?;
    let (mut write_ns, mut read_ns) = (f64::INFINITY, f64::INFINITY);
    for _ in 0..20 {
        // A read first would take a read lock that the write then has to upgrade.
        file.write_at(&[1], 0).context(failed)?;
        write_ns = write_ns.min(fastest(|| file.write_at(&[2], 0).map(|_| ()).context(failed))?);
        file.read_at(&mut [0], 0).context(failed)?;
        read_ns = read_ns.min(fastest(|| file.read_at(&mut [0], 0).map(|_| ()).context(failed))?);
    }
    file.close().context(failed)?;
    client.unlink(&path).context(failed)?;
    Ok((write_ns, read_ns))
}

/// Nanoseconds of one call in a series.
fn fastest(mut call: impl FnMut() -> Result<(), Failure>) -> Result<f64, Failure> {
    let start = Instant::now();
    for _ in 0..OPERATIONS {
        call()?;
    }
    Ok(start.elapsed().as_secs_f64() * 1e9 / f64::from(OPERATIONS))
}
