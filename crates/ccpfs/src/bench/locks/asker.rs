//! A client that only asks for locks: connections to every server, and the protocols of paper 001 over them.

use crate::bench::locks_rate::{introduce, receive, receive_ready, send};
use crate::failure::Failure;
use crate::sys;
use ccpfs_sim::figures::taking::{Protocol, Request, Round, Taking};
use ccpfs_transport::{Address, Connection};
use ccpfs_types::{ClientId, FileId, LockId, LockMode, RequestId, ResourceId, Terms};
use ccpfs_wire::{Channel, LockRef, Message, Status};
use std::collections::VecDeque;
use std::sync::Arc;

/// Requests that are under way at each server.
const UNDER_WAY_MAX: usize = 256;
/// Locks that one message releases.
const RELEASES_MAX: usize = 1024;

/// EAGAIN of Linux: somebody else has it.
const EAGAIN: i32 = 11;

/// One client.
pub(super) struct Asker {
    file: FileId,
    control: Vec<Arc<dyn Connection>>,
    callback: Vec<Arc<dyn Connection>>,
    requests: Vec<Request>,
    held: Vec<Option<LockId>>,
    /// Number of the next question, and of the request that had the first number of this turn.
    next: u64,
    /// Messages that asked for locks.
    pub(super) asked: u64,
}

/// What came of one request.
enum Answer {
    Granted(LockId),
    InTheWay,
}

impl Asker {
    /// Connects to all servers. Clients with the same `file` compete.
    pub(super) fn connect(addresses: &[Address], number: u32, file: u64) -> Result<Asker, Failure> {
        let drawn = sys::monotonic_ns().wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let client = ClientId(drawn ^ u64::from(number) << 40);
        let mut id = [0; 16];
        id[..8].copy_from_slice(&file.to_le_bytes());
        id[8] = 1;
        let links = |channel: Channel| {
            addresses.iter().map(|address| introduce(address, client, channel)).collect::<Result<Vec<_>, _>>()
        };
        Ok(Asker {
            file: FileId(id),
            control: links(Channel::Control)?,
            callback: links(Channel::Callback)?,
            requests: Vec::new(),
            held: Vec::new(),
            next: 0,
            asked: 0,
        })
    }

    fn resource(&self, number: usize) -> ResourceId {
        ResourceId { file: self.file, stripe: self.requests[number].stripe }
    }

    fn server(&self, number: usize) -> usize {
        usize::try_from(self.requests[number].stripe).expect("32 bits fit")
    }

    /// Takes all locks.
    pub(super) fn acquire(&mut self, requests: Vec<Request>, protocol: Protocol) -> Result<(), Failure> {
        self.held = vec![None; requests.len()];
        self.requests = requests;
        let mut taking = Taking::new(protocol, self.requests.len());
        while let Some(round) = taking.round() {
            self.drain()?;
            let missing = match round {
                Round::Try { from } => {
                    let missing = self.try_from(from)?;
                    self.release_from(missing)?;
                    missing
                }
                Round::Wait { number } => {
                    self.ask(&[number], false)?;
                    let answer = self.answers(self.server(number), 1)?;
                    match answer[..] {
                        [(_, Answer::Granted(lock))] => self.held[number] = Some(lock),
                        _ => return Err(Failure::new("a lock that was waited for was refused")),
                    }
                    number + 1
                }
            };
            taking.settle(missing);
            if sys::interrupted() {
                return Err(Failure::interrupted());
            }
        }
        Ok(())
    }

    /// Asks for all from `from` on without waiting for others; answers the first that somebody else has.
    fn try_from(&mut self, from: usize) -> Result<usize, Failure> {
        let mut queues: Vec<VecDeque<usize>> = vec![VecDeque::new(); self.control.len()];
        for number in from..self.requests.len() {
            queues[self.server(number)].push_back(number);
        }
        let mut missing = self.requests.len();
        while queues.iter().any(|queue| !queue.is_empty()) {
            let mut under_way = vec![0; queues.len()];
            for (server, queue) in queues.iter_mut().enumerate() {
                let batch: Vec<usize> = queue.drain(..queue.len().min(UNDER_WAY_MAX)).collect();
                under_way[server] = batch.len();
                self.ask(&batch, true)?;
            }
            for (server, count) in under_way.into_iter().enumerate() {
                for (number, answer) in self.answers(server, count)? {
                    match answer {
                        Answer::Granted(lock) => self.held[number] = Some(lock),
                        Answer::InTheWay => missing = missing.min(number),
                    }
                }
            }
            queues.iter_mut().for_each(|queue| queue.retain(|number| *number < missing));
        }
        Ok(missing)
    }

    /// Sends requests to one server.
    fn ask(&mut self, numbers: &[usize], try_only: bool) -> Result<(), Failure> {
        let Some(first) = numbers.first() else { return Ok(()) };
        let message = |number: &usize| {
            let request = &self.requests[*number];
            Message::Enqueue {
                request: RequestId(u64::try_from(*number).expect("below 2^64")),
                resource: self.resource(*number),
                mode: LockMode::Pw,
                required: request.region.clone(),
                desired: request.region.clone(),
                terms: Terms { try_only, part: request.part, ..Terms::WAIT },
            }
        };
        let messages: Vec<Message> = numbers.iter().map(message).collect();
        self.asked += u64::try_from(messages.len()).expect("below 2^64");
        send(&self.control[self.server(*first)], &messages)
    }

    /// Waits for so many answers of one server.
    fn answers(&self, server: usize, count: usize) -> Result<Vec<(usize, Answer)>, Failure> {
        let mut answers = Vec::with_capacity(count);
        while answers.len() < count {
            for message in receive(&self.control[server])? {
                let (request, answer) = if let Message::Grant { request, granted, .. } = message {
                    (request, Answer::Granted(granted.lock))
                } else if let Message::Denied { request, status: Status::Errno(EAGAIN), .. } = message {
                    (request, Answer::InTheWay)
                } else {
                    return Err(Failure::new(format!("no answer to a request for a lock: {message:?}")));
                };
                answers.push((usize::try_from(request.0).expect("it was a number of ours"), answer));
            }
        }
        Ok(answers)
    }

    /// Takes in what servers want back: locks are given back when all were held, and not before.
    fn drain(&self) -> Result<(), Failure> {
        self.callback.iter().try_for_each(receive_ready)
    }

    /// Releases what is held from number `from` on, and waits until servers have taken it back.
    pub(super) fn release_from(&mut self, from: usize) -> Result<(), Failure> {
        let mut locks: Vec<Vec<LockRef>> = vec![Vec::new(); self.callback.len()];
        for number in from..self.requests.len() {
            if let Some(lock) = self.held[number].take() {
                locks[self.server(number)].push(LockRef { resource: self.resource(number), lock });
            }
        }
        self.next += 1;
        let question = RequestId(self.next);
        for (link, locks) in self.callback.iter().zip(&locks).filter(|(_, locks)| !locks.is_empty()) {
            for chunk in locks.chunks(RELEASES_MAX) {
                send(link, &[Message::Release { locks: chunk.to_vec() }])?;
            }
            send(link, &[Message::Ping { request: question }])?;
        }
        for (link, _) in self.callback.iter().zip(&locks).filter(|(_, locks)| !locks.is_empty()) {
            let is_answer = |message: &Message| *message == Message::Pong { request: question };
            while !receive(link)?.iter().any(is_answer) {}
        }
        Ok(())
    }

    /// Releases everything.
    pub(super) fn release(&mut self) -> Result<(), Failure> {
        self.release_from(0)
    }
}
