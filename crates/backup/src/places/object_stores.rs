//! A repository in an object store: S3 and what speaks its protocol, Google Cloud Storage, Azure.
//!
//! Key decision: objects are uploaded several at a time in the background, and those that failed
//! are kept until they are stored. So an outage delays a restore point, and loses nothing.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::TryStreamExt;
use object_store::aws::AmazonS3Builder;
use object_store::azure::MicrosoftAzureBuilder;
use object_store::gcp::GoogleCloudStorageBuilder;
use object_store::path::Path;
use object_store::{
    BackoffConfig, Error, ObjectStore, ObjectStoreExt, PutMode, PutPayload, RetryConfig,
};
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinSet;

use super::attempts::{ATTEMPTS_MAX, insist};
use super::lease::Lease;
use super::{Claim, Listed, Place};
use crate::BackupError;

/// Objects that are uploaded at a time.
const UPLOADS_MAX: usize = 16;
/// How often a request is tried before it fails, and how long.
const RETRIES_MAX: usize = 8;
const RETRY_TIME: Duration = Duration::from_secs(60);

/// A prefix in a bucket or container.
pub struct ObjectStores {
    url: String,
    store: Arc<dyn ObjectStore>,
    prefix: Path,
    lease: Duration,
    uploads: Mutex<Uploads>,
    runtime: Arc<Runtime>,
}

/// What is under way.
#[derive(Default)]
struct Uploads {
    running: JoinSet<Option<Failed>>,
    failed: Vec<Failed>,
}

/// An object that could not be stored yet.
struct Failed {
    object: String,
    bytes: bytes::Bytes,
    error: String,
}

impl ObjectStores {
    /// Opens `s3://BUCKET/PREFIX`, `gs://BUCKET/PREFIX` or `az://CONTAINER/PREFIX`, with the
    /// credentials and addresses of the environment. A writer that is not heard of for `lease` may
    /// be replaced.
    ///
    /// # Errors
    /// `Refused` for a URL or settings that name no store.
    pub fn open(url: &str, lease: Duration) -> Result<ObjectStores, BackupError> {
        let refused = |error: String| BackupError::Refused(format!("{url}: {error}"));
        // There may be one already; the same then.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let (store, prefix) = parse(url).map_err(refused)?;
        let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build();
        let runtime = runtime.map_err(|error| refused(error.to_string()))?;
        Ok(ObjectStores {
            url: url.trim_end_matches('/').to_owned(),
            store,
            prefix,
            lease,
            uploads: Mutex::default(),
            runtime: Arc::new(runtime),
        })
    }

    fn at(&self, object: &str) -> Path {
        Path::from(format!("{}/{object}", self.prefix))
    }

    fn failed(&self, what: &'static str, object: &str) -> impl FnOnce(Error) -> BackupError {
        let path = self.path(object);
        move |error| BackupError::Unavailable { what, path, error: error.to_string() }
    }

    /// Tries a request until it is answered.
    fn insist<T>(&self, attempt: impl AsyncFn() -> Result<T, Error>) -> Result<T, Error> {
        self.runtime.block_on(insist(attempt))
    }

    fn uploads(&self) -> MutexGuard<'_, Uploads> {
        self.uploads.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn begin(&self, uploads: &mut Uploads, object: String, bytes: bytes::Bytes) {
        let (store, path) = (Arc::clone(&self.store), self.at(&object));
        let upload = async move {
            let put = store.put(&path, PutPayload::from_bytes(bytes.clone())).await;
            put.err().map(|error| Failed { object, bytes, error: error.to_string() })
        };
        uploads.running.spawn_on(upload, self.runtime.handle());
    }

    /// Waits until at most so many uploads are under way.
    fn wait(&self, uploads: &mut Uploads, most: usize) {
        while uploads.running.len() > most {
            if let Some(Ok(Some(failed))) = self.runtime.block_on(uploads.running.join_next()) {
                uploads.failed.push(failed);
            }
        }
    }

    /// Uploads once more what has failed.
    fn retry(&self, uploads: &mut Uploads) -> Result<(), BackupError> {
        for _ in 0..ATTEMPTS_MAX {
            for Failed { object, bytes, .. } in std::mem::take(&mut uploads.failed) {
                self.wait(uploads, UPLOADS_MAX - 1);
                self.begin(uploads, object, bytes);
            }
            self.wait(uploads, 0);
            if uploads.failed.is_empty() {
                break;
            }
        }
        match uploads.failed.first() {
            None => Ok(()),
            Some(Failed { object, error, .. }) => Err(BackupError::Unavailable {
                what: "store it",
                path: self.path(object),
                error: error.clone(),
            }),
        }
    }
}

impl Place for ObjectStores {
    fn path(&self, object: &str) -> String {
        match object {
            "" => self.url.clone(),
            _ => format!("{}/{object}", self.url),
        }
    }

    fn get(&self, object: &str) -> Result<Option<Vec<u8>>, BackupError> {
        let path = self.at(object);
        let found = self.insist(async || self.store.get(&path).await?.bytes().await);
        match found {
            Ok(bytes) => Ok(Some(bytes.to_vec())),
            Err(Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(self.failed("read it", object)(error)),
        }
    }

    fn has(&self, object: &str) -> Result<bool, BackupError> {
        let path = self.at(object);
        match self.insist(async || self.store.head(&path).await) {
            Ok(_) => Ok(true),
            Err(Error::NotFound { .. }) => Ok(false),
            Err(error) => Err(self.failed("look at it", object)(error)),
        }
    }

    fn put(&self, object: &str, bytes: Vec<u8>) -> Result<(), BackupError> {
        let mut uploads = self.uploads();
        self.wait(&mut uploads, UPLOADS_MAX - 1);
        if !uploads.failed.is_empty() {
            self.retry(&mut uploads)?;
        }
        self.begin(&mut uploads, object.to_owned(), bytes.into());
        Ok(())
    }

    fn settle(&self) -> Result<(), BackupError> {
        let mut uploads = self.uploads();
        self.wait(&mut uploads, 0);
        match uploads.failed.is_empty() {
            true => Ok(()),
            false => self.retry(&mut uploads),
        }
    }

    fn create(&self, object: &str, bytes: Vec<u8>) -> Result<bool, BackupError> {
        let (path, bytes) = (self.at(object), bytes::Bytes::from(bytes));
        let created = self.insist(async || {
            let payload = PutPayload::from_bytes(bytes.clone());
            match self.store.put_opts(&path, payload, PutMode::Create.into()).await {
                Ok(_) => Ok(true),
                // An earlier attempt may have succeeded, and its answer was lost.
                Err(Error::AlreadyExists { .. } | Error::Precondition { .. }) => {
                    Ok(self.store.get(&path).await?.bytes().await? == bytes)
                }
                Err(error) => Err(error),
            }
        });
        created.map_err(self.failed("create it", object))
    }

    fn list(&self, folder: &str) -> Result<Vec<Listed>, BackupError> {
        let path = self.at(folder);
        let listed =
            self.insist(async || self.store.list(Some(&path)).try_collect::<Vec<_>>().await);
        let listed = listed.map_err(self.failed("list it", folder))?;
        let prefix = format!("{}/", self.prefix);
        let name = |path: &Path| {
            let path = path.as_ref();
            path.strip_prefix(&prefix).unwrap_or(path).to_owned()
        };
        let listed = listed.into_iter();
        let mut found: Vec<_> =
            listed.map(|it| Listed { object: name(&it.location), bytes: it.size }).collect();
        found.sort_by(|one, two| one.object.cmp(&two.object));
        Ok(found)
    }

    fn is_empty(&self) -> Result<bool, BackupError> {
        let first = self.insist(async || self.store.list(Some(&self.prefix)).try_next().await);
        Ok(first.map_err(self.failed("list it", ""))?.is_none())
    }

    fn remove(&self, object: &str) -> Result<(), BackupError> {
        let path = self.at(object);
        match self.insist(async || self.store.delete(&path).await) {
            Ok(()) | Err(Error::NotFound { .. }) => Ok(()),
            Err(error) => Err(self.failed("remove it", object)(error)),
        }
    }

    fn claim(&self) -> Result<Box<dyn Claim>, BackupError> {
        let (store, runtime) = (Arc::clone(&self.store), Arc::clone(&self.runtime));
        let lease = Lease::take(runtime, store, self.at("lease"), self.url.clone(), self.lease)?;
        Ok(Box::new(lease))
    }
}

/// The store and the prefix of a URL.
fn parse(url: &str) -> Result<(Arc<dyn ObjectStore>, Path), String> {
    let (scheme, rest) = url.split_once("://").unwrap_or((url, ""));
    let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
    let prefix = Path::parse(prefix.trim_matches('/')).map_err(|error| error.to_string())?;
    if bucket.is_empty() || prefix.as_ref().is_empty() {
        return Err(format!("give a bucket and a folder in it: {scheme}://BUCKET/FOLDER"));
    }
    let retry = RetryConfig {
        backoff: BackoffConfig::default(),
        max_retries: RETRIES_MAX,
        retry_timeout: RETRY_TIME,
    };
    let store: Result<Arc<dyn ObjectStore>, Error> = match scheme {
        "s3" => AmazonS3Builder::from_env()
            .with_bucket_name(bucket)
            .with_retry(retry)
            .build()
            .map(|store| Arc::new(store) as _),
        "gs" => GoogleCloudStorageBuilder::from_env()
            .with_bucket_name(bucket)
            .with_retry(retry)
            .build()
            .map(|store| Arc::new(store) as _),
        "az" => MicrosoftAzureBuilder::from_env()
            .with_container_name(bucket)
            .with_retry(retry)
            .build()
            .map(|store| Arc::new(store) as _),
        _ => return Err("unknown scheme; give s3://, gs:// or az://".to_owned()),
    };
    Ok((store.map_err(|error| error.to_string())?, prefix))
}
