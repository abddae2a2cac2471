//! How messages, extents and numbers are written in a walk.

use crate::bytes::{Bytes, describe};
use ccpfs_region::{Region, Section, UNBOUNDED};
use ccpfs_types::{ClientId, Extent, GroupId, Part, Sn, Terms};
use ccpfs_wire::{Channel, GrantedLock, LockRef, Message, Status, WritePiece};

/// Lives of one client have numbers this far apart.
pub(crate) const LIFE: u64 = 1000;
/// The first life of every server.
pub(crate) const FIRST_EPOCH: u64 = 1;

/// A number of bytes: `8K`, `3M`, or as it is.
pub(crate) fn size(bytes: u64) -> String {
    const UNITS: [(u64, &str); 3] = [(1 << 30, "G"), (1 << 20, "M"), (1 << 10, "K")];
    if bytes == Extent::EOF {
        return String::from("EOF");
    }
    for (unit, letter) in UNITS {
        if bytes > 0 && bytes.is_multiple_of(unit) {
            return format!("{}{letter}", bytes / unit);
        }
    }
    bytes.to_string()
}

/// `0..8K`.
pub(crate) fn extent(extent: Extent) -> String {
    format!("{}..{}", size(extent.start()), size(extent.end()))
}

/// An extent as above; of others their extents or sections: `0+4K each 16K x 4`; those of a file with the stripe: `0+5K each 20K x .. on 1 of 4 x 1M`.
pub(crate) fn region(region: &Region) -> String {
    let section = |section: Section| {
        let levels = section.levels().iter().map(|level| match level.count() {
            UNBOUNDED => format!(" each {} x ..", size(level.stride())),
            count => format!(" each {} x {count}", size(level.stride())),
        });
        let levels: String = levels.collect();
        match section.as_extent() {
            Some(whole) => extent(whole),
            None => format!("{}+{}{levels}", size(section.offset()), size(section.length())),
        }
    };
    let sections = region.sections().map(section).collect::<Vec<_>>().join(" | ");
    match region.stripe() {
        Some((layout, stripe)) => {
            format!("{sections} on {stripe} of {} x {}", layout.stripe_count(), size(layout.stripe_bytes()))
        }
        None => sections,
    }
}

/// What is said about a request beside mode and range: mostly nothing.
fn terms(terms: Terms) -> String {
    let part = match terms.part {
        Part::Only => "",
        Part::First => "first",
        Part::Next => "next",
    };
    let group = if terms.group == GroupId::NONE { String::new() } else { terms.group.to_string() };
    let trying = if terms.try_only { "try" } else { "" };
    [trying, part, &group].into_iter().filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ")
}

/// `sn3`; of a later life of the server `sn3@2`.
pub(crate) fn sn(sn: Sn) -> String {
    let (epoch, number) = (sn.0 >> 40, sn.0 & ((1 << 40) - 1));
    if epoch == FIRST_EPOCH { format!("sn{number}") } else { format!("sn{number}@{epoch}") }
}

/// `c1`; its second life `c1'`.
pub(crate) fn client(client: ClientId) -> String {
    if client == ClientId::SERVER {
        return String::from("the server");
    }
    let (life, number) = (client.0 / LIFE, client.0 % LIFE);
    let primes = "'".repeat(usize::try_from(life).unwrap_or(0));
    format!("c{number}{primes}")
}

/// Errors of Linux by name.
const ERRORS: [(i32, &str); 12] = [
    (1, "EPERM"),
    (5, "EIO"),
    (11, "EAGAIN"),
    (16, "EBUSY"),
    (22, "EINVAL"),
    (27, "EFBIG"),
    (28, "ENOSPC"),
    (71, "EPROTO"),
    (104, "ECONNRESET"),
    (110, "ETIMEDOUT"),
    (116, "ESTALE"),
    (12, "ENOMEM"),
];

/// `ENOSPC`, or the number.
pub(crate) fn errno(errno: i32) -> String {
    ERRORS
        .iter()
        .find(|(number, _)| *number == errno)
        .map_or(errno.to_string(), |(_, name)| (*name).to_owned())
}

/// The error of that name.
pub(crate) fn errno_named(name: &str) -> Option<i32> {
    ERRORS.iter().find(|(_, known)| *known == name).map(|(number, _)| *number)
}

pub(crate) fn status(status: Status) -> String {
    match status {
        Status::Ok => String::from("ok"),
        Status::Errno(number) => errno(number),
    }
}

pub(crate) const fn channel(channel: Channel) -> &'static str {
    match channel {
        Channel::Control => "control",
        Channel::Callback => "callback",
        Channel::Bulk => "bulk",
    }
}

/// Words that are joined by spaces, empty ones left out.
fn words<const N: usize>(words: [String; N]) -> String {
    words.into_iter().filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ")
}

/// How messages are written: the number of the stripe is left out where a file has only one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Writer {
    pub(crate) stripes: u32,
}

impl Writer {
    /// `stripe2`, or nothing.
    pub(crate) fn stripe(self, stripe: u32) -> String {
        if self.stripes > 1 { format!("stripe{stripe}") } else { String::new() }
    }

    /// `stripe2 `, or nothing: in front of other words.
    pub(crate) fn stripe_words(self, stripe: u32) -> String {
        if self.stripes > 1 { format!("stripe{stripe} ") } else { String::new() }
    }

    /// `stripe2 0..8K`, or without the stripe.
    pub(crate) fn in_stripe(self, stripe: u32, bytes: Extent) -> String {
        format!("{}{}", self.stripe_words(stripe), extent(bytes))
    }

    /// The text without the long name of the file.
    pub(crate) fn without_file(self, text: &str) -> String {
        let file = format!("{}.", crate::client::FILE);
        if self.stripes > 1 {
            text.replace(&file, "stripe")
        } else {
            text.replace(&format!(" on {file}0"), "")
        }
    }

    /// What a message is, for those who have read it in full where it was sent.
    pub(crate) fn heading(self, message: &Message) -> String {
        let name = message.name().to_owned();
        match message {
            Message::Enqueue { request, .. }
            | Message::Grant { request, .. }
            | Message::Denied { request, .. }
            | Message::Write { request, .. }
            | Message::WriteReply { request, .. }
            | Message::Read { request, .. }
            | Message::ReadReply { request, .. }
            | Message::Truncate { request, .. }
            | Message::Map { request, .. }
            | Message::MapReply { request, .. }
            | Message::List { request, .. }
            | Message::ListReply { request, .. }
            | Message::Punch { request, .. }
            | Message::Sync { request, .. }
            | Message::Destroy { request, .. }
            | Message::Done { request, .. }
            | Message::Glimpse { request, .. }
            | Message::GlimpseReply { request, .. }
            | Message::Ping { request }
            | Message::Pong { request }
            | Message::Status { request }
            | Message::StatusReply { request, .. } => format!("{name} {request}"),
            Message::Revoke { resource, lock, .. }
            | Message::RevokeAck { resource, lock, .. }
            | Message::Narrow { resource, lock, .. }
            | Message::Convert { resource, lock, .. } => {
                format!("{name} {}{lock}", self.stripe_words(resource.stripe))
            }
            Message::Release { locks } => format!("{name} {}", self.locks(locks)),
            Message::GlimpseAsk { glimpse, .. } | Message::GlimpseTell { glimpse, .. } => {
                format!("{name} glimpse{glimpse}")
            }
            Message::Hello { .. }
            | Message::Welcome { .. }
            | Message::Refused { .. }
            | Message::Goodbye {} => name,
        }
    }

    fn granted(granted: &GrantedLock) -> String {
        let GrantedLock { lock, mode, region: covers, sn: number, state, replaces, early } = granted;
        let replaced = match replaces.as_slice() {
            [] => String::new(),
            locks => {
                format!("replaces {}", locks.iter().map(ToString::to_string).collect::<Vec<_>>().join(" "))
            }
        };
        words([
            format!("{lock} {mode} {} {} {state}", region(covers), sn(*number)),
            replaced,
            early.then(|| String::from("early")).unwrap_or_default(),
        ])
    }

    fn locks(self, locks: &[LockRef]) -> String {
        let name = |lock: &LockRef| words([self.stripe(lock.resource.stripe), lock.lock.to_string()]);
        locks.iter().map(name).collect::<Vec<_>>().join(", ")
    }

    fn pieces(self, pieces: &[WritePiece], bulk: Option<&Bytes>) -> String {
        let mut offset = 0;
        let mut texts = Vec::new();
        for piece in pieces {
            let bytes = Extent::with_length(offset, piece.extent.length());
            offset += piece.extent.length();
            let contents = match (bulk, bytes) {
                (Some(bulk), Some(bytes)) => format!("({})", describe(bulk, bytes, false)),
                (Some(_) | None, _) => String::new(),
            };
            texts.push(words([
                self.stripe(piece.resource.stripe),
                extent(piece.extent),
                sn(piece.sn),
                contents,
            ]));
        }
        texts.join(", ")
    }

    /// How many truncates a shard has taken: counted up from the same number as sequence numbers are, and used for striped
    /// files only.
    fn cuts(self, cuts: u64) -> String {
        if self.stripes > 1 { sn(Sn(cuts)).replacen("sn", "cuts ", 1) } else { String::new() }
    }

    /// The whole message in one line, with what its bulk holds.
    pub(crate) fn message(self, message: &Message, bulk: Option<&Bytes>) -> String {
        let name = message.name().to_owned();
        let of = |resource: &ccpfs_types::ResourceId| self.stripe(resource.stripe);
        match message {
            Message::Enqueue { request, resource, mode, required, desired, terms } => {
                let range = format!("{mode} {} want {}", region(required), region(desired));
                words([name, request.to_string(), of(resource), range, self::terms(*terms)])
            }
            Message::Grant { request, resource, granted } => {
                words([name, request.to_string(), of(resource), Writer::granted(granted)])
            }
            Message::Denied { request, resource, status: why, first_common: _ } => {
                words([name, request.to_string(), of(resource), status(*why)])
            }
            Message::Revoke { resource, lock, wanted, region: what } => {
                // To a holder of an extent, which goes as a whole, it does not matter what of it is wanted: mostly an extent, too.
                let what = if what.as_extent().is_some() { String::new() } else { region(what) };
                words([name, of(resource), format!("{lock} wanted {wanted}"), what])
            }
            Message::Narrow { resource, lock, taken } => {
                words([name, of(resource), format!("{lock} without {}", extent(*taken))])
            }
            Message::RevokeAck { resource, lock, mode } | Message::Convert { resource, lock, mode } => {
                words([name, of(resource), format!("{lock} {mode}")])
            }
            Message::Release { locks } => words([name, self.locks(locks)]),
            Message::GlimpseAsk { glimpse, resource } => {
                words([name, format!("glimpse{glimpse}"), of(resource)])
            }
            Message::GlimpseTell { glimpse, resource, end, modified_ns: _ } => {
                words([name, format!("glimpse{glimpse}"), of(resource), format!("end {}", size(*end))])
            }
            Message::Write { request, urgent, pieces, releases } => {
                let urgent = if *urgent { "urgent" } else { "" };
                let releases = match releases.as_slice() {
                    [] => String::new(),
                    locks => format!("releases {}", self.locks(locks)),
                };
                words([name, request.to_string(), urgent.to_owned(), self.pieces(pieces, bulk), releases])
            }
            Message::WriteReply { request, status: how } | Message::Done { request, status: how } => {
                words([name, request.to_string(), status(*how)])
            }
            Message::Read { request, resource, extent: wanted }
            | Message::Map { request, resource, extent: wanted } => {
                words([name, request.to_string(), of(resource), extent(*wanted)])
            }
            Message::ReadReply { request, status: how, stripe_bytes } => {
                let bytes = bulk.map(|bytes| format!("({})", describe(bytes, Extent::WHOLE, false)));
                let stripe = format!("stripe {}", size(*stripe_bytes));
                words([name, request.to_string(), status(*how), bytes.unwrap_or_default(), stripe])
            }
            Message::Truncate { request, resource, length, sn: number } => {
                let to = format!("to {} {}", size(*length), sn(*number));
                words([name, request.to_string(), of(resource), to])
            }
            Message::Punch { request, resource, extent: hole, sn: number } => {
                words([name, request.to_string(), of(resource), extent(*hole), sn(*number)])
            }
            Message::MapReply { request, status: how, data, known_to } => {
                let data: Vec<String> = data.iter().map(|part| extent(*part)).collect();
                let known = format!("known to {}", size(*known_to));
                words([name, request.to_string(), status(*how), data.join(" "), known])
            }
            Message::List { request, after, count_max } => {
                let after = after.as_ref().map(of).unwrap_or_default();
                words([name, request.to_string(), after, format!("at most {count_max}")])
            }
            Message::ListReply { request, status: how, stripes, more } => {
                let count = format!("{} stripes{}", stripes.len(), if *more { ", and more" } else { "" });
                words([name, request.to_string(), status(*how), count])
            }
            Message::Sync { request, resources } | Message::Destroy { request, resources } => {
                let stripes: Vec<String> = resources.iter().map(of).filter(|text| !text.is_empty()).collect();
                words([name, request.to_string(), stripes.join(" ")])
            }
            Message::Glimpse { request, resource } => words([name, request.to_string(), of(resource)]),
            Message::GlimpseReply { request, status: how, stripe_bytes, cuts, .. } => {
                let stripe = format!("stripe {}", size(*stripe_bytes));
                words([name, request.to_string(), status(*how), stripe, self.cuts(*cuts)])
            }
            Message::Ping { request } | Message::Pong { request } | Message::Status { request } => {
                words([name, request.to_string()])
            }
            Message::Hello { .. }
            | Message::Welcome { .. }
            | Message::Refused { .. }
            | Message::Goodbye {}
            | Message::StatusReply { .. } => name,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_in_the_largest_unit_that_divides_them() {
        assert_eq!([0, 10, 8192, 12_288, 1 << 20, 3 << 30].map(size), ["0", "10", "8K", "12K", "1M", "3G"]);
        assert_eq!(extent(Extent::to_eof(4096)), "4K..EOF");
    }

    #[test]
    fn lives_are_told_apart() {
        assert_eq!(client(ClientId(2)), "c2");
        assert_eq!(client(ClientId(LIFE + 2)), "c2'");
        assert_eq!([Sn::first_of_epoch(1), Sn::first_of_epoch(2).next()].map(sn), ["sn0", "sn1@2"]);
    }
}
