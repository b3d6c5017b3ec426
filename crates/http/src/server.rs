//! The thread of an HTTP server: accepts connections and enforces their limits.
//!
//! Key decision: when there are too many connections the oldest one is closed. So a client that
//! holds many open keeps no other client out.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::io;
use std::net::{SocketAddr, TcpListener as StdListener};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use http_body_util::{BodyExt, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::AbortHandle;
use tokio::time::timeout;
use zodium_types::Address;

use crate::{Answer, Site, refusal};

/// Most open connections; a few browsers and scrapers need far fewer.
const CONNECTIONS_MAX: usize = 64;
/// Most bytes in the head of a request. (hyper needs a buffer of at least 8 KiB.)
const HEAD_BYTES_MAX: usize = 16 << 10;
/// Most header lines of a request.
const HEADERS_MAX: usize = 64;
/// Most bytes in the body of a POST; forms are far smaller.
const BODY_BYTES_MAX: usize = 16 << 10;
/// Most threads for work that blocks.
const BLOCKING_THREADS_MAX: usize = 8;
/// Longest time to send the head of a request, and longest idle time between two requests.
const HEAD_TIME_MAX: Duration = Duration::from_secs(10);
/// Longest time of a connection, however busy: ends those that do not read their answers.
const CONNECTION_TIME_MAX: Duration = Duration::from_secs(60);
/// Pause after a failed accept, for example when no file descriptors are left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// A bound address; no requests are answered yet.
#[derive(Debug)]
pub struct Listener {
    listener: StdListener,
    address: SocketAddr,
}

/// A running server. It ends when dropped.
#[derive(Debug)]
pub struct HttpServer {
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Listener {
    /// Binds an address: host and port. Without a host that is 127.0.0.1: there is no password, so
    /// other machines get access only on request.
    ///
    /// # Errors
    /// Those of the system, and `Unsupported` for a Unix socket.
    pub fn bind(address: &Address) -> io::Result<Listener> {
        let listener = match Listener::meant(address) {
            Address::Tcp { host, port } => StdListener::bind((host.as_str(), port))?,
            Address::Unix(_) => {
                let text = "browsers and Prometheus need HOST:PORT, not a Unix socket";
                return Err(io::Error::new(io::ErrorKind::Unsupported, text));
            }
        };
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        Ok(Listener { listener, address })
    }

    /// The address that `bind` takes for this one: a port alone is one of 127.0.0.1.
    pub fn meant(address: &Address) -> Address {
        match address {
            Address::Tcp { host, port } if host.is_empty() => {
                Address::Tcp { host: "127.0.0.1".to_owned(), port: *port }
            }
            address => address.clone(),
        }
    }

    /// The address with the port that was chosen.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl HttpServer {
    /// Starts to answer requests, on a thread of that name.
    ///
    /// # Errors
    /// When no file descriptor or thread is available.
    pub fn start(
        listener: Listener,
        name: &'static str,
        site: Arc<dyn Site>,
    ) -> io::Result<HttpServer> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .max_blocking_threads(BLOCKING_THREADS_MAX)
            .build()?;
        let (stop, stopped) = oneshot::channel();
        let accepting = async move {
            match TcpListener::from_std(listener.listener) {
                Ok(listener) => tokio::select! {
                    () = accept(listener, Arc::clone(&site)) => {}
                    () = site.background() => {}
                    _ = stopped => {}
                },
                Err(error) => tracing::error!(%error, name, "cannot listen for HTTP"),
            }
        };
        let running = move || {
            runtime.block_on(accepting);
            // Work that blocks is not waited for.
            runtime.shutdown_background();
        };
        let thread = std::thread::Builder::new().name(name.to_owned()).spawn(running)?;
        Ok(HttpServer { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for HttpServer {
    fn drop(&mut self) {
        // A closed channel stops it as well.
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // A panic of it would have ended the process.
            let _ = thread.join();
        }
    }
}

async fn accept(listener: TcpListener, site: Arc<dyn Site>) {
    let mut connections: VecDeque<AbortHandle> = VecDeque::with_capacity(CONNECTIONS_MAX);
    loop {
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::debug!(%error, "cannot accept an HTTP connection");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        connections.retain(|connection| !connection.is_finished());
        if connections.len() >= CONNECTIONS_MAX
            && let Some(oldest) = connections.pop_front()
        {
            oldest.abort();
        }
        let serving = tokio::spawn(serve(stream, Arc::clone(&site)));
        connections.push_back(serving.abort_handle());
    }
}

async fn serve(stream: TcpStream, site: Arc<dyn Site>) {
    let answer = service_fn(move |request| {
        let site = Arc::clone(&site);
        async move { Ok::<_, Infallible>(answer(&*site, request).await) }
    });
    let mut protocol = http1::Builder::new();
    protocol
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIME_MAX)
        .max_headers(HEADERS_MAX)
        .max_header_size(HEAD_BYTES_MAX)
        .max_buf_size(2 * HEAD_BYTES_MAX);
    let connection = protocol.serve_connection(TokioIo::new(stream), answer);
    match timeout(CONNECTION_TIME_MAX, connection).await {
        Ok(Ok(())) | Err(_) => {}
        // The client's fault, so it is worth a debug message only.
        Ok(Err(error)) => tracing::debug!(%error, "an HTTP request failed"),
    }
}

async fn answer(site: &dyn Site, request: Request<Incoming>) -> Answer {
    let (head, body) = request.into_parts();
    // Other methods need no body. One that is sent is discarded with the connection.
    if head.method != Method::POST {
        return site.answer(Request::from_parts(head, Bytes::new())).await;
    }
    match Limited::new(body, BODY_BYTES_MAX).collect().await {
        Ok(body) => site.answer(Request::from_parts(head, body.to_bytes())).await,
        Err(_) => refusal(StatusCode::PAYLOAD_TOO_LARGE, "the body is too long, or incomplete\n"),
    }
}
