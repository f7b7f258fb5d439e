//! Control planes for tests, each used by one test at a time.
//!
//! A test takes a [`Lease`]; the pool starts a control plane when none is free, up to [`SIZE`], and keeps it for the
//! next test. Tests wait more than they compute, so a pool is several times faster than one shared control plane.

use std::{
    fs::{self, OpenOptions},
    io::{self, Write},
    ops::{Deref, DerefMut},
    sync::{Mutex, MutexGuard, PoisonError},
};

use anyhow::{Result, anyhow};
use tokio::sync::{OnceCell, Semaphore, SemaphorePermit};

use super::{
    control_plane::{ControlPlane, Options},
    process,
};

/// The largest number of pooled control planes. Each takes about half a gigabyte of memory.
const SIZE: usize = 6;

/// Names the file to which the audit logs of all control planes are appended at exit.
const KEEP_AUDIT_LOG: &str = "CCM_OPERATOR_AUDIT_LOG";

static PERMITS: Semaphore = Semaphore::const_new(SIZE);
static FREE: Mutex<Vec<ControlPlane>> = Mutex::new(Vec::new());

/// A control plane that one test has for itself.
#[derive(Debug)]
pub struct Lease {
    /// Present until the lease is dropped.
    plane: Option<ControlPlane>,
    permit: Option<SemaphorePermit<'static>>,
}

/// Takes a control plane, etcd and kube-apiserver, from the pool. It has the objects of the tests before.
pub async fn lease() -> Result<Lease> {
    let permit = PERMITS.acquire().await?;
    let free = free().pop();
    let plane = match free {
        Some(plane) => plane,
        None => start().await?,
    };
    Ok(Lease { plane: Some(plane), permit: Some(permit) })
}

/// Starts one more control plane. A failure is kept: each of the other tests would run into the same one.
async fn start() -> Result<ControlPlane> {
    static FAILURE: OnceCell<String> = OnceCell::const_new();
    static CLEAN_UP: OnceCell<()> = OnceCell::const_new();
    if let Some(error) = FAILURE.get() {
        return Err(anyhow!("{error}"));
    }
    CLEAN_UP.get_or_try_init(async || process::at_exit(clean_up)).await?;
    let plane = ControlPlane::start(Options::default()).await;
    if let Err(error) = &plane {
        let _ = FAILURE.set(format!("{error:#}"));
    }
    plane
}

fn free() -> MutexGuard<'static, Vec<ControlPlane>> {
    FREE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Stops the control planes at exit, when statics are not dropped.
extern "C" fn clean_up() {
    for plane in free().drain(..) {
        plane.stop();
        keep_audit_log(&plane);
    }
}

fn keep_audit_log(plane: &ControlPlane) {
    let Some(kept) = std::env::var_os(KEEP_AUDIT_LOG) else { return };
    let copied = OpenOptions::new().create(true).append(true).open(kept).and_then(|mut kept| {
        let mut log = fs::File::open(plane.audit().path())?;
        io::copy(&mut log, &mut kept)
    });
    if let Err(error) = copied {
        let _ = writeln!(io::stderr(), "failed to keep the audit log of {}: {error}", plane.dir().display());
    }
}

impl From<ControlPlane> for Lease {
    /// A control plane outside the pool.
    fn from(plane: ControlPlane) -> Self {
        Self { plane: Some(plane), permit: None }
    }
}

impl Deref for Lease {
    type Target = ControlPlane;

    fn deref(&self) -> &ControlPlane {
        self.plane.as_ref().unwrap_or_else(|| unreachable!("a lease has its control plane until it is dropped"))
    }
}

impl DerefMut for Lease {
    fn deref_mut(&mut self) -> &mut ControlPlane {
        self.plane.as_mut().unwrap_or_else(|| unreachable!("a lease has its control plane until it is dropped"))
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let Some(plane) = self.plane.take() else { return };
        // A test that failed halfway may leave a control plane without a server.
        if self.permit.is_some() && plane.is_healthy() {
            free().push(plane);
        } else {
            keep_audit_log(&plane);
        }
    }
}
