//! Asking ahead: while an operation waits for its next lock, those behind it are asked for as well.
//!
//! *What*: servers begin at once to take all of them back from those who have them, instead of one after the other.
//! *Invariants*: what comes is cached and not in use, so it goes to whoever wants it like any lock that nobody uses: the operation holds
//! locks in their order only, and nobody waits for it in a circle.
//! *Not here*: in which order locks are taken (`locks`).

use crate::client::ClientInner;
use crate::operation::with_locks;
use crate::session::Session;
use crate::stripe::{Outbox, Stripe};
use ccpfs_cached_stripe::Input;
use ccpfs_region::Region;
use ccpfs_types::{LockMode, Terms};
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};

/// Most locks that are asked for ahead: a thread waits for each.
pub(super) const AHEAD_MAX: usize = 16;

/// Asks for the only lock that an operation will need of a stripe, unless there is one or one has been asked for; in the background.
///
/// What goes wrong here goes wrong again, and is told, when the operation asks for the lock itself.
pub(super) fn ask_ahead(
    client: &ClientInner,
    stripe: &Arc<Stripe>,
    mode: LockMode,
    region: &Region,
    terms: Terms,
) {
    let Ok(mut inner) = with_locks(client, stripe) else { return };
    if inner.waits_ahead() || inner.cached().covers(mode, region, terms.group) {
        return;
    }
    // The thread first: a lock that comes when nobody can receive it could not be given back.
    let Some(sent) = receiver(client, stripe) else { return };
    let (operation, request) = (client.operation(), client.request());
    let (required, desired) = (region.clone(), region.clone());
    let mut out = Outbox::default();
    inner.wait_ahead(operation);
    let input = Input::Acquire { operation, mode, required, desired, request, terms };
    inner.step(stripe, client, input, &mut out);
    let session = inner.live_session();
    drop(inner);
    client.dispatch(stripe, out);
    if let Some(session) = session {
        // It waits for nothing else.
        let _ = sent.send(session);
    }
}

/// A thread that receives the answer to a request, once it is told over which session that was sent; none if there are too many threads.
fn receiver(client: &ClientInner, stripe: &Arc<Stripe>) -> Option<Sender<Arc<Session>>> {
    let client = client.weak().upgrade()?;
    let stripe = Arc::clone(stripe);
    let (sent, sessions) = channel::<Arc<Session>>();
    let body = move || {
        let Ok(session) = sessions.recv() else { return };
        let answered = || (!stripe.lock().waits_ahead()).then_some(());
        if session.wait_until(&*client, answered).is_err() {
            client.session_lost(&session);
        }
    };
    crate::flush_loop::try_spawn("ccpfs-ahead", body).ok().map(|()| sent)
}
