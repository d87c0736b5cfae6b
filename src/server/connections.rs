//! Connections: bounded in number, for each address and in all, and in time, so that clients that are slow, half-open or
//! many hold up neither a pass nor a probe.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::{Extension, Router};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Connections in all.
const MOST: usize = 256;
/// Connections of one address: one client can't take all.
const MOST_OF_ONE: usize = 64;
/// The head of a request is there in less.
const HEAD: Duration = Duration::from_secs(5);
/// A connection that is older is closed with its next answer, which says so: others get its place.
const OLD: Duration = Duration::from_secs(30);
/// One that is still there after this does not take its answer: it is closed as soon as it is idle, and cut after as long again.
const LIFETIME: Duration = Duration::from_mins(1);
/// After the system could not give a connection (too many files) it is asked again.
const PAUSE: Duration = Duration::from_millis(100);
/// Answers that are under way get so long at the end.
const GRACE: Duration = Duration::from_secs(1);

/// Who asks, and since when the connection is there.
#[derive(Debug, Clone, Copy)]
pub(super) struct Peer {
    pub(super) address: SocketAddr,
    since: Instant,
}

impl Peer {
    /// It has been there for long enough.
    pub(super) fn is_old(self) -> bool {
        self.since.elapsed() > OLD
    }
}

/// Open connections by address.
#[derive(Debug, Default)]
struct Open(Mutex<HashMap<IpAddr, usize>>);

/// One of them; gives its place back.
struct Place {
    open: Arc<Open>,
    address: IpAddr,
}

impl Open {
    fn enter(self: &Arc<Self>, address: IpAddr) -> Option<Place> {
        let mut open = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let all: usize = open.values().sum();
        let of_one = open.entry(address).or_default();
        if all >= MOST || *of_one >= MOST_OF_ONE {
            return None;
        }
        *of_one += 1;
        Some(Place { open: Arc::clone(self), address })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut open = self.open.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = open.get_mut(&self.address) {
            *count -= 1;
            if *count == 0 {
                open.remove(&self.address);
            }
        }
    }
}

pub(super) async fn serve(listener: TcpListener, router: Router, shutdown: CancellationToken) {
    let open = Arc::new(Open::default());
    let tasks = TaskTracker::new();
    while let Some(accepted) = shutdown.run_until_cancelled(listener.accept()).await {
        let Ok((stream, peer)) = accepted else {
            tokio::time::sleep(PAUSE).await;
            continue;
        };
        // What comes as IPv4 through an IPv6 socket is IPv4.
        let peer = SocketAddr::new(peer.ip().to_canonical(), peer.port());
        // Closed at once: whoever has that many does not need one more.
        let Some(place) = open.enter(peer.ip()) else { continue };
        let (router, shutdown) = (router.clone(), shutdown.clone());
        let peer = Peer { address: peer, since: Instant::now() };
        tasks.spawn(async move {
            let _place = place;
            answer(stream, peer, router, shutdown).await;
        });
    }
    tasks.close();
    let _ = tokio::time::timeout(GRACE, tasks.wait()).await;
}

async fn answer(stream: TcpStream, peer: Peer, router: Router, shutdown: CancellationToken) {
    let service = TowerToHyperService::new(router.layer(Extension(peer)));
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(HEAD);
    let mut connection = std::pin::pin!(builder.serve_connection(TokioIo::new(stream), service));
    tokio::select! {
        // Whatever went wrong is the client's.
        _ = &mut connection => return,
        () = tokio::time::sleep(LIFETIME) => {}
        () = shutdown.cancelled() => {}
    }
    connection.as_mut().graceful_shutdown();
    let _ = tokio::time::timeout(LIFETIME, connection).await;
}
