//! The pages of the monitor, by path.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde::Serialize;
use tokio::sync::Mutex;
use zodium_http::header::{ACCEPT, ALLOW, HeaderMap, HeaderValue, VARY};
use zodium_http::{Answer, Bytes, CONTENT_ONLY_OURS, Method, Request, Site, StatusCode};

use crate::health::Health;
use crate::history::{History, SAMPLE_INTERVAL};
use crate::messages::Message;
use crate::metrics::{self, MetricsCollector};
use crate::negotiation::Format;
use crate::process::Process;
use crate::snapshot::Snapshot;
use crate::{Messages, Promise, Source};

/// Longest time that one snapshot answers all requests, so that frequent requests do not keep
/// workers from their work.
const SNAPSHOT_AGE_MAX: Duration = Duration::from_millis(100);

const PAGE: &str = include_str!("page/page.html");
const STYLE: &str = include_str!("page/page.css");
const SCRIPT: &str = include_str!("page/page.js");

const JSON: &str = "application/json";

/// Renders the pages from a source.
pub(crate) struct Pages {
    source: Arc<dyn Source>,
    messages: Messages,
    recent: Mutex<Option<(Instant, Arc<Snapshot>)>>,
    history: Mutex<History>,
}

/// The data of the status page.
#[derive(Serialize)]
struct Status<'a> {
    /// Seconds since the Unix epoch.
    time: f64,
    health: Health,
    complaints: Vec<String>,
    process: Process,
    #[serde(flatten)]
    snapshot: &'a Snapshot,
    messages: Vec<Message>,
}

#[derive(Serialize)]
struct HealthAnswer {
    status: &'static str,
    reasons: Vec<String>,
    #[serde(flatten)]
    health: Health,
}

impl Site for Pages {
    fn answer(&self, request: Request<Bytes>) -> Promise<'_, Answer> {
        Box::pin(async move { self.page(&request).await })
    }

    fn background(&self) -> Promise<'_, ()> {
        Box::pin(self.sample())
    }
}

impl Pages {
    pub(crate) fn new(source: Arc<dyn Source>, messages: Messages) -> Pages {
        Pages { source, messages, recent: Mutex::default(), history: Mutex::default() }
    }

    async fn page<B>(&self, request: &Request<B>) -> Answer {
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            let mut answer = text(StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD\n");
            answer.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
            return answer;
        }
        match request.uri().path() {
            "/" => with(StatusCode::OK, "text/html; charset=utf-8", PAGE),
            "/page.css" => with(StatusCode::OK, "text/css; charset=utf-8", STYLE),
            "/page.js" => with(StatusCode::OK, "text/javascript; charset=utf-8", SCRIPT),
            "/metrics" => self.metrics(request.headers()).await,
            "/status.json" => self.status().await,
            "/history.json" => json(StatusCode::OK, &*self.history.lock().await),
            "/health" => self.health(),
            "/health/live" => json(StatusCode::OK, &serde_json::json!({"status": "ok"})),
            _ => text(
                StatusCode::NOT_FOUND,
                "there are /, /metrics, /health, /health/live, /status.json and /history.json\n",
            ),
        }
    }

    /// Samples the server for the history, without an end.
    async fn sample(&self) {
        let mut ticks = tokio::time::interval(SAMPLE_INTERVAL);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let snapshot = self.snapshot().await;
            let mut history = self.history.lock().await;
            history.add(unix_seconds(), &snapshot, &Process::now());
        }
    }

    async fn metrics(&self, headers: &HeaderMap) -> Answer {
        let accept = headers.get_all(ACCEPT).into_iter().filter_map(|value| value.to_str().ok());
        let format = Format::preferred(accept);
        let collector = MetricsCollector {
            snapshot: self.snapshot().await,
            health: self.source.health(),
            process: Process::now(),
            messages: self.messages.counts(),
        };
        let exposition = metrics::exposition(collector, format);
        let mut answer = with(StatusCode::OK, format.content_type(), exposition);
        answer.headers_mut().insert(VARY, HeaderValue::from_static("accept"));
        answer
    }

    async fn status(&self) -> Answer {
        let snapshot = self.snapshot().await;
        let health = self.source.health();
        let status = Status {
            time: unix_seconds(),
            complaints: [health.complaints(), health.damages()].concat(),
            health,
            process: Process::now(),
            snapshot: &snapshot,
            messages: self.messages.newest(),
        };
        json(StatusCode::OK, &status)
    }

    fn health(&self) -> Answer {
        let health = self.source.health();
        let (complaints, damages) = (health.complaints(), health.damages());
        let (code, status) = match (complaints.is_empty(), damages.is_empty()) {
            (true, true) => (StatusCode::OK, "ok"),
            (true, false) => (StatusCode::OK, "degraded"),
            (false, _) => (StatusCode::SERVICE_UNAVAILABLE, "unavailable"),
        };
        let reasons = [complaints, damages].concat();
        json(code, &HealthAnswer { status, reasons, health })
    }

    async fn snapshot(&self) -> Arc<Snapshot> {
        // Requests that arrive while a snapshot is taken wait here, and share it.
        let mut recent = self.recent.lock().await;
        if let Some((taken, snapshot)) = &*recent
            && taken.elapsed() < SNAPSHOT_AGE_MAX
        {
            return Arc::clone(snapshot);
        }
        let snapshot = Arc::new(self.source.snapshot().await);
        *recent = Some((Instant::now(), Arc::clone(&snapshot)));
        snapshot
    }
}

fn unix_seconds() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}

fn json(code: StatusCode, value: &impl Serialize) -> Answer {
    // Plain data with text keys always serializes.
    with(code, JSON, serde_json::to_string(value).unwrap_or_default())
}

fn text(code: StatusCode, text: &'static str) -> Answer {
    with(code, "text/plain; charset=utf-8", text)
}

fn with(code: StatusCode, content_type: &'static str, body: impl Into<Bytes>) -> Answer {
    zodium_http::answer(code, content_type, CONTENT_ONLY_OURS, body)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use http_body_util::BodyExt;

    use super::*;
    use crate::{Phase, StorageHealth, StorageState};

    struct Example {
        state: StorageState,
        snapshots: AtomicU64,
    }

    impl Source for Example {
        fn health(&self) -> Health {
            let storage = StorageHealth {
                name: "1".to_owned(),
                state: self.state,
                damaged: 0,
                failure: None,
            };
            Health {
                phase: Phase::Serving,
                storages: vec![storage],
                keys_failure: None,
                notes: Vec::new(),
            }
        }

        fn snapshot(&self) -> Promise<'_, Snapshot> {
            self.snapshots.fetch_add(1, Ordering::Relaxed);
            Box::pin(std::future::ready(Snapshot::default()))
        }
    }

    fn answer(state: StorageState, method: &str, path: &str) -> (StatusCode, String) {
        let request = Request::builder().method(method).uri(path).body(()).unwrap();
        let (code, _, body) = exchange(state, request);
        (code, body)
    }

    fn exchange(state: StorageState, request: Request<()>) -> (StatusCode, HeaderMap, String) {
        let source = Arc::new(Example { state, snapshots: AtomicU64::new(0) });
        let pages = Pages::new(source, Messages::default());
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let answer = pages.page(&request).await;
            assert!(answer.headers().contains_key("content-security-policy"));
            let (head, body) = answer.into_parts();
            let body = body.collect().await.unwrap().to_bytes();
            (head.status, head.headers, String::from_utf8(body.to_vec()).unwrap())
        })
    }

    #[test]
    fn health_is_told_by_the_code_and_by_reasons() {
        let (code, body) = answer(StorageState::Writable, "GET", "/health");
        assert_eq!((code.as_u16(), body.contains(r#""status":"ok""#)), (200, true));
        let (code, body) = answer(StorageState::Failed, "GET", "/health");
        assert_eq!((code.as_u16(), body.contains("a write failed")), (503, true));
        assert_eq!(answer(StorageState::Failed, "GET", "/health/live").0.as_u16(), 200);
    }

    #[test]
    fn the_page_has_words_for_each_state_of_a_storage() {
        // A new state does not compile without a place here.
        let following = |state: &StorageState| match state {
            StorageState::Writable => Some(StorageState::ReadOnly),
            StorageState::ReadOnly => Some(StorageState::Full),
            StorageState::Full => Some(StorageState::Failed),
            StorageState::Failed => Some(StorageState::Stalled),
            StorageState::Stalled => Some(StorageState::Unreachable),
            StorageState::Unreachable => Some(StorageState::Changed),
            StorageState::Changed => Some(StorageState::Waiting),
            StorageState::Waiting => Some(StorageState::Closing),
            StorageState::Closing => None,
        };
        for state in std::iter::successors(Some(StorageState::Writable), following) {
            let name = serde_json::to_value(state).unwrap();
            let words = format!("\n  {}: [\"", name.as_str().unwrap());
            assert!(SCRIPT.contains(&words), "{state:?}");
        }
    }

    #[test]
    fn what_is_not_there_and_what_is_not_read_is_refused() {
        assert_eq!(answer(StorageState::Writable, "GET", "/etc/passwd").0.as_u16(), 404);
        assert_eq!(answer(StorageState::Writable, "POST", "/metrics").0.as_u16(), 405);
    }

    #[test]
    fn metrics_have_the_format_that_the_client_prefers() {
        let metrics = |accept: &str| {
            let request = Request::builder().uri("/metrics").header("accept", accept);
            let (_, headers, body) = exchange(StorageState::Writable, request.body(()).unwrap());
            assert_eq!(headers["vary"], "accept");
            (headers["content-type"].to_str().unwrap().to_owned(), body)
        };
        let (content_type, body) = metrics("application/openmetrics-text");
        assert!(content_type.starts_with("application/openmetrics-text"), "{content_type}");
        assert!(body.ends_with("# EOF\n"));
        assert!(body.contains("# TYPE zodium_network_accepted counter\n"));
        let (content_type, body) = metrics("text/plain");
        assert_eq!(content_type, "text/plain; version=0.0.4; charset=utf-8");
        assert!(body.contains(
            "# HELP zodium_network_accepted_total Connections accepted\n\
             # TYPE zodium_network_accepted_total counter\nzodium_network_accepted_total 0\n"
        ));
        assert!(!body.contains("# UNIT") && !body.contains("# EOF"));
    }

    #[test]
    fn simultaneous_requests_share_a_snapshot() {
        let source =
            Arc::new(Example { state: StorageState::Writable, snapshots: AtomicU64::new(0) });
        let pages = Pages::new(Arc::clone(&source) as Arc<dyn Source>, Messages::default());
        let request = Request::builder().uri("/metrics").body(()).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            for _ in 0..10 {
                pages.page(&request).await;
            }
        });
        assert!(source.snapshots.load(Ordering::Relaxed) <= 5);
    }
}
