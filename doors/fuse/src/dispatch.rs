//! From a request to the operation that carries it out, and back.

use crate::abi::{
    BatchForgetIn, ForgetIn, ForgetOne, GetattrIn, GetxattrIn, GetxattrOut, LinkIn, LkIn, LseekOut, ReadIn,
    Rename2In, RenameIn, SetxattrIn, WriteIn, WriteOut, opcode,
};
use crate::exchange::{Errno, Exchange, Outcome};
use crate::mount::Mount;
use std::ffi::CStr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use zerocopy::FromBytes;

/// Carries out a request.
pub(crate) fn serve(mount: &Mount, exchange: &mut Exchange<'_>) -> Outcome {
    let mut answered = catch_unwind(AssertUnwindSafe(|| carry_out(mount, exchange)));
    let only_looks = matches!(exchange.header.opcode, opcode::LOOKUP | opcode::OPEN | opcode::OPENDIR);
    if only_looks && matches!(answered, Ok(Err(libc::EMFILE | libc::ENFILE))) {
        mount.wait_for_descriptors();
        answered = catch_unwind(AssertUnwindSafe(|| carry_out(mount, exchange)));
    }
    match answered {
        Ok(Ok(outcome)) => outcome,
        Ok(Err(errno)) => Outcome::Error(errno),
        Err(_) => {
            tracing::error!("operation {} failed by an error of this program", exchange.header.opcode);
            Outcome::Error(libc::EIO)
        }
    }
}

/// Whether an operation changes contents, or begins what may.
fn changes(operation: u32) -> bool {
    matches!(
        operation,
        opcode::WRITE
            | opcode::SETATTR
            | opcode::FALLOCATE
            | opcode::OPEN
            | opcode::CREATE
            | opcode::TMPFILE
            | opcode::UNLINK
            | opcode::RENAME
            | opcode::RENAME2
    )
}

/// What was done has no result but that it was done.
fn done(result: Result<(), Errno>) -> Result<Outcome, Errno> {
    result.map(|()| Outcome::Answer(0))
}

fn carry_out(mount: &Mount, exchange: &mut Exchange<'_>) -> Result<Outcome, Errno> {
    let header = exchange.header;
    if mount.is_closing() && changes(header.opcode) {
        return Err(libc::ENOTCONN);
    }
    match header.opcode {
        opcode::READ => read(mount, exchange),
        opcode::WRITE => write(mount, exchange),
        opcode::LOOKUP => {
            let entry = mount.look_up(&header, &exchange.name()?)?;
            exchange.answer(&entry)
        }
        opcode::FORGET => {
            let asked: ForgetIn = exchange.argument()?;
            mount.inodes.forget(header.nodeid, asked.nlookup);
            Ok(Outcome::Silence)
        }
        opcode::BATCH_FORGET => batch_forget(mount, exchange),
        opcode::GETATTR => {
            let found = mount.get_attributes(&header, &exchange.argument::<GetattrIn>()?)?;
            exchange.answer(&found)
        }
        opcode::STATX => {
            let found = mount.get_more_attributes(&header, &exchange.argument()?)?;
            exchange.answer(&found)
        }
        opcode::SETATTR => {
            let found = mount.set_attributes(&header, &exchange.argument()?)?;
            exchange.answer(&found)
        }
        opcode::OPEN => {
            let opened = mount.open(&header, &exchange.argument()?)?;
            exchange.answer(&opened)
        }
        opcode::OPENDIR => {
            let opened = mount.open_directory(&header)?;
            exchange.answer(&opened)
        }
        opcode::READDIR => {
            let asked: ReadIn = exchange.argument()?;
            mount.read_directory(&asked, exchange.space(asked.size)?).map(Outcome::Answer)
        }
        opcode::STATFS => {
            let found = mount.stat_fs(&header)?;
            exchange.answer(&found)
        }
        opcode::FLUSH => done(mount.flush(&exchange.argument()?)),
        opcode::RELEASE | opcode::RELEASEDIR => done(mount.release(&exchange.argument()?)),
        opcode::FSYNC | opcode::FSYNCDIR => done(mount.sync(&exchange.argument()?)),
        opcode::SYNCFS => done(mount.sync_all(header.nodeid)),
        opcode::FALLOCATE => done(mount.allocate(&exchange.argument()?)),
        opcode::LSEEK => {
            let offset = mount.seek(&exchange.argument()?)?;
            exchange.answer(&LseekOut { offset })
        }
        opcode::SETXATTR | opcode::GETXATTR | opcode::LISTXATTR | opcode::REMOVEXATTR => {
            extended_attribute(mount, exchange)
        }
        opcode::GETLK | opcode::SETLK | opcode::SETLKW => lock(mount, exchange),
        opcode::INTERRUPT => {
            mount.locks.interrupt(exchange.argument::<crate::abi::InterruptIn>()?.unique);
            Ok(Outcome::Silence)
        }
        opcode::DESTROY => done(mount.client.flush_all().map_err(|e| crate::mount::failed(&e))),
        opcode::IOCTL => Err(libc::ENOTTY),
        _ => name_operation(mount, exchange),
    }
}

/// Operations that make, move or remove names.
fn name_operation(mount: &Mount, exchange: &mut Exchange<'_>) -> Result<Outcome, Errno> {
    let header = exchange.header;
    match header.opcode {
        opcode::MKNOD => {
            let entry = mount.make_node(&header, &exchange.argument()?, &exchange.name()?)?;
            exchange.answer(&entry)
        }
        opcode::MKDIR => {
            let entry = mount.make_directory(&header, &exchange.argument()?, &exchange.name()?)?;
            exchange.answer(&entry)
        }
        opcode::SYMLINK => {
            let [name, target] = exchange.two_names()?;
            let entry = mount.make_link(&header, &name, &target)?;
            exchange.answer(&entry)
        }
        opcode::LINK => {
            let asked: LinkIn = exchange.argument()?;
            let entry = mount.link(&header, asked.oldnodeid, &exchange.name()?)?;
            exchange.answer(&entry)
        }
        opcode::CREATE => {
            let made = mount.create(&header, &exchange.argument()?, &exchange.name()?)?;
            exchange.answer(&made)
        }
        opcode::TMPFILE => {
            let made = mount.temporary(&header, &exchange.argument()?)?;
            exchange.answer(&made)
        }
        opcode::UNLINK => done(mount.unlink(&header, &exchange.name()?)),
        opcode::RMDIR => done(mount.remove_directory(&header, &exchange.name()?)),
        opcode::RENAME => {
            let asked: RenameIn = exchange.argument()?;
            done(mount.rename(&header, asked.newdir, 0, &exchange.two_names()?))
        }
        opcode::RENAME2 => {
            let asked: Rename2In = exchange.argument()?;
            done(mount.rename(&header, asked.newdir, asked.flags, &exchange.two_names()?))
        }
        opcode::READLINK => {
            let target = mount.read_link(&header, exchange.space(libc::PATH_MAX.cast_unsigned())?)?;
            Ok(Outcome::Answer(target))
        }
        // The kernel has its own way without: it copies by reading and writing, says which access is allowed, and so on.
        _ => Err(libc::ENOSYS),
    }
}

fn read(mount: &Mount, exchange: &mut Exchange<'_>) -> Result<Outcome, Errno> {
    let asked: ReadIn = exchange.argument()?;
    mount.read(&asked, exchange.space(asked.size)?).map(Outcome::Answer)
}

fn write(mount: &Mount, exchange: &mut Exchange<'_>) -> Result<Outcome, Errno> {
    let asked: WriteIn = exchange.argument()?;
    let written = mount.write(exchange.header.pid, &asked, exchange.data(asked.size)?)?;
    let size = u32::try_from(written).map_err(|_| libc::EIO)?;
    exchange.answer(&WriteOut { size, padding: 0 })
}

fn batch_forget(mount: &Mount, exchange: &mut Exchange<'_>) -> Result<Outcome, Errno> {
    let asked: BatchForgetIn = exchange.argument()?;
    let mut rest = exchange.payload();
    for _ in 0..asked.count {
        let Ok((one, others)) = ForgetOne::read_from_prefix(rest) else { break };
        mount.inodes.forget(one.nodeid, one.nlookup);
        rest = others;
    }
    Ok(Outcome::Silence)
}

fn extended_attribute(mount: &Mount, exchange: &mut Exchange<'_>) -> Result<Outcome, Errno> {
    let header = exchange.header;
    match header.opcode {
        opcode::SETXATTR => {
            let asked: SetxattrIn = exchange.argument()?;
            let (name, value) = exchange.name_and_data(asked.size)?;
            done(mount.set_xattr(&header, &asked, &name, value))
        }
        opcode::REMOVEXATTR => done(mount.remove_xattr(&header, &exchange.name()?)),
        opcode::GETXATTR => {
            let name = exchange.name()?;
            attribute_value(mount, exchange, Some(&name))
        }
        _ => attribute_value(mount, exchange, None),
    }
}

fn attribute_value(
    mount: &Mount,
    exchange: &mut Exchange<'_>,
    name: Option<&CStr>,
) -> Result<Outcome, Errno> {
    let asked: GetxattrIn = exchange.argument()?;
    let nodeid = exchange.header.nodeid;
    let length = mount.get_xattr(nodeid, name, exchange.space(asked.size)?)?;
    if asked.size > 0 {
        return Ok(Outcome::Answer(length));
    }
    exchange.answer(&GetxattrOut { size: u32::try_from(length).map_err(|_| libc::E2BIG)?, padding: 0 })
}

fn lock(mount: &Mount, exchange: &mut Exchange<'_>) -> Result<Outcome, Errno> {
    let asked: LkIn = exchange.argument()?;
    let header = exchange.header;
    let handle = mount.handles.get(asked.fh)?;
    let asked = mount.real_lock(&handle, &asked);
    match header.opcode {
        opcode::GETLK => {
            let found = mount.locks.test(&handle, &asked)?;
            exchange.answer(&found)
        }
        opcode::SETLKW => done(mount.locks.set(&handle, &asked, Some(header.unique))),
        _ => done(mount.locks.set(&handle, &asked, None)),
    }
}
